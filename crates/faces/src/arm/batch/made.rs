//! What Neap registers for a deployment: the component of its step, and, for an MLflow model without a scoring script,
//! the script and an environment made of the model's own requirements. Each is named after its content, so that doing it
//! again changes nothing.

use neap_core::documents::{AssetDocument, BlobPath};
use neap_core::state::Workspace;
use neap_core::{Code, Command, Problem, Refusal};
use neap_storage::{BlobAddress, foreign};
use serde_json::{Value, json};

use super::job;
use crate::app::{self, App, unreadable};
use crate::arm::{jobs, paths};
use crate::ask::Caller;
use crate::limits;
use crate::workspace_files::{self, ARTIFACT_CONTAINER};

const SCORER: &str = include_str!("mlflow_score.py");
const SCORER_FILE: &str = "score.py";
/// Where an MLflow model says what it needs.
const REQUIREMENTS: &str = "conda.yaml";

/// Somebody who registers something in a workspace.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub app: &'a App,
    pub caller: &'a Caller,
    pub workspace: &'a Workspace,
}

impl Owner<'_> {
    /// The step's component; its id.
    pub async fn component(self, spec: &Value) -> Result<String, Refusal> {
        let version = job::hash(spec.to_string().as_bytes());
        self.register(
            ("components", "component"),
            "azureml_anonymous",
            &version,
            json!({"componentSpec": spec}),
        )
        .await
    }

    /// The scoring script and environment for an MLflow model that comes with neither, under the names that a
    /// deployment's properties have; or why it cannot do without.
    pub async fn for_mlflow(
        self,
        properties: &Value,
        model: &job::Model,
    ) -> Result<Result<Value, Problem>, Refusal> {
        let environment = match properties["environmentId"].as_str() {
            Some(id) => id.to_owned(),
            None => match self.requirements(model).await? {
                Ok(text) => {
                    let content =
                        json!({"condaFile": text, "osType": "Linux", "environmentType": "UserCreated"});
                    let version = job::hash(text.as_bytes());
                    let name = "CliV2AnonymousEnvironment";
                    self.register(("environments", "environment"), name, &version, content).await?
                }
                Err(problem) => return Ok(Err(problem)),
            },
        };
        let code = self.scorer().await?;
        Ok(Ok(json!({
            "environmentId": environment,
            "codeConfiguration": {"codeId": code, "scoringScript": SCORER_FILE},
        })))
    }

    async fn scorer(self) -> Result<String, Refusal> {
        let hash = job::hash(SCORER.as_bytes());
        let account = workspace_files::account(self.workspace.id);
        let folder = format!("neap/batch/{hash}");
        let at = BlobPath {
            account: account.clone(),
            container: ARTIFACT_CONTAINER.into(),
            path: format!("{folder}/{SCORER_FILE}"),
        };
        workspace_files::put_if_absent(self.app, at, SCORER.as_bytes()).await?;
        let base = self.app.base_url.trim_end_matches('/');
        let uri = format!("{base}/{account}/{ARTIFACT_CONTAINER}/{folder}");
        self.register(("codes", "code"), "neap-mlflow-scorer", &hash, json!({"codeUri": uri})).await
    }

    async fn requirements(self, model: &job::Model) -> Result<Result<String, Problem>, Refusal> {
        let place = "properties.environmentId";
        let named = |why: &str| {
            let message = format!("{why}; name an environment that has mlflow and what the model needs.");
            Ok(Err(Problem::new(Code::EnvironmentNotFound, message).at(place)))
        };
        let at = match jobs::place_of_model(self.app, self.workspace, &model.id, "properties.model.assetId")?
        {
            Ok(at) => at,
            Err(problem) => return Ok(Err(problem)),
        };
        if foreign::is_foreign(&at.container) {
            return named("The model does not lie in this server's storage, so its conda.yaml is not read");
        }
        let path = format!("{}/{REQUIREMENTS}", at.path.trim_end_matches('/'));
        let address =
            BlobAddress::new(&at.account, &at.container, &path).map_err(workspace_files::storage)?;
        let bytes = workspace_files::read_piece(self.app, address, 0).await?;
        if bytes.len() as u64 >= limits::LOG_CHUNK_BYTES {
            return named("The model's conda.yaml is too large to be read");
        }
        match String::from_utf8(bytes) {
            Ok(text) if !text.trim().is_empty() => Ok(Ok(text)),
            Ok(_) => named("The model has no conda.yaml that says what it needs"),
            Err(_) => named("The model's conda.yaml is not text"),
        }
    }

    /// Puts an asset that never changes, unless it is there; its id.
    async fn register(
        self,
        (kinds, kind): (&str, &str),
        name: &str,
        version: &str,
        mut content: Value,
    ) -> Result<String, Refusal> {
        let Self { app, caller, workspace } = self;
        let id = paths::child_id(workspace, &format!("{kinds}/{name}/versions/{version}"));
        let there = app.control.reader().asset(workspace.id, kind, name, version).map_err(unreadable)?;
        if there.is_some() {
            return Ok(id);
        }
        for (key, value) in [
            ("isAnonymous", json!(true)),
            ("isArchived", json!(false)),
            ("tags", json!({})),
            ("properties", json!({})),
            ("provisioningState", json!("Succeeded")),
        ] {
            content[key] = value;
        }
        let document = AssetDocument {
            properties: content,
            created_by: caller.actor.clone(),
            created_ms: app.now().0,
            sealed_secret: None,
        };
        let stored = app::document(&document)?;
        let command = Command::PutAsset {
            workspace: workspace.id,
            kind: kind.into(),
            name: name.into(),
            version: version.into(),
            document: stored.hash,
            content: None,
        };
        app.submit(caller, command, vec![stored]).await?;
        Ok(id)
    }
}
