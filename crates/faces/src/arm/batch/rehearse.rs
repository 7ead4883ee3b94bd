//! What would be wrong with a job of a deployment now, told where the user wrote it. Nothing is submitted.

use neap_core::documents::BlobPath;
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::{Map, Value, json};

use super::job::{self, Call, DATA, MODEL, SCORE, STEP};
use crate::app::App;
use crate::arm::jobs;
use crate::workspace_files::{self, ARTIFACT_CONTAINER, ARTIFACT_STORE};

/// What stands for data that no call has given yet: it is there.
const STAND_IN: &str = "neap/batch/stand-in/nothing";

/// A call that every deployment could be asked, to look at the deployment by. Of a pipeline it is made of what the
/// component declares.
pub(super) async fn call(app: &App, workspace: &Workspace, spec: Option<&Value>) -> Result<Call, Refusal> {
    let at = BlobPath {
        account: workspace_files::account(workspace.id),
        container: ARTIFACT_CONTAINER.into(),
        path: STAND_IN.into(),
    };
    workspace_files::put_if_absent(app, at, b"-").await?;
    let declared = match spec {
        Some(spec) => spec["inputs"].as_object().cloned().unwrap_or_default(),
        None => Map::from_iter([(DATA.to_owned(), json!({"type": "uri_folder"}))]),
    };
    let inputs =
        declared.iter().filter_map(|(name, declared)| Some((name.clone(), stand_in(declared)?))).collect();
    Ok(Call { inputs, ..Call::default() })
}

/// A value that a declaration allows; nothing where it has one of its own.
fn stand_in(declared: &Value) -> Option<Value> {
    if job::is_literal(declared) {
        let kind = declared["type"].as_str().unwrap_or("string").to_ascii_lowercase();
        let value = match (&declared["default"], declared["enum"].get(0)) {
            (default, _) if !default.is_null() => return None,
            (_, Some(first)) => first.clone(),
            _ => match kind.as_str() {
                "integer" | "int" | "number" | "float" => {
                    let bounds = [&declared["min"], &declared["max"]];
                    bounds.into_iter().find(|bound| !bound.is_null()).cloned().unwrap_or(json!(0))
                }
                "boolean" | "bool" => json!(true),
                _ => json!("x"),
            },
        };
        return Some(json!({"jobInputType": "literal", "value": value}));
    }
    let kind = declared["type"].as_str().unwrap_or("uri_folder").to_ascii_lowercase();
    let path = if kind == "uri_file" { STAND_IN } else { STAND_IN.trim_end_matches("nothing") };
    Some(json!({"jobInputType": kind, "uri": format!("azureml://datastores/{ARTIFACT_STORE}/paths/{path}")}))
}

/// The problems of a job, each told once; those that `said` has a word about at the same place are left out.
pub(super) async fn problems(
    app: &App,
    owner: &str,
    workspace: &Workspace,
    name: &str,
    body: &Value,
    said: &[Problem],
) -> Result<Vec<Problem>, Refusal> {
    let refused = match jobs::prepare(app, owner, workspace, name, body).await {
        Ok(prepared) => prepared.refusal(app, workspace, app.now()),
        Err(refusal) => Some(refusal),
    };
    let Some(refusal) = refused else { return Ok(Vec::new()) };
    if matches!(
        refusal.code(),
        Code::ServerIsStopping | Code::LedgerReadOnly | Code::StorageFull | Code::InternalError
    ) {
        return Err(refusal);
    }
    let is_new = |problem: &Problem| {
        problem.target.is_none() || !said.iter().any(|other| other.target == problem.target)
    };
    Ok(refusal.problems.into_iter().map(|problem| told(problem, body)).filter(is_new).collect())
}

/// A problem of the job, told where the deployment or the call has it.
fn told(problem: Problem, body: &Value) -> Problem {
    let Some(at) = &problem.target else { return problem };
    let step = format!("properties.jobs.{STEP}.");
    let is_model = !body["properties"]["jobs"][STEP]["computeId"].is_null();
    let target = match at.strip_prefix(&step).filter(|_| is_model) {
        Some(rest) => format!("properties.{}", in_deployment(rest)),
        None => at.replacen("properties.inputs", "properties.inputData", 1).replacen(
            "properties.outputs",
            "properties.outputData",
            1,
        ),
    };
    let message = problem.message.strip_prefix(&format!("Step '{STEP}': ")).filter(|_| is_model);
    let message = message.unwrap_or(&problem.message).to_owned();
    Problem { target: Some(target), message, ..problem }
}

fn in_deployment(at: &str) -> String {
    let (model, data, score) =
        (format!("inputs.{MODEL}"), format!("inputs.{DATA}"), format!("outputs.{SCORE}"));
    let known = [
        ("task.code", "codeConfiguration.codeId"),
        ("task.entry_script", "codeConfiguration.scoringScript"),
        ("task.environment", "environmentId"),
        ("environment_variables", "environmentVariables"),
        ("computeId", "compute"),
        (&model, "model.assetId"),
        (&data, "inputData"),
        (&score, "outputData"),
        ("mini_batch_size", "miniBatchSize"),
        ("error_threshold", "errorThreshold"),
        ("retry_settings.max_retries", "retrySettings.maxRetries"),
        ("retry_settings", "retrySettings"),
        ("logging_level", "loggingLevel"),
        ("max_concurrency_per_instance", "maxConcurrencyPerInstance"),
        ("resources.instance_count", "resources.instanceCount"),
        ("batch_endpoint", "outputFileName"),
    ];
    // What is below a port (`.uri`) is of the job's body, not of the user's.
    match known.iter().find(|(from, _)| at.starts_with(from)) {
        Some((from, to)) if from.starts_with("inputs") || from.starts_with("outputs") => (*to).to_owned(),
        Some((from, to)) => at.replacen(from, to, 1),
        None => at.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_where_the_user_wrote_it() {
        let body = json!({"properties": {"jobs": {STEP: {"computeId": "c"}}}});
        for (at, expect) in [
            ("properties.jobs.batchscoring.task.code", "properties.codeConfiguration.codeId"),
            ("properties.jobs.batchscoring.computeId", "properties.compute"),
            ("properties.jobs.batchscoring.inputs.azureml_model.uri", "properties.model.assetId"),
            ("properties.jobs.batchscoring.inputs.data.uri", "properties.inputData"),
            ("properties.jobs.batchscoring.retry_settings.timeout", "properties.retrySettings.timeout"),
            ("properties.inputs.data", "properties.inputData.data"),
        ] {
            let problem = Problem::new(Code::BadArgument, "Step 'batchscoring': It is so.").at(at);
            let told = told(problem, &body);
            assert_eq!(told.target.as_deref(), Some(expect), "{at}");
            assert_eq!(told.message, "It is so.");
        }
    }

    #[test]
    fn a_stand_in_fits_what_is_declared() {
        let value = |declared: Value| stand_in(&declared).map(|input| input["value"].clone());
        assert_eq!(value(json!({"type": "integer", "min": 3})), Some(json!(3)));
        assert_eq!(value(json!({"type": "string", "enum": ["a", "b"]})), Some(json!("a")));
        assert_eq!(value(json!({"type": "number", "default": 2})), None);
        assert_eq!(value(json!({"type": "boolean"})), Some(json!(true)));
        let data = |kind: &str| stand_in(&json!({"type": kind})).map(|input| input["uri"].clone()).unwrap();
        assert!(data("uri_file").as_str().unwrap().ends_with("/nothing"));
        assert!(data("uri_folder").as_str().unwrap().ends_with("/stand-in/"));
    }
}
