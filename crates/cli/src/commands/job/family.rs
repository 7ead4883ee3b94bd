//! Following a job with children: what starts and ends, and every child's log, each line under the child's name.
//!
//! Which children there are is asked of the run history; their logs are followed as those of any job. Children of
//! children are followed too.

use super::children;
use crate::client::{RESTART_PATIENCE, segment};
use crate::entity::is_final;
use crate::failure::{Exit, Outcome};
use crate::output::Screen;
use crate::session::Session;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use neap_core::visible;
use reqwest::Method;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the history is asked for news of the children.
const NEWS_PAUSE: Duration = Duration::from_millis(500);

/// What was said of a child.
#[derive(Debug, Default)]
struct Seen {
    status: String,
    followed: bool,
}

/// Follows `parent` and everything below it; answers the parent's resource when it has ended.
pub async fn follow(parent: &str, session: &Session) -> Outcome<Value> {
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    let mut logs = FuturesUnordered::new();
    let mut patience = RESTART_PATIENCE;
    loop {
        // The parent is asked first: what its children did before it ended is in the list that follows.
        let news = match super::get(session, parent).await {
            Ok(job) => family(parent, session).await.map(|runs| (job, runs)),
            Err(failure) => Err(failure),
        };
        match news {
            Ok((job, runs)) => {
                patience = RESTART_PATIENCE;
                for (label, run) in &runs {
                    if let Some(start) = note(&mut seen, label, run, session) {
                        logs.push(copy_log(start, label.clone(), session));
                    }
                }
                let status = job.pointer("/properties/status").and_then(Value::as_str).unwrap_or_default();
                if is_final(status) {
                    while let Some(copied) = logs.next().await {
                        copied?;
                    }
                    return Ok(job);
                }
            }
            Err(failure) if failure.exit == Exit::Unreachable && !patience.is_zero() => {
                patience = patience.saturating_sub(NEWS_PAUSE);
            }
            Err(failure) => return Err(failure),
        }
        let mut pause = std::pin::pin!(tokio::time::sleep(NEWS_PAUSE).fuse());
        loop {
            tokio::select! {
                () = &mut pause => break,
                Some(copied) = logs.next() => copied?,
            }
        }
    }
}

/// The runs below a job, with what each is called; a run that has children is followed by them.
async fn family(parent: &str, session: &Session) -> Outcome<Vec<(String, Value)>> {
    let mut found = Vec::new();
    let mut open = vec![(parent.to_owned(), String::new())];
    while let Some((name, prefix)) = open.pop() {
        for run in children::list(session, &name, None).await? {
            let label = format!("{prefix}{}", children::label(&run));
            if let Some(id) =
                run.get("runId").and_then(Value::as_str).filter(|_| children::has_children(&run))
            {
                open.push((id.to_owned(), format!("{label}/")));
            }
            found.push((label, run));
        }
    }
    Ok(found)
}

/// Says what is new about a child; its name if its log is to be followed from now on.
fn note(seen: &mut BTreeMap<String, Seen>, label: &str, run: &Value, session: &Session) -> Option<String> {
    let id = run.get("runId").and_then(Value::as_str)?;
    let status = run.get("status").and_then(Value::as_str).unwrap_or_default();
    let entry = seen.entry(id.to_owned()).or_default();
    if entry.status != status {
        entry.status = status.to_owned();
        let reused = run.pointer("/properties/azureml.isreused").and_then(Value::as_str) == Some("true");
        let why = run.pointer("/error/error/message").and_then(Value::as_str);
        let more = match (why, reused) {
            (Some(why), _) => format!(": {why}"),
            (None, true) => ": an earlier run's outputs are used again".to_owned(),
            (None, false) => String::new(),
        };
        session.terminal.note(&format!("{label} ({id}): {status}{more}"));
    }
    let begun = matches!(status, "Running" | "Finalizing") || is_final(status);
    if begun && !entry.followed && !children::has_children(run) {
        entry.followed = true;
        return Some(id.to_owned());
    }
    None
}

/// Prints a child's log to its end, whole lines only.
async fn copy_log(name: String, label: String, session: &Session) -> Outcome<()> {
    let mut offset: u64 = 0;
    let mut rest: Vec<u8> = Vec::new();
    let mut patience = RESTART_PATIENCE;
    loop {
        let path = session.own_path(&format!("jobs/{}/log?offset={offset}&follow=true", segment(&name)));
        match session.client.open(Method::GET, &path, None).await {
            Ok(response) => {
                let mut bytes = response.bytes_stream();
                let mut broken = false;
                while let Some(chunk) = bytes.next().await {
                    let Ok(chunk) = chunk else {
                        broken = true;
                        break;
                    };
                    offset += chunk.len() as u64;
                    rest.extend_from_slice(&chunk);
                    if !emit_lines(&mut rest, &label, false)? {
                        return Ok(());
                    }
                    patience = RESTART_PATIENCE;
                }
                if !broken {
                    emit_lines(&mut rest, &label, true)?;
                    return Ok(());
                }
            }
            // A child that ran no process has no log.
            Err(failure) if failure.exit == Exit::NotFound => return Ok(()),
            Err(failure) if failure.exit != Exit::Unreachable || patience.is_zero() => return Err(failure),
            Err(_) => {}
        }
        tokio::time::sleep(NEWS_PAUSE).await;
        patience = patience.saturating_sub(NEWS_PAUSE);
    }
}

/// Prints the whole lines of `bytes`, and with `all` what is left of the last one; false if nobody reads any more.
fn emit_lines(bytes: &mut Vec<u8>, label: &str, all: bool) -> Outcome<bool> {
    let text = prefixed(bytes, &visible::line(label), all);
    if text.is_empty() {
        return Ok(true);
    }
    let mut screen = Screen::new();
    Ok(screen.show(&text)? && screen.end()?)
}

fn prefixed(bytes: &mut Vec<u8>, label: &str, all: bool) -> Vec<u8> {
    let end = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(at) if !all => at + 1,
        None if !all => 0,
        _ => bytes.len(),
    };
    let mut out = Vec::with_capacity(end + end / 8);
    for line in bytes[..end].split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(format!("[{label}] ").as_bytes());
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    bytes.drain(..end);
    out
}

#[cfg(test)]
mod tests {
    use super::prefixed;

    #[test]
    fn lines_are_printed_whole_and_under_a_name() {
        let mut bytes = b"one\ntwo\nthr".to_vec();
        assert_eq!(prefixed(&mut bytes, "a", false), b"[a] one\n[a] two\n");
        assert_eq!(bytes, b"thr");
        assert!(prefixed(&mut bytes, "a", false).is_empty());
        bytes.extend_from_slice(b"ee");
        assert_eq!(prefixed(&mut bytes, "a", true), b"[a] three\n");
        assert!(bytes.is_empty());
    }
}
