//! What clients speak to: Azure ML's control plane (`arm`), its run history (`history`), Azure blobs (`blob`), MLflow
//! tracking (`mlflow`), token endpoints (`tokens`) and Neap's own interface (`neap`).
//!
//! A face parses a request into a command, hands it to control, and writes what the published views say as the
//! answer. It decides nothing, keeps nothing that must outlive the process, and cannot reach providers or agents.

pub mod app;
pub mod arm;
mod ask;
mod audience;
pub mod blob;
pub mod checkpoints;
pub mod conduct;
mod door;
pub mod drafts;
mod durations;
mod elsewhere;
mod environments;
mod estimates;
mod fields;
pub mod history;
mod json_bytes;
mod limits;
mod metrics;
mod mlflow;
pub mod neap;
mod parallel;
mod past;
mod reply;
mod routes;
mod services;
mod story;
pub mod tokens;
pub mod unfinished_uploads;
mod workspace_files;

pub use app::{App, Installation, Observability, ServerFacts};
pub use arm::errors::refuse;
pub use ask::Caller;
pub use audience::Audiences;
pub use door::{Standing, buffers_body, standing};
pub use durations::parse_ms as duration_ms;
pub use elsewhere::{DataAccess, DataRules};
pub use environments::{EnvironmentRules, MappedEnvironment};
pub use routes::router;
pub use workspace_files::prepare as prepare_workspace_storage;
