//! Job logs: as a signed URL for clients that poll whole files, and followed byte by byte for `neap job stream`.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use neap_core::state::Workspace;
use neap_core::{Code, JobId, Refusal};
use neap_ledger::JobRow;
use neap_storage::{BlobAddress, Follower};
use tokio::sync::watch;

use crate::app::{App, unreadable};
use crate::arm::{errors, find_job};
use crate::ask::Ask;
use crate::{reply, story, workspace_files};

/// `/neap/logs/{account}/{job id}?…sig=`: the whole log, only whole lines while the job runs.
pub(crate) async fn signed(app: &App, ask: &Ask, account: &str, job: &str) -> Result<Response, Refusal> {
    let missing = || errors::not_found("Log", job);
    let id: u64 = job.parse().map_err(|_| missing())?;
    let (rank, caller) = workspace_files::check_log_url(app, &ask.query, account, id)?;
    let row = app.control.reader().job_by_id(JobId(id)).map_err(unreadable)?.ok_or_else(missing)?;
    let response = if row.is_family {
        reply::text(story::tell(app, &row)?)
    } else {
        let (address, length) = workspace_files::log_extent(app, &row, rank).await?;
        let mut response = reply::text(whole(app, address, length));
        reply::set(&mut response, "content-length", &length.to_string());
        response
    };
    // Whoever has read the log of a running job goes on reading; nobody has to be told to look once more.
    app.memory.mark_log_read(&caller, id);
    Ok(response)
}

/// So much of a log, piece by piece: a long one is never in memory as a whole.
fn whole(app: &App, address: BlobAddress, length: u64) -> Body {
    let app = app.clone();
    Body::from_stream(stream::try_unfold(0, move |offset| {
        let (app, address) = (app.clone(), address.clone());
        async move {
            if offset >= length {
                return Ok(None);
            }
            let piece = workspace_files::read_piece(&app, address, offset).await;
            let mut piece = piece.map_err(|refusal| std::io::Error::other(refusal.to_string()))?;
            piece.truncate(usize::try_from(length - offset).unwrap_or(usize::MAX));
            if piece.is_empty() {
                return Err(std::io::Error::other("the log became shorter while it was read"));
            }
            let next = offset + piece.len() as u64;
            Ok(Some((Bytes::from(piece), next)))
        }
    }))
}

/// `jobs/{j}/log?offset=N&follow=true`.
pub(crate) async fn get(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let row = find_job(app, workspace, name)?;
    let offset = match ask.query.get("offset") {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            Refusal::because(Code::BadArgument, format!("'{text}' is not an offset in bytes."))
        })?,
    };
    let tail = Tail::open(app, &row, offset, ask.query.flag("follow"))?;
    let body = Body::from_stream(stream::try_unfold(tail, |mut tail| async move {
        let piece = tail.next().await.map_err(|refusal| std::io::Error::other(refusal.to_string()))?;
        Ok::<_, std::io::Error>(piece.map(|bytes| (Bytes::from(bytes), tail)))
    }));
    let mut response = reply::text(body);
    reply::set(&mut response, "x-neap-log-offset", &offset.to_string());
    reply::set(&mut response, "cache-control", "no-store");
    Ok(response)
}

/// A log being read to its end, and beyond as it grows.
struct Tail {
    app: App,
    job: JobId,
    is_family: bool,
    address: BlobAddress,
    offset: u64,
    /// Present while following.
    follower: Option<(Follower, watch::Receiver<u64>)>,
}

impl Tail {
    fn open(app: &App, row: &JobRow, offset: u64, follow: bool) -> Result<Self, Refusal> {
        let address = workspace_files::log_address(row)?;
        let follower = if follow {
            Some((app.store.watch(&address).map_err(workspace_files::storage)?, app.control.changes()))
        } else {
            None
        };
        Ok(Self { app: app.clone(), job: row.id, is_family: row.is_family, address, offset, follower })
    }

    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        loop {
            // Looked at before reading: bytes that come in between are read by the next turn at the latest.
            let is_final = self.is_final()?;
            let bytes = self.piece().await?;
            if !bytes.is_empty() {
                self.offset += bytes.len() as u64;
                return Ok(Some(bytes));
            }
            let Some((follower, changes)) = &mut self.follower else { return Ok(None) };
            if is_final {
                return Ok(None);
            }
            // All that was announced has been read, or the offset lies beyond it.
            let length = follower.length();
            if length > self.offset {
                continue;
            }
            tokio::select! {
                _ = follower.grown(length) => {}
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// What lies beyond the offset. The log of a family is told, not stored.
    async fn piece(&self) -> Result<Vec<u8>, Refusal> {
        if !self.is_family {
            return workspace_files::read_piece(&self.app, self.address.clone(), self.offset).await;
        }
        let Some(row) = self.app.control.reader().job_by_id(self.job).map_err(unreadable)? else {
            return Ok(Vec::new());
        };
        let told = story::tell(&self.app, &row)?;
        Ok(told
            .as_bytes()
            .get(usize::try_from(self.offset).unwrap_or(usize::MAX)..)
            .unwrap_or_default()
            .to_vec())
    }

    /// A deleted job has ended too.
    fn is_final(&self) -> Result<bool, Refusal> {
        if self.app.state().is_alive(self.job) {
            return Ok(false);
        }
        Ok(self
            .app
            .control
            .reader()
            .job_by_id(self.job)
            .map_err(unreadable)?
            .is_none_or(|row| row.status.is_final()))
    }
}
