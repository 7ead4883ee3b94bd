//! Batch endpoints: names that batches of data are sent to, and the deployments that are run over them.
//!
//! Both are records in the ledger (`record`). A call becomes an ordinary pipeline job (`job`, `invoke`): once it is
//! submitted nothing of the endpoint is needed, and deleting the endpoint takes no job away.

mod call;
mod deployments;
mod endpoints;
mod invoke;
mod job;
mod made;
mod read;
mod record;
mod rehearse;

use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};

use super::errors;
use crate::app::App;
use crate::ask::Ask;
use crate::limits;

/// `rest` is what follows `batchEndpoints`.
pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    rest: &[&str],
) -> Result<Response, Refusal> {
    match (ask.method.as_str(), rest) {
        ("GET", []) => endpoints::list(app, ask, workspace),
        ("GET", [e]) => endpoints::get(app, ask, workspace, e),
        ("PUT", [e]) => endpoints::put(app, ask, workspace, e).await,
        ("PATCH", [e]) => endpoints::patch(app, ask, workspace, e).await,
        ("DELETE", [e]) => endpoints::delete(app, ask, workspace, e).await,
        ("POST", [e, "listkeys" | "regeneratekeys"]) => Err(endpoints::no_keys(app, workspace, e)?),

        ("POST", [e, "jobs"]) => invoke::post(app, ask, workspace, e, None).await,
        ("POST", [e, "deployments", d, "jobs"]) => invoke::post(app, ask, workspace, e, Some(d)).await,
        ("GET", [e, "jobs"]) => invoke::list(app, ask, workspace, e, None),
        ("GET", [e, "deployments", d, "jobs"]) => invoke::list(app, ask, workspace, e, Some(d)),
        ("GET", [e, "jobs", j]) => invoke::get(app, workspace, e, None, j),
        ("GET", [e, "deployments", d, "jobs", j]) => invoke::get(app, workspace, e, Some(d), j),

        ("GET", [e, "deployments"]) => deployments::list(app, workspace, e),
        ("GET", [e, "deployments", d]) => deployments::get(app, workspace, e, d),
        ("PUT", [e, "deployments", d]) => deployments::put(app, ask, workspace, e, d).await,
        ("PATCH", [e, "deployments", d]) => deployments::patch(app, ask, workspace, e, d).await,
        ("DELETE", [e, "deployments", d]) => deployments::delete(app, ask, workspace, e, d).await,
        _ => Err(errors::no_such_path(ask)),
    }
}

/// The rule of Azure ML's clients: a letter, then letters, digits and `-`, not `-` at the end. They do not hold
/// deployments to a least length.
fn check_name(name: &str, what: &str) -> Option<Problem> {
    let least = if what == "endpoint" { limits::BATCH_ENDPOINT_NAME_CHARS_MIN } else { 1 };
    let most = limits::BATCH_NAME_CHARS_MAX;
    let good = (least..=most).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    (!good).then(|| {
        let message = format!(
            "'{name}' cannot be the name of a batch {what}: {least} to {most} letters, digits and '-', beginning with a letter and not ending with '-'."
        );
        Problem::new(Code::InvalidResourceName, message).at("name")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["abc", "a-1", "Scores-2b", &"x".repeat(32)] {
            assert_eq!(check_name(good, "endpoint"), None, "{good}");
        }
        for bad in ["", "ab", "1abc", "-abc", "abc-", "a_b", "a.b", &"x".repeat(33)] {
            assert!(check_name(bad, "endpoint").is_some(), "{bad}");
        }
        assert_eq!(check_name("v1", "deployment"), None);
    }
}
