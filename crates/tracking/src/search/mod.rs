//! Searching: MLflow's filter and order grammar, and from there to SQL. Every word of a user is a bound value; only
//! table and column names of ours become part of a statement.

mod filter;
mod pattern;
mod sql;

pub use filter::{parse_filter, parse_order};
pub(crate) use sql::{Subject, plan};

use neap_core::JobId;

use crate::entities::View;

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Where runs and models are looked for. Not used for experiments themselves.
    pub experiments: Vec<String>,
    pub filter: String,
    pub order_by: Vec<String>,
    pub view: View,
    pub limit: u32,
    pub token: Option<String>,
    /// Of runs: only this job's own run, and those that its token began.
    pub of_job: Option<JobId>,
}
