//! What the workers of a parallel job say and hear: `POST /neap/v1/parallel/{open,list,next,fail}`, with the token of their
//! own attempt. A worker reaches the mini-batches of the job that it is part of, and nothing else.
//!
//! Which mini-batch is whose is kept by `neap_parallel`, beside the log. How the job ends is said in `conduct::parallel`.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use neap_core::documents::{JobDocument, OutputDocument};
use neap_core::family::Family;
use neap_core::{Code, JobId, Refusal, State};
use neap_parallel::limits::FILES_MAX;
use neap_parallel::{Exchange, Fate, FileEntry, Finished, Holder, Parallel, Report, Verdict, verdict};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::app::{App, internal};
use crate::{arm, limits, reply};

pub(crate) async fn answer(app: &App, request: Request) -> Response {
    match serve(app, request).await {
        Ok(body) => reply::ok(&body),
        Err(refusal) => arm::errors::refuse(&refusal),
    }
}

async fn serve(app: &App, request: Request) -> Result<Value, Refusal> {
    let (parts, body) = request.into_parts();
    let shown = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    let worker = Worker::of(app, shown)?;
    let what = parts.uri.path().rsplit('/').next().unwrap_or("").to_owned();
    if parts.method != Method::POST {
        return Err(no_such(&what));
    }
    let _room = room(&parts.headers).await?;
    let reading = axum::body::to_bytes(body, limits::PARALLEL_BODY_BYTES_MAX);
    let read = tokio::time::timeout(limits::PARALLEL_BODY_TIME_MAX, reading).await;
    let late = || {
        let seconds = limits::PARALLEL_BODY_TIME_MAX.as_secs();
        Refusal::because(Code::BadArgument, format!("The body did not come within {seconds} s."))
    };
    let body = read.map_err(|_| late())?.map_err(|e| {
        let most = limits::PARALLEL_BODY_BYTES_MAX;
        Refusal::because(
            Code::DocumentTooLarge,
            format!("The body could not be read, or has more than {most} bytes: {e}."),
        )
    })?;
    let app = app.clone();
    // The table blocks.
    let answered = tokio::task::spawn_blocking(move || worker.answer(&app, &what, &body)).await;
    answered.map_err(|e| internal(format!("The request did not come to an end: {e}.")))?
}

/// Room for one body, for as long as it is worked on: large ones of many workers wait for each other. A body whose length is
/// not announced takes as much as the largest.
async fn room(headers: &HeaderMap) -> Result<SemaphorePermit<'static>, Refusal> {
    static ROOM_MIB: Semaphore = Semaphore::const_new(limits::PARALLEL_BODIES_MIB_MAX as usize);
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let bytes = announced.unwrap_or(limits::PARALLEL_BODY_BYTES_MAX).min(limits::PARALLEL_BODY_BYTES_MAX);
    let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX).saturating_add(1);
    ROOM_MIB.acquire_many(mib).await.map_err(|e| internal(format!("No room for a body: {e}.")))
}

/// A worker that asks: an attempt that runs, of a job that is part of a parallel job.
struct Worker {
    holder: Holder,
    family: Arc<Family>,
    settings: Parallel,
    files_with_attempt: bool,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(deserialize_with = "files")]
    files: Vec<(String, u64)>,
}

/// Stops at the first file that is too much.
fn files<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, u64)>, D::Error> {
    struct Files;

    impl<'de> Visitor<'de> for Files {
        type Value = Vec<(String, u64)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of names and sizes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut out = Vec::new();
            while let Some(file) = all.next_element()? {
                // One more than is allowed, so that the job is told how many there may be.
                if out.len() <= FILES_MAX {
                    out.push(file);
                }
            }
            Ok(out)
        }
    }

    from.deserialize_seq(Files)
}

#[derive(Deserialize)]
struct Next {
    #[serde(default)]
    finished: Vec<Told>,
    #[serde(default)]
    holding: Vec<u32>,
    #[serde(default)]
    want: u32,
}

#[derive(Deserialize)]
struct Told {
    number: u32,
    #[serde(default)]
    done: Option<Done>,
    #[serde(default)]
    failed: Option<String>,
}

#[derive(Deserialize)]
struct Done {
    items: u64,
    returned: u64,
    rows: String,
}

#[derive(Deserialize)]
struct Failed {
    message: String,
}

impl Worker {
    fn of(app: &App, shown: &str) -> Result<Self, Refusal> {
        let refused = |message: String| Refusal::because(Code::AuthenticationFailed, message);
        let token = shown.strip_prefix("Bearer ").unwrap_or("").trim();
        if !app.run_tokens.is_one(token) {
            return Err(refused("Only a worker of a parallel job may ask this, with its own token.".into()));
        }
        let claim = app
            .run_tokens
            .verify(token, app.now_s())
            .map_err(|e| refused(format!("The job's token is refused: {e}.")))?;
        let holder = Holder { job: claim.job, attempt: claim.attempt };
        let state = app.state();
        if fate(&state, holder) != Fate::Runs {
            return Err(refused(format!(
                "The attempt {} of the job '{}' is over.",
                claim.attempt, claim.sub
            )));
        }
        let family = state.jobs.get(&JobId(claim.job)).and_then(|job| job.family);
        let family = family.and_then(|family| state.families.get(&family)).cloned();
        let none = || refused(format!("The job '{}' is not a worker of a parallel job.", claim.sub));
        let family = family.ok_or_else(none)?;
        let document: JobDocument = app.document(&family.document)?;
        let settings = Parallel::read(&document.asked).map_err(|_| none())?;
        let files_with_attempt = files_with_attempt(&document, &settings);
        Ok(Self { holder, family, settings, files_with_attempt })
    }

    fn answer(&self, app: &App, what: &str, body: &[u8]) -> Result<Value, Refusal> {
        match what {
            "open" => self.open(app),
            "list" => self.list(app, read(body)?),
            "next" => self.next(app, read(body)?),
            "fail" => {
                let Failed { message } = read(body)?;
                app.batches.set_fault(self.family.id.0, &message).map_err(unkept)?;
                Ok(json!({}))
            }
            other => Err(no_such(other)),
        }
    }

    fn open(&self, app: &App) -> Result<Value, Refusal> {
        let settings = &self.settings;
        let served = settings.served.as_ref();
        let served = served.map(|served| json!({"output": served.output, "model": served.model}));
        Ok(json!({
            "batch_endpoint": served,
            "begun": app.batches.has_begun(self.family.id.0).map_err(unkept)?,
            "entry_script": settings.entry_script,
            "table": settings.is_table,
            "logging_level": settings.logging_level,
            "concurrency": settings.concurrency,
            "timeout_s": settings.timeout_s,
        }))
    }

    /// Every worker has the whole input, so the first one's list is as good as any.
    fn list(&self, app: &App, listed: Listed) -> Result<Value, Refusal> {
        let files = listed.files.into_iter().map(|(name, size)| FileEntry { name, size }).collect();
        match neap_parallel::batches(files, &self.settings.by) {
            Ok(batches) => app.batches.begin(self.family.id.0, &batches).map_err(unkept)?,
            Err(fault) => app.batches.set_fault(self.family.id.0, &fault).map_err(unkept)?,
        }
        Ok(json!({}))
    }

    fn next(&self, app: &App, next: Next) -> Result<Value, Refusal> {
        let finished: Vec<Finished> = next
            .finished
            .into_iter()
            .map(|told| {
                let report = match (told.done, told.failed) {
                    (Some(Done { items, returned, rows }), _) => Report::Done { items, returned, rows },
                    (None, error) => {
                        Report::Failed { error: error.unwrap_or_else(|| "It failed without a word.".into()) }
                    }
                };
                Finished { number: told.number, report }
            })
            .collect();
        let family = self.family.id.0;
        let ending = self.family.is_ending() || app.batches.fault(family).map_err(unkept)?.is_some();
        let exchange = Exchange {
            family,
            holder: self.holder,
            finished: &finished,
            holding: &next.holding,
            want: if ending { 0 } else { next.want },
            max_retries: self.settings.max_retries,
            files_with_attempt: self.files_with_attempt,
        };
        let state = app.state();
        let given = app.batches.exchange(&exchange, &|holder| fate(&state, holder)).map_err(unkept)?;
        let counts = app.batches.counts(family).map_err(unkept)?;
        let over = ending || verdict(&counts, &self.settings) != Verdict::GoOn;
        let given: Vec<Value> =
            given.into_iter().map(|one| json!({"number": one.number, "files": one.files})).collect();
        Ok(json!({"given": given, "over": over, "wait_ms": limits::PARALLEL_ASK_AGAIN_MS}))
    }
}

/// What became of an attempt that holds mini-batches.
pub(crate) fn fate(state: &State, holder: Holder) -> Fate {
    match state.jobs.get(&JobId(holder.job)) {
        None => Fate::Ended,
        Some(job) if job.attempt().is_some_and(|attempt| attempt.number == holder.attempt) => Fate::Runs,
        Some(_) => Fate::Lost,
    }
}

/// Whether workers may write files that are stored when they end.
pub(crate) fn files_with_attempt(document: &JobDocument, settings: &Parallel) -> bool {
    document.outputs.iter().any(|(name, output)| {
        let only_rows =
            settings.append_row_to.as_ref() == Some(name) && matches!(output, OutputDocument::File { .. });
        !only_rows && output.more().direct.is_none()
    })
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|e| Refusal::because(Code::BadArgument, format!("The body cannot be read: {e}.")))
}

fn no_such(what: &str) -> Refusal {
    Refusal::because(Code::ResourceNotFound, format!("There is no '{what}' of parallel jobs."))
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
pub(crate) fn unkept(error: neap_parallel::Error) -> Refusal {
    internal(format!("The mini-batches could not be looked up: {error}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_to_its_limit() {
        for (count, expect) in [(0, 0), (3, 3), (FILES_MAX, FILES_MAX), (FILES_MAX + 9, FILES_MAX + 1)] {
            let body = format!(r#"{{"files":[{}]}}"#, vec![r#"["a",1]"#; count].join(","));
            assert_eq!(read::<Listed>(body.as_bytes()).unwrap().files.len(), expect);
        }
        assert!(read::<Listed>(br#"{"files":[["a"]]}"#).is_err());
    }

    #[tokio::test]
    async fn large_bodies_wait_for_each_other() {
        let of = |mib: usize| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_LENGTH, (mib << 20).into());
            headers
        };
        let held = (room(&of(250)).await.unwrap(), room(&of(250)).await.unwrap());
        let unannounced = HeaderMap::new();
        let mut third = std::pin::pin!(room(&unannounced));
        let early = std::future::poll_fn(|cx| std::task::Poll::Ready(third.as_mut().poll(cx).is_pending()));
        assert!(early.await);
        drop(held);
        assert!(third.await.is_ok());
    }
}
