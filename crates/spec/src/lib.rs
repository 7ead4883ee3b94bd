//! az-ml YAML to requests: reads the files that `az ml` takes, checks them against field tables, names every
//! problem at once, and builds the bodies that the Azure face accepts.
//!
//! It never touches the network, a clock or a random source. The only files it sees are those that the caller's
//! [`ReadText`] hands it (a conda file, an environment in a file of its own).

mod compute;
mod document;
mod duration;
mod environment;
mod error;
mod fields;
mod job;
mod job_parts;
mod overrides;
mod scope;
mod suggest;

pub use compute::{ComputeRequest, compute_request};
pub use document::Document;
pub use duration::{iso_from_seconds, seconds_from_iso};
pub use environment::{Environment, EnvironmentRequest};
pub use error::{Error, Problem};
pub use job::{JobRequest, Submission, Upload, UploadKind, job_request};
pub use overrides::{remove_path, set_path, typed_value};
pub use scope::Scope;
pub use suggest::nearest;

use std::path::Path;

/// How a request builder reads a file that the YAML names; the caller decides where files come from.
pub type ReadText<'a> = &'a dyn Fn(&Path) -> std::io::Result<String>;
