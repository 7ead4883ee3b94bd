//! From a job's document to what an agent needs to run an attempt: signed folders, limits, words for the log.

use std::sync::Arc;

use neap_core::documents::{
    BlobPath, Delivery, Distribution, EnvironmentDocument, InputDocument, JobDocument, OutputDocument,
    ServiceKind,
};
use neap_core::job::{Attempt, Class, Job, Need};
use neap_core::{AttemptId, Capacity, NodeId, State, WorkspaceId};
use neap_identity::{RunClaim, RunTokens, Vault, derived_guid};
use neap_ledger::Reader;
use neap_protocol::{
    AttemptSpec, BlobFolder, CheckpointSpec, ContainerTerms, DiskTerms, Environment, How, Input, Isolation,
    Keep, Limits, Output, Ranks, RunTracking, Secret, ServiceSpec, checkpoint_of,
};
use neap_storage::foreign;
use neap_storage::sas::{Bound, Grant, Permission, SasKey, Scope};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::secrets::{SecretError, Secrets};
use crate::{addresses, limits};

#[derive(Clone, Debug)]
pub struct OrderSettings {
    /// `https://127.0.0.1:8443`, as agents reach it.
    pub base_url: String,
    pub isolation: Isolation,
    pub log_bytes_max: u64,
    /// Checkpoint folders are saved this often while their jobs run; 0: only when one is stopped.
    pub checkpoint_interval_ms: u64,
    /// What an attempt may take of its node's disk unless its job asks for less, and free bytes that jobs leave there.
    pub disk: DiskTerms,
    /// With it, a job's process is told where to track its run, and as whom.
    pub tracking: Option<TrackingOrders>,
    /// Opens the secrets that a job's environment variables refer to.
    pub vault: Arc<Vault>,
}

#[derive(Clone, Debug)]
pub struct TrackingOrders {
    /// Names the installation: ids of experiments follow from it.
    pub installation: String,
    pub tokens: Arc<RunTokens>,
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
    #[error("{0}")]
    Secret(#[from] SecretError),
}

impl OrderError {
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Gone | Self::Document(_) | Self::Secret(SecretError::Unreadable { .. }) => Class::System,
            Self::Secret(SecretError::Missing { .. }) => Class::InputData,
        }
    }
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
        // Every URL of this order names the attempt and the node, and dies with the attempt.
        let bound = Bound { job: id.job.0, attempt: id.number, node: Some(node.0) };
        let signer = Signer { orders: self, bound, now_s };
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
        let checkpoint = BlobPath { path: checkpoint_of(&job.name, rank), ..artifacts.clone() };
        let checkpoint = CheckpointSpec {
            at: signer.sign(&checkpoint, Access::Change),
            restore: id.number > 1,
            interval_ms: self.settings.checkpoint_interval_ms,
            after_failure: job.retry.as_deref().is_some_and(|retry| !retry.exit_codes.is_empty()),
        };
        let tracking = self.tracking(state, job, id, &document.experiment, now_s);
        let services = document
            .services_on(rank)
            .into_iter()
            .map(|(name, asked)| ServiceSpec {
                path: service_path(job.workspace, &job.name, rank, &name),
                what: service(asked.what),
                port: asked.port,
                name,
            })
            .collect();
        let environment = match document.environment {
            EnvironmentDocument::Build { at, dockerfile } => {
                Environment::Build { context: signer.sign(&at, Access::Read), dockerfile }
            }
            EnvironmentDocument::Image { image, packages } => Environment::Image { image, packages },
            EnvironmentDocument::Packages { packages } => Environment::Packages { packages },
            EnvironmentDocument::Nothing => match (document.image, document.packages) {
                (Some(image), packages) => Environment::Image { image, packages },
                (None, Some(packages)) => Environment::Packages { packages },
                (None, None) => Environment::Nothing,
            },
        };
        let (image, packages) = match &environment {
            Environment::Image { image, packages } => (Some(image.clone()), packages.clone()),
            Environment::Packages { packages } => (None, Some(packages.clone())),
            Environment::Nothing | Environment::Build { .. } => (None, None),
        };
        let secrets = Secrets { reader: &self.reader, vault: &self.settings.vault, workspace: job.workspace };
        let mut masked = Vec::new();
        let environment_variables = document
            .environment_variables
            .into_iter()
            .map(|(name, text)| Ok((name, secrets.fill(&text, &mut masked)?)))
            .collect::<Result<_, SecretError>>()?;
        Ok(AttemptSpec {
            job_name: job.name.to_string(),
            experiment: document.experiment,
            command: document.command,
            environment_variables,
            code: document.code.as_ref().map(|at| signer.sign(at, Access::Read)),
            inputs: document.inputs.iter().map(|(name, input)| (name.clone(), signer.input(input))).collect(),
            outputs: document
                .outputs
                .iter()
                .map(|(name, output)| (name.clone(), signer.output(output, id.number <= 1)))
                .collect(),
            artifacts: signer.sign(&artifacts, Access::Write),
            timeout_ms: job.timeout_ms,
            limits: limits_of(job.need, given),
            isolation: self.settings.isolation,
            image,
            packages,
            environment,
            container: ContainerTerms {
                required: document.container.required,
                shm_bytes: document.container.shm_bytes,
                args: document.container.args,
            },
            log_bytes_max: self.settings.log_bytes_max,
            preamble: self.preamble(document.preamble, document.disk_mb),
            ranks: (!attempt.ranks.is_empty() || document.distribution.is_some())
                .then(|| self.ranks(id, attempt, rank)),
            distribution: document.distribution.map(distribution),
            tracking,
            services,
            checkpoint: Some(checkpoint),
            count_bytes: is_apart(state, job),
            disk: self.disk(document.disk_mb),
            masked: masked.into_iter().map(Secret::new).collect(),
        })
    }

    /// As much as the job asks for, up to what the configuration allows.
    fn disk(&self, asked_mb: Option<u64>) -> DiskTerms {
        let allowed = self.settings.disk;
        let asked = asked_mb.map_or(u64::MAX, |mb| mb.saturating_mul(1 << 20));
        let most = if allowed.bytes_max == 0 { u64::MAX } else { allowed.bytes_max };
        let bytes_max = asked.min(most);
        DiskTerms { bytes_max: if bytes_max == u64::MAX { 0 } else { bytes_max }, ..allowed }
    }

    fn preamble(&self, mut lines: Vec<String>, asked_mb: Option<u64>) -> Vec<String> {
        let allowed_mb = self.disk(None).bytes_max >> 20;
        if let Some(asked) = asked_mb.filter(|asked| allowed_mb > 0 && *asked > allowed_mb) {
            lines.push(format!(
                "The job asks for {asked} MB of disk and gets {allowed_mb} MB, the most that one may have here \
                 (local.disk_mb_per_job)."
            ));
        }
        lines
    }

    /// A token that the attempt's own process may show, and where. Without one the job runs all the same.
    fn tracking(
        &self,
        state: &State,
        job: &Job,
        id: AttemptId,
        experiment: &str,
        now_s: i64,
    ) -> Option<RunTracking> {
        let settings = self.settings.tracking.as_ref()?;
        let workspace = state.workspaces.get(&job.workspace)?;
        let claim = RunClaim {
            sub: job.name.to_string(),
            workspace: workspace.id.0,
            job: job.id.0,
            attempt: id.number,
            exp: now_s + limits::RUN_TOKEN_S,
        };
        let token = match settings.tokens.issue(&claim) {
            Ok(token) => Secret::new(token),
            Err(error) => {
                tracing::error!(job = %job.name, %error, "the job gets no token for its metrics");
                return None;
            }
        };
        let scope = format!(
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.MachineLearningServices/workspaces/{}",
            workspace.subscription, workspace.group, workspace.name
        );
        let number = workspace.id.to_string();
        Some(RunTracking {
            uri: format!("{}/mlflow/v1.0{scope}", self.settings.base_url),
            token,
            token_expires_s: claim.exp,
            experiment_id: neap_tracking::experiment_id(&settings.installation, workspace.id, experiment),
            subscription: workspace.subscription.to_string(),
            resource_group: workspace.group.to_string(),
            workspace: workspace.name.to_string(),
            workspace_id: derived_guid(&[&settings.installation, "workspace", &number]),
            server: self.settings.base_url.clone(),
            root: root_of(state, job),
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
            secret: Secret::new(self.sas.secret_for(&format!("ranks of attempt {id}"))),
        }
    }

    /// What makes the URLs of a node's attempts valid for the next minutes: it lasts as long as the lease that it is sent
    /// with, and never longer than [`limits::URL_PASS_MS_MAX`].
    pub(crate) fn pass(&self, node: NodeId, lease_ttl_ms: u64, now_s: i64) -> Secret {
        Secret::new(self.sas.pass(node.0, now_s.saturating_add(pass_lasts_s(lease_ttl_ms))))
    }
}

fn pass_lasts_s(lease_ttl_ms: u64) -> i64 {
    let lasts_ms = lease_ttl_ms.saturating_add(limits::LEASE_MARGIN_MS).min(limits::URL_PASS_MS_MAX);
    i64::try_from(lasts_ms.div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// Signs the URLs of one order.
struct Signer<'a> {
    orders: &'a AttemptOrders,
    bound: Bound,
    now_s: i64,
}

impl Signer<'_> {
    fn input(&self, input: &InputDocument) -> Input {
        let sign = |at: &BlobPath, how: Delivery| self.sign(at, access_for(how));
        match input {
            InputDocument::Literal { value } => Input::Literal { value: value.clone() },
            InputDocument::File { at, how, query } => {
                // In the query of our own address, which no log shows.
                let access = access_for(*how);
                Input::File { at: self.sign_with(at, access, query.clone()), how: how_of(*how) }
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
    fn output(&self, output: &OutputDocument, first: bool) -> Output {
        let more = output.more();
        if let Some(value) = &more.direct {
            return Output::Direct { value: value.clone() };
        }
        let existing = more.how == Delivery::ReadWrite && !(more.own_place && first);
        let keep = Keep { existing, required: more.register.is_some() };
        let access = if existing { Access::Change } else { Access::Write };
        let at = self.sign(output.at(), access);
        match output {
            OutputDocument::File { .. } => Output::File { at, keep },
            OutputDocument::Folder { .. } => Output::Folder { at, keep },
        }
    }

    /// A URL for this folder or blob and nothing beside it.
    fn sign(&self, at: &BlobPath, access: Access) -> BlobFolder {
        self.sign_with(at, access, None)
    }

    fn sign_with(&self, at: &BlobPath, access: Access, web_query: Option<String>) -> BlobFolder {
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
            // The node's pass says until when.
            expires_s: self.now_s,
            bound: Some(self.bound),
            web_query,
        };
        BlobFolder {
            container_url: format!(
                "{}/{}.blob.core.windows.net/{}",
                self.orders.settings.base_url, at.account, at.container
            ),
            prefix: at.path.clone(),
            sas: self.orders.sas.sign(&grant, self.now_s),
            whole: foreign::is_foreign(&at.container),
        }
    }
}

/// The name of the outermost job that it is part of.
fn root_of(state: &State, job: &Job) -> Option<String> {
    let mut family = state.families.get(&job.family?)?;
    while let Some(around) = family.family.and_then(|id| state.families.get(&id)) {
        family = around;
    }
    Some(family.name.to_string())
}

/// What an attempt may do with a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// Also delete.
    Change,
}

fn access_for(how: Delivery) -> Access {
    match how {
        Delivery::ReadWrite => Access::Change,
        Delivery::Copy | Delivery::ReadOnly | Delivery::Evaluated => Access::Read,
    }
}

fn how_of(how: Delivery) -> How {
    match how {
        Delivery::Copy => How::Copy,
        Delivery::ReadOnly => How::ReadOnly,
        Delivery::ReadWrite => How::ReadWrite,
        Delivery::Evaluated => How::Evaluated,
    }
}

/// Whether a job's cluster is in another location than its workspace's storage.
fn is_apart(state: &State, job: &Job) -> bool {
    let cluster = state.clusters.get(&job.cluster).map(|cluster| &cluster.location);
    let workspace = state.workspaces.get(&job.workspace).map(|workspace| &workspace.location);
    cluster != workspace
}

/// A share is a hard limit; a whole node gives all it truly has.
fn limits_of(need: Need, given: Capacity) -> Limits {
    let granted = match need {
        Need::Whole => given,
        Need::Share(share) => share.min(given),
    };
    Limits { cpus_milli: granted.cpus_milli, memory_mb: granted.memory_mb, gpus: granted.gpus }
}

/// The path under which the server shows a service: nobody but the server decides it, and the service is told.
pub fn service_path(workspace: WorkspaceId, job: &str, rank: u32, service: &str) -> String {
    let job = utf8_percent_encode(job, SEGMENT);
    format!("/services/{workspace}/{job}/{rank}/{}/", utf8_percent_encode(service, SEGMENT))
}

/// What may stand in a segment of a path as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The same in the agent's words.
fn service(asked: ServiceKind) -> neap_protocol::ServiceKind {
    use neap_protocol::ServiceKind as Wire;
    match asked {
        ServiceKind::Ssh { public_keys } => Wire::Ssh { public_keys },
        ServiceKind::TensorBoard { log_dir } => Wire::TensorBoard { log_dir },
        ServiceKind::JupyterLab => Wire::JupyterLab,
        ServiceKind::VsCode => Wire::VsCode,
        ServiceKind::Custom => Wire::Custom,
        ServiceKind::RayDashboard => Wire::RayDashboard,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_lasts_as_long_as_the_lease_and_minutes_at_most() {
        for (lease_ttl_ms, expected_s) in
            [(0, 2), (5_000, 7), (5_001, 8), (120_000, 122), (598_000, 600), (598_001, 600), (u64::MAX, 600)]
        {
            assert_eq!(pass_lasts_s(lease_ttl_ms), expected_s, "{lease_ttl_ms}");
        }
    }
}
