//! az-ml YAML to requests: reads the files that `az ml` takes, checks them against field tables, names every
//! problem at once, and builds the bodies that the Azure face accepts.
//!
//! It never touches the network, a clock or a random source. The only files it sees are those that the caller's
//! [`Files`] hands it: component files, environments, conda files. What must be done before a request can be sent
//! (uploads, look-ups, registrations) it lists; the caller does it.

mod asset;
mod batch;
mod bindings;
mod command;
mod component;
mod compute;
mod datastore;
mod document;
mod duration;
mod environment;
mod error;
mod expressions;
mod fields;
mod files;
mod inline;
mod inputs;
mod job;
mod limits;
mod mend;
mod overrides;
pub mod packages;
mod parallel;
mod pipeline;
mod plan;
mod planner;
mod schedule;
mod scope;
mod settings;
mod step;
mod suggest;
mod sweep;
mod wire;

pub use asset::{data_request, model_request};
pub use batch::{batch_deployment_request, batch_endpoint_request};
pub use component::component_request;
pub use compute::{ComputeRequest, compute_request};
pub use datastore::datastore_request;
pub use document::Document;
pub use duration::{iso_from_seconds, seconds_from_iso};
pub use environment::environment_request;
pub use error::{Error, Flaw, Problem};
pub use files::Files;
pub use job::{Defaults, job_request};
pub use mend::{Mended, mended};
pub use overrides::{remove_path, set_path, typed_value};
pub use plan::{Collection, Preparation, Registration, Request};
pub use planner::Context;
pub use schedule::schedule_request;
pub use scope::Scope;
pub use suggest::nearest;
