//! Who is let in: the owner, by an access token or (as MLflow's clients can keep it in a variable) by the installation's
//! secret as a password; and a job's own process, by the token of its attempt, in its own workspace only.

use axum::http::{HeaderMap, header};
use base64::{Engine, engine::general_purpose::STANDARD};
use neap_core::JobId;
use neap_core::state::Workspace;
use neap_identity::RunClaim;

use super::faults::Fault;
use super::{Asked, jobs};
use crate::app::App;
use crate::audience;

/// Shown as the user of runs that were begun with the secret.
const OWNER: &str = "owner";

#[derive(Clone, Debug)]
pub(super) struct Access {
    pub actor: String,
    run: Option<RunClaim>,
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
}

fn by_password(app: &App, credential: &str) -> Result<Access, Fault> {
    let text =
        STANDARD.decode(credential).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let (user, password) = text.split_once(':').unwrap_or((&text, ""));
    if !app.secret.matches(password) {
        return Err(Fault::unauthenticated(
            "The password is not this installation's secret. `eval \"$(neap env)\"` sets MLFLOW_TRACKING_PASSWORD to it.",
        ));
    }
    let user = if user.is_empty() || user == "neap" { OWNER } else { user };
    Ok(Access { actor: user.to_owned(), run: None })
}

/// The token is good as long as its attempt is the job's, whatever its own end says.
fn by_run_token(app: &App, token: &str) -> Result<Access, Fault> {
    let claim = app
        .run_tokens
        .verify(token, app.now_s())
        .map_err(|e| Fault::unauthenticated(format!("The job's token is refused: {e}.")))?;
    let state = app.state();
    let job = state.jobs.get(&JobId(claim.job)).filter(|job| job.attempts_made == claim.attempt);
    let Some(job) = job else {
        return Err(Fault::unauthenticated(format!(
            "The token of the job '{}' has expired: its attempt {} is over.",
            claim.sub, claim.attempt
        )));
    };
    Ok(Access { actor: job.owner.to_string(), run: Some(claim) })
}
