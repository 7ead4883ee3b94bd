//! `neap env`: the variables that point the Azure ML SDK, `az` and this program at the server.

use crate::args::Global;
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome};
use crate::settings::data_folder;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "The output holds the secret of this installation: keep it as you keep a password.\n\n\
                        Examples:\n  eval \"$(neap env)\"\n  neap env --format dotenv > .env"
)]
pub struct EnvArgs {
    /// How the variables are written
    #[arg(long, value_enum, default_value_t = EnvFormat::Sh)]
    format: EnvFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EnvFormat {
    Sh,
    Dotenv,
    Json,
}

pub fn run(args: &EnvArgs, global: &Global) -> Outcome<ExitCode> {
    let data = data_folder(global.data.as_deref())?;
    let connection = Connection::of_folder(&data)?.ok_or_else(|| {
        Failure::new(
            Exit::Unreachable,
            format!("{} has no client.json: no server was started there", data.display()),
        )
        .hint("start it with 'neap up --detach'")
    })?;
    let variables = variables(&connection, global);
    let text = match args.format {
        EnvFormat::Sh => lines(&variables, |name, value| format!("export {name}={}", quoted(value))),
        EnvFormat::Dotenv => lines(&variables, |name, value| format!("{name}={}", double_quoted(value))),
        EnvFormat::Json => {
            let map: Map<String, Value> =
                variables.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            format!("{:#}\n", Value::Object(map))
        }
    };
    crate::output::emit(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn variables(connection: &Connection, global: &Global) -> Vec<(&'static str, String)> {
    let url = connection.url.trim_end_matches('/');
    let bundle = connection.ca_bundle.display().to_string();
    let mut variables = vec![
        ("NEAP_URL", url.to_owned()),
        ("NEAP_SUBSCRIPTION_ID", connection.subscription_id.clone()),
        ("NEAP_RESOURCE_GROUP", connection.resource_group.clone()),
        ("NEAP_WORKSPACE", connection.workspace.clone()),
        ("ARM_CLOUD_METADATA_URL", format!("{url}/metadata/endpoints?api-version=2019-05-01")),
        ("IDENTITY_ENDPOINT", format!("{url}/msi/token")),
        ("IDENTITY_HEADER", connection.identity_secret.clone()),
        ("REQUESTS_CA_BUNDLE", bundle.clone()),
        // `az` fetches the metadata document with a client that knows only this one.
        ("SSL_CERT_FILE", bundle.clone()),
        ("NODE_EXTRA_CA_CERTS", bundle),
        // MLflow's clients keep no token that can be renewed: they show the secret itself, to this server only.
        ("MLFLOW_TRACKING_URI", connection.tracking_uri()),
        ("MLFLOW_TRACKING_USERNAME", "neap".to_owned()),
        ("MLFLOW_TRACKING_PASSWORD", connection.identity_secret.clone()),
        // It would print addresses of pages that are not there.
        ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true".to_owned()),
        ("AZUREML_RUN_POLLING_INTERVAL_MIN", "1".to_owned()),
        ("AZUREML_RUN_POLLING_INTERVAL_MAX", "1".to_owned()),
    ];
    if let Some(data) = &global.data {
        variables.insert(
            0,
            ("NEAP_HOME", std::path::absolute(data).unwrap_or_else(|_| data.clone()).display().to_string()),
        );
    }
    variables
}

fn lines(variables: &[(&str, String)], line: impl Fn(&str, &str) -> String) -> String {
    variables.iter().map(|(name, value)| line(name, value) + "\n").collect()
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

fn double_quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', r"\\").replace('"', "\\\""))
}
