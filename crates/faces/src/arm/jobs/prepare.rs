//! Any job as the command that submits it, or everything that is wrong with it. Preparing changes nothing.

use neap_core::state::Workspace;
use neap_core::{Command, Refusal};
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
        for wanted in &self.serverless {
            serverless::ensure(app, caller, workspace, wanted).await?;
        }
        app.submit(caller, self.command, self.documents).await.map(drop)
    }

    /// The names of clusters that are made when it is submitted.
    pub fn clusters(&self, workspace: &Workspace) -> Vec<String> {
        self.serverless.iter().map(|wanted| wanted.cluster(workspace.id)).collect()
    }
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
            let good = whole.submit.problems.is_empty();
            let serverless = whole.serverless.into_iter().filter(|_| good).collect();
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
