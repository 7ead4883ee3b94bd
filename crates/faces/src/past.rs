//! `neap-at` (or, under `/neap/v1`, `at`): the same question about an earlier time. Whatever is read from state and
//! tables answers from those of then; what is not in the log (log bytes, metrics, services) cannot be asked for so.

use axum::http::Method;
use jiff::Timestamp;
use neap_core::{Code, Millis, Problem, Refusal};

use crate::app::App;
use crate::ask::Ask;

const PARAMETER: &str = "neap-at";
/// The same on paths that are Neap's own.
const OWN_PARAMETER: &str = "at";
/// What can be asked about the past, by what stands behind the workspace.
const PARTS: &[&str] = &["computes", "cost", "jobs", "schedules"];
/// What of these cannot: it is not in the log.
const NOT_IN_THE_LOG: &[&str] = &["log", "metrics", "health", "diff"];

/// The application as of the time that a request asks about; none if it asks about now.
pub(crate) async fn asked(app: &App, ask: &Ask) -> Result<Option<App>, Refusal> {
    let own = ask.segments.first().is_some_and(|first| first == "neap");
    let text = ask.query.get(PARAMETER).or_else(|| ask.query.get(OWN_PARAMETER).filter(|_| own));
    let Some(text) = text else { return Ok(None) };
    if ask.method != Method::GET {
        return Err(Refusal::because(
            Code::BadArgument,
            format!("The past can be read and not changed: '{PARAMETER}' is for GET."),
        ));
    }
    if !is_in_the_log(&ask.segments()) {
        return Err(Refusal::because(
            Code::NotSupported,
            format!(
                "This cannot be asked about the past. Clusters, nodes, jobs, schedules and cost can ('{PARAMETER}')."
            ),
        ));
    }
    at(app, PARAMETER, text).await.map(Some)
}

fn is_in_the_log(segments: &[&str]) -> bool {
    let mut words = segments.iter().skip_while(|word| **word != "workspaces").skip(2);
    let first = words.next().is_some_and(|part| PARTS.contains(part));
    // Behind a name, every other word is one of ours.
    first && !words.skip(1).step_by(2).any(|word| NOT_IN_THE_LOG.contains(word))
}

/// The application as of a time in words.
pub(crate) async fn at(app: &App, key: &'static str, text: &str) -> Result<App, Refusal> {
    let time = text.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
    let Some(time) = time else {
        let message = format!("'{text}' is not a time such as 2026-11-01T00:00:00Z.");
        return Err(Refusal::from(Problem::new(Code::BadArgument, message).at(key)));
    };
    Ok(App { control: app.control.at(Millis(time)).await?, ..app.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_log_does_not_have_cannot_be_asked_about_the_past() {
        let path = |text: &'static str| text.split('/').collect::<Vec<_>>();
        for (below, so) in [
            ("computes", true),
            ("computes/log", true),
            ("computes/c/nodes", true),
            ("computes/c/nodes/n-1/log", false),
            ("computes/c/diff", false),
            ("jobs/j", true),
            ("jobs/j/explain", true),
            ("jobs/j/log", false),
            ("cost", true),
            ("environments/e", false),
        ] {
            let whole: &'static str =
                format!("neap/v1/subscriptions/s/resourcegroups/g/workspaces/w/{below}").leak();
            assert_eq!(is_in_the_log(&path(whole)), so, "{below}");
        }
        assert!(!is_in_the_log(&["neap", "v1", "status"]));
        assert!(!is_in_the_log(&["subscriptions", "s", "resourcegroups", "g"]));
    }
}
