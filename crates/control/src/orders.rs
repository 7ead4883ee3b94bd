//! From a job's document to what an agent needs to run an attempt: signed folders, limits, words for the log.

use std::sync::Arc;

use neap_core::documents::{BlobPath, Delivery, InputDocument, JobDocument, OutputDocument};
use neap_core::job::Need;
use neap_core::{AttemptId, Capacity, State};
use neap_ledger::Reader;
use neap_protocol::{AttemptSpec, BlobFolder, How, Input, Isolation, Keep, Limits, Output};
use neap_storage::foreign::{self, WEB_QUERY};
use neap_storage::sas::{Grant, Permission, SasKey, Scope};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::limits;

#[derive(Clone, Debug)]
pub struct OrderSettings {
    /// `https://127.0.0.1:8443`, as agents reach it.
    pub base_url: String,
    pub isolation: Isolation,
    pub log_bytes_max: u64,
}

#[derive(Clone, Debug)]
pub struct AttemptOrders {
    pub settings: Arc<OrderSettings>,
    pub sas: SasKey,
    pub reader: Reader,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("the attempt is no longer wanted")]
    Gone,
    #[error("the job's definition was erased or cannot be read: {0}")]
    Document(String),
}

impl AttemptOrders {
    pub(crate) fn spec(&self, state: &State, id: AttemptId, now_s: i64) -> Result<AttemptSpec, OrderError> {
        let job = state.jobs.get(&id.job).ok_or(OrderError::Gone)?;
        let node = job.attempt().and_then(|a| state.nodes.get(&a.node)).ok_or(OrderError::Gone)?;
        let body = self.reader.document(&job.document).map_err(|e| OrderError::Document(e.to_string()))?;
        let body = body.ok_or_else(|| OrderError::Document("it is not there".into()))?;
        let document: JobDocument =
            serde_json::from_slice(&body).map_err(|e| OrderError::Document(e.to_string()))?;
        let given = node.actual.unwrap_or(node.nominal);
        let artifacts = BlobPath {
            account: format!("neapst{}", job.workspace),
            container: "azureml".into(),
            path: format!("ExperimentRun/dcid.{}/", job.name),
        };
        Ok(AttemptSpec {
            job_name: job.name.to_string(),
            experiment: document.experiment,
            command: document.command,
            environment_variables: document.environment_variables,
            code: document.code.as_ref().map(|at| self.sign(at, Access::Read, now_s)),
            inputs: document
                .inputs
                .iter()
                .map(|(name, input)| (name.clone(), self.input(input, now_s)))
                .collect(),
            outputs: document
                .outputs
                .iter()
                .map(|(name, output)| (name.clone(), self.output(output, id.number <= 1, now_s)))
                .collect(),
            artifacts: self.sign(&artifacts, Access::Write, now_s),
            timeout_ms: job.timeout_ms,
            limits: limits_of(job.need, given),
            isolation: self.settings.isolation,
            image: document.image,
            packages: document.packages,
            log_bytes_max: self.settings.log_bytes_max,
            preamble: document.preamble,
        })
    }

    fn input(&self, input: &InputDocument, now_s: i64) -> Input {
        let sign = |at: &BlobPath, how: Delivery| {
            let access = if how == Delivery::ReadWrite { Access::Change } else { Access::Read };
            self.sign(at, access, now_s)
        };
        match input {
            InputDocument::Literal { value } => Input::Literal { value: value.clone() },
            InputDocument::File { at, how, query } => {
                let mut at = sign(at, *how);
                if let Some(query) = query {
                    // In the query of our own address, which no log shows.
                    at.sas.push_str(&format!("&{WEB_QUERY}={}", utf8_percent_encode(query, NON_ALPHANUMERIC)));
                }
                Input::File { at, how: how_of(*how) }
            }
            InputDocument::Folder { at, how } => Input::Folder { at: sign(at, *how), how: how_of(*how) },
            InputDocument::Any { at, how } => {
                let path = at.path.trim_end_matches('/');
                let file = BlobPath { path: path.into(), ..at.clone() };
                let below = BlobPath { path: format!("{path}/"), ..at.clone() };
                Input::Any { at: sign(&file, *how), below: sign(&below, *how), how: how_of(*how) }
            }
        }
    }

    /// `first` is whether nothing can have been stored before this attempt.
    fn output(&self, output: &OutputDocument, first: bool, now_s: i64) -> Output {
        let more = output.more();
        if let Some(value) = &more.direct {
            return Output::Direct { value: value.clone() };
        }
        let existing = more.how == Delivery::ReadWrite && !(more.own_place && first);
        let keep = Keep { existing, required: more.register.is_some() };
        let access = if existing { Access::Change } else { Access::Write };
        let at = self.sign(output.at(), access, now_s);
        match output {
            OutputDocument::File { .. } => Output::File { at, keep },
            OutputDocument::Folder { .. } => Output::Folder { at, keep },
        }
    }

    /// A URL for this folder or blob and nothing beside it.
    fn sign(&self, at: &BlobPath, access: Access, now_s: i64) -> BlobFolder {
        let folder = at.path.strip_suffix('/');
        let scope = match (at.path.as_str(), folder) {
            ("", _) => Scope::Container,
            (_, Some(folder)) => Scope::Directory(folder.into()),
            (blob, None) => Scope::Blob(blob.into()),
        };
        let mut permissions = vec![Permission::Read, Permission::List];
        if access != Access::Read {
            permissions.extend([Permission::Create, Permission::Write, Permission::Add]);
        }
        if access == Access::Change {
            permissions.push(Permission::Delete);
        }
        let grant = Grant {
            account: at.account.clone(),
            container: at.container.clone(),
            scope,
            permissions,
            starts_s: None,
            expires_s: now_s + limits::ATTEMPT_SAS_S,
        };
        BlobFolder {
            container_url: format!(
                "{}/{}.blob.core.windows.net/{}",
                self.settings.base_url, at.account, at.container
            ),
            prefix: at.path.clone(),
            sas: self.sas.sign(&grant, now_s),
            whole: foreign::is_foreign(&at.container),
        }
    }
}

/// What an attempt may do with a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// Also delete.
    Change,
}

fn how_of(how: Delivery) -> How {
    match how {
        Delivery::Copy => How::Copy,
        Delivery::ReadOnly => How::ReadOnly,
        Delivery::ReadWrite => How::ReadWrite,
        Delivery::Evaluated => How::Evaluated,
    }
}

/// A share is a hard limit; a whole node gives all it truly has.
fn limits_of(need: Need, given: Capacity) -> Limits {
    let granted = match need {
        Need::Whole => given,
        Need::Share(share) => share.min(given),
    };
    Limits { cpus_milli: granted.cpus_milli, memory_mb: granted.memory_mb, gpus: granted.gpus }
}
