//! What a job's command runs in: a container, a cached virtual environment, or the host's Python as it is.
//!
//! `choose` decides and does nothing. `provide` brings it in place before an attempt starts; `packages`, `venv` and
//! `installing` are the texts for that, `cache` builds once for all, `engine` and `driver` speak with Docker and Podman.

pub(crate) mod cache;
mod choose;
pub(crate) mod driver;
pub(crate) mod engine;
mod installing;
mod limits;
pub(crate) mod order;
pub(crate) mod provide;
mod removal;
mod seal;
pub(crate) mod shared;
mod venv;

pub(crate) use limits::ENGINE_KNOWN_MS;
use neap_spec::packages;

pub use driver::drive;
pub use engine::{EngineKind, EngineSettings};
pub use removal::{CONTAINERS_FILE, remove_containers_of, remove_orphaned_containers};
