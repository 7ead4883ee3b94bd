//! Who is let in: the owner, by an access token or (as MLflow's clients can keep it in a variable) by the installation's
//! secret as a password; and a job's own process, by the token of its attempt, in its own workspace only.
//!
//! The owner may do everything. What a job's token may do is in the table of `rights.rs`; here is what each right means.

use axum::http::{HeaderMap, header};
use base64::{Engine, engine::general_purpose::STANDARD};
use neap_core::JobId;
use neap_core::documents::JobDocument;
use neap_core::state::Workspace;
use neap_identity::RunClaim;
use neap_ledger::JobRow;
use neap_storage::Bound;

use super::faults::Fault;
use super::given::Given;
use super::rights::{Operation, Right, Row};
use super::{Asked, artifacts, experiments, jobs};
use crate::app::{App, unreadable};
use crate::audience;
use crate::blob::is_live;

/// Shown as the user of runs that were begun with the secret.
const OWNER: &str = "owner";
/// The user that goes with the secret as a password; `neap env` sets it.
const USER: &str = "neap";
/// The tag by which MLflow nests runs.
const PARENT: &str = "mlflow.parentRunId";

#[derive(Clone, Debug)]
pub(super) struct Access {
    pub actor: String,
    run: Option<RunClaim>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub app: &'a App,
    pub workspace: &'a Workspace,
    pub given: &'a Given,
    /// What stands in the path.
    pub captured: &'a [String],
}

impl Access {
    pub fn of(app: &App, headers: &HeaderMap, base: &str) -> Result<Self, Fault> {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
        let (scheme, credential) = shown.split_once(' ').unwrap_or((shown, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return by_password(app, credential.trim());
        }
        if scheme.eq_ignore_ascii_case("bearer") && app.run_tokens.is_one(credential.trim()) {
            return by_run_token(app, credential.trim());
        }
        let caller = audience::authenticate(app, headers, base)?;
        Ok(Self { actor: caller.actor, run: None })
    }

    /// A job's token opens its own workspace.
    pub fn allow(&self, workspace: &Workspace) -> Result<(), Fault> {
        match &self.run {
            Some(claim) if claim.workspace != workspace.id.0 => Err(Fault::denied(format!(
                "The token of the job '{}' is for its own workspace and does not open '{}'.",
                claim.sub, workspace.name
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// A job that asks is a run from now on, also before it has logged anything.
    pub fn adopt(&self, asked: &Asked) -> Result<(), Fault> {
        match &self.run {
            Some(claim) => jobs::known(asked, &claim.sub),
            None => Ok(()),
        }
    }

    /// The job whose token this is.
    pub fn job(&self) -> Option<JobId> {
        self.run.as_ref().map(|claim| JobId(claim.job))
    }

    /// The run that the job is.
    pub fn own_run(&self) -> Option<&str> {
        self.run.as_ref().map(|claim| claim.sub.as_str())
    }

    /// What is signed on behalf of a job dies with its attempt.
    pub fn bound(&self) -> Option<Bound> {
        self.run.as_ref().map(|claim| Bound { job: claim.job, attempt: claim.attempt, node: None })
    }

    /// Whether the caller may do this. It asks the store, which blocks.
    pub fn permit(&self, row: Row, call: Call<'_>) -> Result<(), Fault> {
        let Some(claim) = &self.run else { return Ok(()) };
        let job = Job { claim, call };
        let given = call.given;
        let captured = |at: usize| call.captured.get(at).map_or("", String::as_str);
        match row.right {
            // `search` cuts the two lists down.
            Right::Everybody | Right::ReadModel | Right::ListRuns | Right::ListExperiments => Ok(()),
            Right::ReadExperiment => job.reads_experiment(row.operation),
            Right::ReadRun => job.reads_run(given.run_id()?),
            Right::ReadRuns => given.texts("run_ids").iter().try_for_each(|run| job.reads_run(run)),
            Right::BeginRun => {
                job.works_in(given.text("experiment_id"))?;
                job.parents_are_its_own()
            }
            Right::WriteRun => job.writes(given.run_id()?),
            Right::WriteOutputs => {
                job.writes(given.run_id()?)?;
                let models = given.list("models");
                models.iter().filter_map(|model| model.text("model_id")).try_for_each(|id| job.made_model(id))
            }
            Right::BeginModel => {
                job.works_in(given.text("experiment_id"))?;
                given.text("source_run_id").map_or(Ok(()), |run| job.has_run(run, "write to"))
            }
            Right::WriteModel => job.made_model(captured(0)),
            Right::ReadFile => {
                let path = match row.operation {
                    Operation::ListFiles => given.text("path").unwrap_or_default(),
                    _ => captured(0),
                };
                match artifacts::owner_of(path)? {
                    artifacts::Owner::Run(run) => job.reads_run(run),
                    artifacts::Owner::Model(_) => Ok(()),
                }
            }
            Right::WriteFile => {
                let path = match row.operation {
                    Operation::WriteParts => captured(1),
                    _ => captured(0),
                };
                match artifacts::owner_of(path)? {
                    artifacts::Owner::Run(run) => job.has_run(run, "write files of"),
                    artifacts::Owner::Model(id) => job.made_model(id),
                }
            }
            Right::OwnerOnly => Err(job.denied("create or change experiments")),
        }
    }

    /// The experiment that the job is in: the only one that it is shown.
    pub fn own_experiment(&self, app: &App, workspace: &Workspace) -> Result<Option<String>, Fault> {
        let Some(claim) = &self.run else { return Ok(None) };
        let given = Given::default();
        Job { claim, call: Call { app, workspace, given: &given, captured: &[] } }.experiment().map(Some)
    }
}

/// A job that asks for something.
struct Job<'a> {
    claim: &'a RunClaim,
    call: Call<'a>,
}

impl Job<'_> {
    fn denied(&self, what: &str) -> Fault {
        Fault::denied(format!(
            "The token of the job '{}' may not {what}. A job reads and writes its own run, and the runs and models that it makes. Do this from outside, with an access token.",
            self.claim.sub
        ))
    }

    fn row(&self) -> Result<JobRow, Fault> {
        let row = self.call.app.control.reader().job_by_id(JobId(self.claim.job)).map_err(unreadable)?;
        row.ok_or_else(|| Fault::unauthenticated(format!("The job '{}' was deleted.", self.claim.sub)))
    }

    /// Whether it is this job's own run, or its token began it.
    fn is_its_own(&self, run: &str) -> Result<bool, Fault> {
        if run == self.claim.sub {
            return Ok(true);
        }
        let seen = self.call.app.tracking.seen(self.call.workspace.id, run)?;
        Ok(seen.is_some_and(|seen| seen.job.is_none() && seen.made_by == Some(JobId(self.claim.job))))
    }

    fn has_run(&self, run: &str, what: &str) -> Result<(), Fault> {
        if self.is_its_own(run)? { Ok(()) } else { Err(self.denied(&format!("{what} the run '{run}'"))) }
    }

    /// Also what the job is a part of: the pipeline or sweep, and what that is a part of.
    fn reads_run(&self, run: &str) -> Result<(), Fault> {
        if self.is_its_own(run)? {
            return Ok(());
        }
        let mut around = jobs::parent_of(self.call.app, &self.row()?)?;
        while let Some(parent) = around {
            if parent.name == run {
                return Ok(());
            }
            around = jobs::parent_of(self.call.app, &parent)?;
        }
        Err(self.denied(&format!("read the run '{run}'")))
    }

    /// Writes to a run, and to the models and parents that the request names with it.
    fn writes(&self, run: &str) -> Result<(), Fault> {
        self.has_run(run, "write to")?;
        self.parents_are_its_own()?;
        let given = self.call.given;
        let metrics = given.list("metrics");
        let models =
            metrics.iter().filter_map(|metric| metric.text("model_id")).chain(given.text("model_id"));
        models.into_iter().try_for_each(|id| self.made_model(id))
    }

    /// A run cannot be made to look like a child of somebody else's.
    fn parents_are_its_own(&self) -> Result<(), Fault> {
        let given = self.call.given;
        let single = given.text("key").map(|key| (key.to_owned(), given.value()));
        let tags = given.pairs("tags").into_iter().chain(single);
        for (_, parent) in tags.filter(|(key, _)| key == PARENT) {
            self.has_run(&parent, "begin runs below")?;
        }
        Ok(())
    }

    fn made_model(&self, id: &str) -> Result<(), Fault> {
        let model = self.call.app.tracking.model(self.call.workspace.id, id)?;
        if self.is_its_own(&model.source_run)? {
            return Ok(());
        }
        Err(self.denied(&format!("change the logged model '{id}' or its files, which another run made")))
    }

    fn experiment(&self) -> Result<String, Fault> {
        let document: JobDocument = self.call.app.document(&self.row()?.document)?;
        Ok(jobs::experiment_of(self.call.app, self.call.workspace, &document))
    }

    /// Runs and models go to the job's own experiment.
    fn works_in(&self, experiment: Option<&str>) -> Result<(), Fault> {
        let call = self.call;
        let asked = experiments::resolve_in(call.app, call.workspace, experiment.unwrap_or("0"))?;
        if asked == self.experiment()? {
            return Ok(());
        }
        Err(self.denied(&format!("begin runs or models in the experiment '{asked}', which is not its own")))
    }

    fn reads_experiment(&self, operation: Operation) -> Result<(), Fault> {
        let (call, own) = (self.call, self.experiment()?);
        if operation == Operation::GetExperimentByName {
            let name = call.given.need("experiment_name")?;
            let found = call.app.tracking.experiment(call.workspace.id, &own)?;
            let is_own = jobs::experiment_named(call.app, call.workspace, name) == own
                || found.is_some_and(|found| found.name == name);
            // As for one that is not there: clients ask by name before they create, and are told why they cannot.
            let none =
                || format!("There is no experiment '{name}' that the job '{}' may read.", self.claim.sub);
            return if is_own { Ok(()) } else { Err(Fault::not_found(none())) };
        }
        let asked = experiments::resolve_in(call.app, call.workspace, call.given.need("experiment_id")?)?;
        if asked == own { Ok(()) } else { Err(self.denied(&format!("read the experiment '{asked}'"))) }
    }
}

fn by_password(app: &App, credential: &str) -> Result<Access, Fault> {
    let text =
        STANDARD.decode(credential).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let (user, password) = text.split_once(':').unwrap_or((&text, ""));
    // Both are looked at, so that a wrong user takes as long as a wrong password.
    let (is_user, is_password) = (user == USER, app.secret.matches(password));
    if !(is_user && is_password) {
        return Err(Fault::unauthenticated(format!(
            "The user is not '{USER}', or the password is not this installation's secret. `eval \"$(neap env)\"` sets MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD to them.",
        )));
    }
    Ok(Access { actor: OWNER.to_owned(), run: None })
}

/// The token is good as long as its attempt is the job's current one and has not ended, whatever its own end says.
fn by_run_token(app: &App, token: &str) -> Result<Access, Fault> {
    let claim = app
        .run_tokens
        .verify(token, app.now_s())
        .map_err(|e| Fault::unauthenticated(format!("The job's token is refused: {e}.")))?;
    let state = app.state();
    let bound = Bound { job: claim.job, attempt: claim.attempt, node: None };
    let job = state.jobs.get(&JobId(claim.job)).filter(|_| is_live(&state, bound));
    let Some(job) = job else {
        return Err(Fault::unauthenticated(format!(
            "The token of the job '{}' has expired: its attempt {} is over.",
            claim.sub, claim.attempt
        )));
    };
    Ok(Access { actor: job.owner.to_string(), run: Some(claim) })
}
