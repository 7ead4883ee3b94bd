//! `neap job metrics`: what a job logged with MLflow. `neap job show` tells the last values too.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::args::named;
use crate::client::segment;
use crate::entity;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Column;
use crate::session::Session;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap job metrics -n brisk_tide_4k2m9x7qpz -o table\n  \
                        neap job metrics -n brisk_tide_4k2m9x7qpz --metric loss --query \"[-1].value\"")]
pub struct MetricsArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Every point of this metric, instead of the last value of each
    #[arg(long, short = 'm', value_name = "METRIC")]
    metric: Option<String>,
}

const LAST: &[Column] = &[
    ("Metric", "name"),
    ("Value", "value"),
    ("Step", "step"),
    ("Points", "points"),
    ("Timestamp", "timestamp"),
];
const HISTORY: &[Column] = &[("Step", "step"), ("Value", "value"), ("Timestamp", "timestamp")];

pub async fn run(args: &MetricsArgs, session: &Session) -> Outcome<()> {
    let path = path(session, &args.name);
    let Some(metric) = &args.metric else {
        let answer = session.client.get(&path).await?;
        return session.print(answer.get("metrics").unwrap_or(&Value::Null), LAST);
    };
    let mut points = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let at = token.map_or_else(String::new, |token| format!("&token={}", segment(&token)));
        let mut page = session.client.get(&format!("{path}?metric={}{at}", segment(metric))).await?;
        if let Some(Value::Array(items)) = page.get_mut("history").map(Value::take) {
            points.extend(items);
        }
        token = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    if points.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("job {} logged no metric '{metric}'", args.name))
            .hint(format!("'neap job metrics -n {}' lists those it logged", args.name)));
    }
    session.print(&Value::Array(points), HISTORY)
}

/// Prints a job with the last values of its metrics and its parameters, where it logged any.
pub async fn show(session: &Session, resource: &Value, columns: &'static [Column]) -> Outcome<()> {
    session.warn_of(resource);
    let mut job = entity::job(resource);
    let name = resource.get("name").and_then(Value::as_str).unwrap_or_default();
    let logged = session.client.get(&path(session, name)).await?;
    let entries = logged.get("metrics").and_then(Value::as_array).into_iter().flatten();
    let metrics: Map<String, Value> = entries
        .filter_map(|metric| Some((metric.get("name")?.as_str()?.to_owned(), metric.get("value")?.clone())))
        .collect();
    let params = logged.get("params").cloned().unwrap_or_else(|| json!({}));
    if let Value::Object(map) = &mut job {
        if !metrics.is_empty() {
            map.insert("metrics".into(), Value::Object(metrics));
        }
        if params.as_object().is_some_and(|params| !params.is_empty()) {
            map.insert("params".into(), params);
        }
    }
    session.print(&job, columns)
}

fn path(session: &Session, name: &str) -> String {
    session.own_path(&format!("jobs/{}/metrics", segment(name)))
}
