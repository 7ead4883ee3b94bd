//! From a job's document to what an agent needs to run an attempt: signed folders, limits, words for the log.

use std::sync::Arc;

use neap_core::documents::{BlobPath, Distribution, InputDocument, JobDocument, OutputDocument};
use neap_core::job::{Attempt, Need};
use neap_core::{AttemptId, Capacity, NodeId, State};
use neap_ledger::Reader;
use neap_protocol::{AttemptSpec, BlobFolder, Input, Isolation, Limits, Output, Ranks};
use neap_storage::sas::{Grant, Permission, SasKey, Scope};

use crate::{addresses, limits};

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
    pub(crate) fn spec(
        &self,
        state: &State,
        node: NodeId,
        id: AttemptId,
        now_s: i64,
    ) -> Result<AttemptSpec, OrderError> {
        let job = state.jobs.get(&id.job).ok_or(OrderError::Gone)?;
        let attempt = job.attempt().filter(|a| a.phase_on(node).is_some()).ok_or(OrderError::Gone)?;
        let rank = attempt.rank_on(node).ok_or(OrderError::Gone)?;
        let node = state.nodes.get(&node).ok_or(OrderError::Gone)?;
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
        let sign = |at: &BlobPath, write: bool| self.sign(at, write, now_s);
        Ok(AttemptSpec {
            job_name: job.name.to_string(),
            experiment: document.experiment,
            command: document.command,
            environment_variables: document.environment_variables,
            code: document.code.as_ref().map(|at| sign(at, false)),
            inputs: document
                .inputs
                .iter()
                .map(|(name, input)| (name.clone(), self.input(input, now_s)))
                .collect(),
            outputs: document
                .outputs
                .iter()
                .map(|(name, output)| (name.clone(), self.output(output, now_s)))
                .collect(),
            artifacts: sign(&artifacts, true),
            timeout_ms: job.timeout_ms,
            limits: limits_of(job.need, given),
            isolation: self.settings.isolation,
            image: document.image,
            packages: document.packages,
            log_bytes_max: self.settings.log_bytes_max,
            preamble: document.preamble,
            ranks: (!attempt.ranks.is_empty() || document.distribution.is_some())
                .then(|| self.ranks(id, attempt, rank)),
            distribution: document.distribution.map(distribution),
        })
    }

    /// Which of the attempt's nodes this is, and where the others are.
    fn ranks(&self, id: AttemptId, attempt: &Attempt, rank: u32) -> Ranks {
        let nodes: Vec<NodeId> = attempt.nodes().collect();
        Ranks {
            rank,
            addresses: nodes.iter().map(|node| addresses::local(*node).to_string()).collect(),
            nodes: nodes.into_iter().map(|node| node.0).collect(),
            port: addresses::port(&self.settings.base_url, id),
            secret: self.sas.secret_for(&format!("ranks of attempt {id}")),
        }
    }

    fn input(&self, input: &InputDocument, now_s: i64) -> Input {
        match input {
            InputDocument::Literal { value } => Input::Literal { value: value.clone() },
            InputDocument::File { at } => Input::File { at: self.sign(at, false, now_s) },
            InputDocument::Folder { at } => Input::Folder { at: self.sign(at, false, now_s) },
        }
    }

    fn output(&self, output: &OutputDocument, now_s: i64) -> Output {
        match output {
            OutputDocument::File { at } => Output::File { at: self.sign(at, true, now_s) },
            OutputDocument::Folder { at } => Output::Folder { at: self.sign(at, true, now_s) },
        }
    }

    /// A URL for this folder or blob and nothing beside it.
    fn sign(&self, at: &BlobPath, write: bool, now_s: i64) -> BlobFolder {
        let folder = at.path.strip_suffix('/');
        let scope = match (at.path.as_str(), folder) {
            ("", _) => Scope::Container,
            (_, Some(folder)) => Scope::Directory(folder.into()),
            (blob, None) => Scope::Blob(blob.into()),
        };
        let mut permissions = vec![Permission::Read, Permission::List];
        if write {
            permissions.extend([Permission::Create, Permission::Write, Permission::Add]);
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
        }
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

/// The same in the agent's words.
fn distribution(asked: Distribution) -> neap_protocol::Distribution {
    use neap_protocol::Distribution as Wire;
    match asked {
        Distribution::Pytorch { processes_per_node } => Wire::Pytorch { processes_per_node },
        Distribution::Tensorflow { workers, parameter_servers } => {
            Wire::Tensorflow { workers, parameter_servers }
        }
        Distribution::Mpi { processes_per_node } => Wire::Mpi { processes_per_node },
        Distribution::Ray { port, include_dashboard, dashboard_port, head_arguments, worker_arguments } => {
            Wire::Ray { port, include_dashboard, dashboard_port, head_arguments, worker_arguments }
        }
    }
}
