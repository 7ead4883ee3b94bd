//! Refusals as ARM errors: every problem in `details`, the first one speaking for the whole.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::{Code, Problem, Refusal};
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::reply;

pub fn refuse(refusal: &Refusal) -> Response {
    let code = refusal.code();
    let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        tracing::warn!(%refusal, "a request could not be served");
    }
    let mut response = reply::json(status, &body(refusal));
    if code == Code::AuthenticationFailed {
        reply::set(&mut response, "www-authenticate", "Bearer realm=\"neap\", error=\"invalid_token\"");
    }
    if code == Code::ResourceNotFound {
        reply::set(&mut response, "x-ms-error-code", code.name());
    }
    response
}

pub(crate) fn body(refusal: &Refusal) -> Value {
    let details: Vec<Value> = refusal
        .problems
        .iter()
        .map(|problem| json!({"code": problem.code.name(), "message": problem.message, "target": problem.target}))
        .collect();
    let message = match refusal.problems.as_slice() {
        [only] => only.message.clone(),
        several => several.iter().map(|p| p.message.as_str()).collect::<Vec<_>>().join(" "),
    };
    let page = format!("docs/errors/{}.md", refusal.code());
    json!({"error": {
        "code": refusal.code().name(),
        "message": message,
        "target": refusal.problems.first().and_then(|p| p.target.clone()),
        "details": details,
        "additionalInfo": [{"type": "Neap.Help", "info": {"page": page, "help": page}}],
    }})
}

pub(crate) fn no_such_path(ask: &Ask) -> Refusal {
    Refusal::because(
        Code::ResourceNotFound,
        format!("Neap has nothing at {} /{}.", ask.method, ask.segments.join("/")),
    )
}

pub(crate) fn method_not_allowed(ask: &Ask, allowed: &str) -> Refusal {
    Refusal::because(
        Code::MethodNotAllowed,
        format!("{} is not possible on /{}; it takes {allowed}.", ask.method, ask.segments.join("/")),
    )
}

pub(crate) fn not_found(what: &str, name: &str) -> Refusal {
    Refusal::because(Code::ResourceNotFound, format!("The {what} with name '{name}' was not found."))
}

pub(crate) fn not_supported(sentence: impl Into<String>) -> Refusal {
    Refusal::because(Code::NotSupported, sentence)
}

pub(crate) fn bad(message: impl Into<String>, target: &str) -> Problem {
    Problem::new(Code::BadArgument, message).at(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_in_one_error() {
        let refusal = Refusal {
            problems: vec![
                Problem::new(Code::InvalidVmSize, "No such size.").at("vmSize"),
                Problem::new(Code::BadArgument, "Bad."),
            ],
        };
        let body = body(&refusal);
        assert_eq!(body["error"]["code"], "InvalidVmSize");
        assert_eq!(body["error"]["message"], "No such size. Bad.");
        assert_eq!(body["error"]["details"].as_array().map(Vec::len), Some(2));
        assert_eq!(body["error"]["additionalInfo"][0]["info"]["page"], "docs/errors/InvalidVmSize.md");
    }
}
