//! `metrics` of a job: the last value of each, its parameters, and with `metric=` one metric's history in pages.

use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::{Code, Refusal};
use neap_tracking::{Error, Point, limits};
use serde_json::{Value, json};

use crate::app::{App, internal};
use crate::arm::find_job;
use crate::ask::Ask;
use crate::mlflow::number;
use crate::reply;

pub(crate) async fn get(app: &App, ask: &Ask, workspace: &Workspace, job: &str) -> Result<Response, Refusal> {
    let row = find_job(app, workspace, job)?;
    let (tracking, id, name) = (app.tracking.clone(), workspace.id, row.name);
    let metric = ask.query.get("metric").map(String::from);
    let token = ask.query.get("token").map(String::from);
    let limit =
        ask.query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(limits::PAGE_POINTS_MAX);
    let asked = tokio::task::spawn_blocking(move || match metric {
        Some(metric) => {
            let page = tracking.history_page(id, &name, &metric, token.as_deref(), limit)?;
            let history: Vec<Value> = page.items.iter().map(point).collect();
            Ok(json!({"job": name, "metric": metric, "history": history, "next": page.next}))
        }
        None => {
            let (metrics, params, tags) = match tracking.run(id, &name) {
                Ok(run) => (run.metrics, run.params, run.tags),
                // It has logged nothing yet.
                Err(Error::NotFound(_)) => Default::default(),
                Err(error) => return Err(error),
            };
            let metrics: Vec<Value> = metrics
                .iter()
                .map(|metric| {
                    let mut value = point(&metric.last);
                    value["name"] = json!(metric.key);
                    value["points"] = json!(metric.points);
                    value
                })
                .collect();
            Ok(json!({"job": name, "metrics": metrics, "params": params, "tags": tags}))
        }
    });
    match asked.await {
        Ok(Ok(body)) => Ok(reply::ok(&body)),
        Ok(Err(Error::Invalid(message))) => Err(Refusal::because(Code::BadArgument, message)),
        Ok(Err(error)) => Err(internal(format!("The metrics of '{job}' cannot be read: {error}."))),
        Err(error) => Err(internal(format!("The metrics of '{job}' could not be read to the end: {error}."))),
    }
}

fn point(point: &Point) -> Value {
    json!({"value": number(point.value), "step": point.step, "timestamp": point.timestamp})
}
