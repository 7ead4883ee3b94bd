//! Any job as the command that submits it, or everything that is wrong with it. Preparing changes nothing.

use neap_core::command::{NewMember, NewMemberKind};
use neap_core::decide::decide;
use neap_core::family::FamilyKind;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Millis, Problem, Refusal};
use neap_ledger::Document;
use serde_json::Value;

use super::serverless::{self, Serverless};
use super::{pipeline, sweep, write};
use crate::app::App;
use crate::ask::Caller;

pub(crate) struct Prepared {
    pub command: Command,
    pub documents: Vec<Document>,
    /// Clusters that Neap makes for it.
    pub(super) serverless: Vec<Serverless>,
}

impl Prepared {
    pub async fn submit(self, app: &App, caller: &Caller, workspace: &Workspace) -> Result<(), Refusal> {
        if !self.problems().is_empty()
            && let Some(refusal) = self.refusal(app, workspace, app.now())
        {
            return Err(refusal);
        }
        for wanted in &self.serverless {
            serverless::ensure(app, caller, workspace, wanted).await?;
        }
        app.submit(caller, self.command, self.documents).await.map(drop)
    }

    /// Why it would be refused now, if it would. That a cluster is not there which comes with the job is no reason.
    pub fn refusal(&self, app: &App, workspace: &Workspace, now: Millis) -> Option<Refusal> {
        let mut refusal = decide(&app.state(), self.command.clone(), now).err()?;
        let made: Vec<String> = self.serverless.iter().map(|wanted| wanted.cluster(workspace.id)).collect();
        let comes = |problem: &Problem| {
            problem.code == Code::ComputeNotFound && made.iter().any(|name| problem.message.contains(name))
        };
        refusal.problems.retain(|problem| !comes(problem));
        (!refusal.problems.is_empty()).then_some(refusal)
    }

    /// What is wrong with it in itself.
    fn problems(&self) -> &[Problem] {
        match &self.command {
            Command::SubmitJob(submit) => &submit.problems,
            Command::SubmitFamily(submit) => &submit.problems,
            _ => &[],
        }
    }
}

/// What a plan of a job looks at: the commands that submitting it would mean, and what is left out of them.
#[derive(Debug)]
pub(crate) struct Planned {
    pub commands: Vec<Command>,
    pub notes: Vec<String>,
}

/// The same as [`prepare`], for a forecast. What is not on the server yet because nobody has submitted it is a draft, or is
/// left out by the client.
pub(crate) async fn planned(
    app: &App,
    owner: &str,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<Planned, Refusal> {
    let prepared = prepare(app, owner, workspace, name, body).await?;
    let mut notes = Vec::new();
    let mut commands = Vec::new();
    for wanted in &prepared.serverless {
        commands.extend(serverless::put(app, workspace, wanted)?.map(|(put, _)| Command::PutCluster(put)));
    }
    let Prepared { command, documents, .. } = prepared;
    let wave = match &command {
        Command::SubmitFamily(submit) if submit.problems.is_empty() => {
            let driven = |member: &NewMember| {
                matches!(member.what, NewMemberKind::Family { kind: FamilyKind::Driven, .. })
            };
            let lone = submit.members.len() == 1;
            if !lone && submit.members.iter().any(driven) {
                notes.push("The trials of sweeps and the workers of parallel steps are not counted.".into());
            }
            lone && submit.members.iter().any(driven)
        }
        _ => false,
    };
    commands.push(command);
    if wave {
        let trials =
            sweep::first_wave(app, owner, workspace, (name, app.state().next.job), body, &documents)?;
        notes.push(format!("Of the sweep only its first {} trials are counted.", trials.len()));
        commands.extend(trials);
    }
    Ok(Planned { commands, notes })
}

pub(crate) async fn prepare(
    app: &App,
    owner: &str,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<Prepared, Refusal> {
    let kind = body["properties"]["jobType"].as_str().unwrap_or("").to_ascii_lowercase();
    match kind.as_str() {
        "pipeline" => {
            let whole = pipeline::read_whole(app, owner, workspace, name, body)?;
            let serverless = whole.serverless.into_iter().collect();
            let command = Command::SubmitFamily(whole.submit);
            Ok(Prepared { command, documents: whole.documents, serverless })
        }
        "sweep" => {
            let (command, documents) = sweep::prepare(app, owner, workspace, name, body)?;
            Ok(Prepared { command, documents, serverless: Vec::new() })
        }
        _ => write::prepare(app, owner, workspace, name, body).await,
    }
}
