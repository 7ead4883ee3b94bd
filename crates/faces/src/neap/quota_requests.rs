//! Asking for more quota, and answering: on record, with who and why.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::command::RequestQuota;
use neap_core::quota::{self, QuotaRequest};
use neap_core::{Code, Command, Refusal, State};
use serde_json::{Value, json};

use crate::app::App;
use crate::arm::{errors, quota_key, subscriptions};
use crate::ask::Ask;
use crate::fields::Fields;
use crate::reply;

pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    subscription: &str,
    rest: &[&str],
) -> Result<Response, Refusal> {
    subscriptions::check(app, subscription)?;
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let state = app.state();
            let value: Vec<Value> =
                state.quota_requests.values().map(|request| shown(&state, request)).collect();
            Ok(reply::ok(&json!({"value": value})))
        }
        ("POST", []) => create(app, ask).await,
        ("POST", [id, "approve" | "deny"]) => {
            let approved = rest[1] == "approve";
            let id = number(id)?;
            let reason = reason(&ask.json()?);
            let by = ask.caller.actor.as_str().into();
            let command = Command::AnswerQuota { request: id, approved, by, reason: reason.into() };
            app.submit(&ask.caller, command, Vec::new()).await?;
            let state = app.state();
            let request = state.quota_requests.get(&id).ok_or_else(|| no_request(id))?;
            Ok(reply::ok(&shown(&state, request)))
        }
        _ => Err(errors::no_such_path(ask)),
    }
}

async fn create(app: &App, ask: &Ask) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    let fields = Fields::of(Some(&body), "", &mut problems);
    let location = fields.text("location", &mut problems).unwrap_or_default();
    let id = fields.text("id", &mut problems).unwrap_or_default();
    let limit = fields.integer("limit", &mut problems).and_then(|limit| u64::try_from(limit).ok());
    let state = app.state();
    let key = quota_key(&state, location, id).map_err(|why| problems.push(errors::bad(why, "id"))).ok();
    if limit.is_none() {
        problems.push(errors::bad("'limit' is the number that is asked for.", "limit"));
    }
    Refusal::unless_empty(problems)?;
    let (Some(key), Some(limit)) = (key, limit) else {
        return Err(Refusal::because(Code::BadArgument, "The request names no quota and limit."));
    };
    let id = state.next.quota_request;
    let request =
        RequestQuota { key, limit, by: ask.caller.actor.as_str().into(), reason: reason(&body).into() };
    app.submit(&ask.caller, Command::RequestQuota(request), Vec::new()).await?;
    let state = app.state();
    let made = state.quota_requests.range(id..).map(|(_, request)| request).next_back();
    Ok(reply::json(StatusCode::CREATED, &made.map_or(Value::Null, |request| shown(&state, request))))
}

fn reason(body: &Value) -> String {
    body["reason"].as_str().unwrap_or_default().to_owned()
}

fn number(id: &str) -> Result<u64, Refusal> {
    id.parse()
        .map_err(|_| Refusal::because(Code::BadArgument, format!("'{id}' is not the number of a request.")))
}

fn no_request(id: u64) -> Refusal {
    Refusal::because(Code::ResourceNotFound, format!("There is no quota request {id}."))
}

fn shown(state: &State, request: &QuotaRequest) -> Value {
    let answer = request.answer.as_ref();
    json!({
        "id": request.id,
        "quota": request.key.pool.azure_name(),
        "holder": quota::holder_words(state, &request.key.holder),
        "location": request.key.location,
        "limit": request.limit,
        "current_limit": state.quotas.get(&request.key),
        "by": request.by,
        "reason": request.reason,
        "at": request.at.rfc3339(),
        "status": match answer {
            None => "Open",
            Some(answer) if answer.approved => "Approved",
            Some(_) => "Denied",
        },
        "answered_by": answer.map(|answer| &answer.by),
        "answer_reason": answer.map(|answer| &answer.reason),
        "answered_at": answer.map(|answer| answer.at.rfc3339()),
    })
}
