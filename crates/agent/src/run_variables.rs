//! The variables by which MLflow's and Azure ML's clients find the run they are part of. Pure.

use std::path::Path;

use neap_protocol::AttemptSpec;

/// Names and values; the job's own variables go before them.
pub(crate) fn of(spec: &AttemptSpec, bundle: Option<&Path>) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(bundle) = bundle {
        for name in ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"] {
            all.push((name, bundle.display().to_string()));
        }
    }
    let Some(tracking) = &spec.tracking else { return all };
    let text = |text: &str| text.to_owned();
    let scope = format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.MachineLearningServices/workspaces/{}",
        tracking.subscription, tracking.resource_group, tracking.workspace
    );
    all.extend([
        ("MLFLOW_TRACKING_URI", text(&tracking.uri)),
        ("MLFLOW_TRACKING_TOKEN", text(tracking.token.reveal())),
        ("MLFLOW_RUN_ID", text(&spec.job_name)),
        ("MLFLOW_EXPERIMENT_ID", text(&tracking.experiment_id)),
        ("MLFLOW_EXPERIMENT_NAME", text(&spec.experiment)),
        // The client would print addresses of pages that are not there.
        ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", text("true")),
        ("AZUREML_RUN_TOKEN", text(tracking.token.reveal())),
        ("AZUREML_RUN_TOKEN_EXPIRY", tracking.token_expires_s.to_string()),
        ("AZUREML_ROOT_RUN_ID", tracking.root.clone().unwrap_or_else(|| spec.job_name.clone())),
        ("AZUREML_EXPERIMENT_ID", text(&tracking.experiment_id)),
        ("AZUREML_EXPERIMENT_SCOPE", format!("{scope}/experiments/{}", spec.experiment)),
        ("AZUREML_ARM_SUBSCRIPTION", text(&tracking.subscription)),
        ("AZUREML_ARM_RESOURCEGROUP", text(&tracking.resource_group)),
        ("AZUREML_ARM_WORKSPACE_NAME", text(&tracking.workspace)),
        ("AZUREML_WORKSPACE_ID", text(&tracking.workspace_id)),
        ("AZUREML_WORKSPACE_SCOPE", scope),
        ("AZUREML_SERVICE_ENDPOINT", text(&tracking.server)),
        ("AZUREML_DISCOVERY_SERVICE_ENDPOINT", format!("{}/discovery", tracking.server)),
    ]);
    all
}
