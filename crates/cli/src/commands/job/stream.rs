//! `job stream`: the log on stdout as it is written, the outcome on stderr and in the exit code.

use super::family;
use crate::client::{RESTART_PATIENCE, segment};
use crate::entity::is_final;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Screen;
use crate::session::Session;
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How long a silent job is waited for before its reason is asked.
const REASON_PAUSE: Duration = Duration::from_secs(1);

/// Follows a job to its end. A server that restarts meanwhile is waited for, and the log goes on where it broke off.
pub async fn follow(name: &str, session: &Session) -> Outcome<ExitCode> {
    let job = super::get(session, name).await?;
    session.warn_of(&job);
    let kind = job.pointer("/properties/jobType").and_then(Value::as_str).unwrap_or_default();
    if matches!(kind, "Pipeline" | "Sweep") {
        let job = family::follow(name, session).await?;
        return conclude(name, &job, session);
    }
    let mut offset = 0;
    let mut said = String::new();
    let mut patience = RESTART_PATIENCE;
    loop {
        let before = offset;
        let followed = follow_once(name, session, &mut offset, &mut said).await;
        if offset > before {
            patience = RESTART_PATIENCE;
        }
        let job = match followed {
            // Whoever read the log has gone, and with them the reason to follow it.
            Ok(false) => return Ok(ExitCode::SUCCESS),
            Ok(true) => super::get(session, name).await,
            Err(failure) => Err(failure),
        };
        match job {
            Ok(job) if is_final(status(&job)) => return conclude(name, &job, session),
            // The log ended before the job did: the server was on its way down.
            Ok(_) => {}
            Err(failure) if failure.exit != Exit::Unreachable || patience.is_zero() => return Err(failure),
            Err(_) => {}
        }
        tokio::time::sleep(RETRY_PAUSE).await;
        patience = patience.saturating_sub(RETRY_PAUSE);
    }
}

/// Copies the log until it ends; false if nobody reads it any more.
async fn follow_once(name: &str, session: &Session, offset: &mut u64, said: &mut String) -> Outcome<bool> {
    let path = session.own_path(&format!("jobs/{}/log?offset={offset}&follow=true", segment(name)));
    let response = session.client.open(Method::GET, &path, None).await?;
    let mut bytes = response.bytes_stream();
    let mut screen = Screen::new();
    loop {
        let chunk = tokio::select! {
            chunk = bytes.next() => chunk,
            // Before the first line there may be a wait, and the wait has a reason.
            () = tokio::time::sleep(REASON_PAUSE), if *offset == 0 => {
                say_why_it_waits(name, session, said).await?;
                continue;
            }
        };
        let Some(chunk) = chunk else { return screen.end() };
        let chunk =
            chunk.map_err(|error| Failure::new(Exit::Unreachable, format!("the log broke off: {error}")))?;
        if !screen.show(&chunk)? {
            return Ok(false);
        }
        *offset += chunk.len() as u64;
    }
}

/// Says the reasons of a job that has not started, once for each time they change.
async fn say_why_it_waits(name: &str, session: &Session, said: &mut String) -> Outcome<()> {
    let explained = session.client.get(&session.own_path(&format!("jobs/{}/explain", segment(name)))).await?;
    let status = explained.get("status").and_then(Value::as_str).unwrap_or_default();
    let reasons: Vec<&str> = explained
        .get("reasons")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let text = match reasons.as_slice() {
        [] => status.to_owned(),
        reasons => format!("{status}: {}", reasons.join("; ")),
    };
    if text != *said && !is_final(status) {
        session.terminal.note(&text);
        *said = text;
    }
    Ok(())
}

fn status(job: &Value) -> &str {
    job.pointer("/properties/status").and_then(Value::as_str).unwrap_or_default()
}

fn conclude(name: &str, job: &Value, session: &Session) -> Outcome<ExitCode> {
    let status = status(job);
    if status == "Completed" {
        session.terminal.note(&format!("job {name}: {status}"));
        return Ok(ExitCode::SUCCESS);
    }
    let error = job.pointer("/properties/error").filter(|error| error.is_object());
    let mut failure = match error {
        Some(error) => {
            let said = Failure::from_answer(500, error, "");
            Failure { message: format!("job {name}: {status}: {}", said.message), ..said }
        }
        None => Failure::failed(format!("job {name}: {status}")),
    };
    let next = job.pointer("/properties/properties").and_then(|properties| properties.get("neap.nextStep"));
    failure.hints.extend(next.and_then(Value::as_str).map(str::to_owned));
    Err(failure)
}
