//! `job stream`: the log on stdout as it is written, the outcome on stderr and in the exit code.

use crate::client::{RESTART_PATIENCE, segment};
use crate::entity::is_final;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::emit_bytes;
use crate::session::Session;
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Follows a job to its end. A server that restarts meanwhile is waited for, and the log goes on where it broke off.
pub async fn follow(name: &str, session: &Session) -> Outcome<ExitCode> {
    let job = super::get(session, name).await?;
    session.warn_of(&job);
    if status(&job) == "Queued" {
        let reason =
            job.pointer("/properties/properties").and_then(|properties| properties.get("neap.queueReason"));
        let reason = reason.and_then(Value::as_str).unwrap_or("waiting for a node");
        session.terminal.note(&format!("queued: {reason}"));
    }
    let mut offset = 0;
    let mut patience = RESTART_PATIENCE;
    loop {
        let before = offset;
        let followed = follow_once(name, session, &mut offset).await;
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

async fn follow_once(name: &str, session: &Session, offset: &mut u64) -> Outcome<bool> {
    let path = session.own_path(&format!("jobs/{}/log?offset={offset}&follow=true", segment(name)));
    let response = session.client.open(Method::GET, &path, None).await?;
    let mut bytes = response.bytes_stream();
    while let Some(chunk) = bytes.next().await {
        let chunk =
            chunk.map_err(|error| Failure::new(Exit::Unreachable, format!("the log broke off: {error}")))?;
        if !emit_bytes(&chunk)? {
            return Ok(false);
        }
        *offset += chunk.len() as u64;
    }
    Ok(true)
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
