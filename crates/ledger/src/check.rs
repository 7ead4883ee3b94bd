//! The older chain, checked in the background: a start looks only at what came after its snapshot, this walks the rest.
//! On damage the ledger takes no more writes and says why; reading goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use crate::chain::{Head, read_events};
use crate::database;
use crate::error::Error;
use crate::limits;
use crate::reader::Damage;

/// Stops and waits for its thread when dropped.
#[derive(Debug)]
pub(crate) struct ChainCheck {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    checked: AtomicU64,
}

impl ChainCheck {
    /// Checks from the first record to the one the snapshot was made of.
    pub(crate) fn begin(path: &Path, until: Head, damage: Damage) -> Result<Self, Error> {
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), checked: AtomicU64::new(0) });
        let (path, on_thread): (PathBuf, _) = (path.into(), shared.clone());
        let worker = thread::Builder::new()
            .name("chain-check".into())
            .spawn({
                let path = path.clone();
                move || {
                    // For this thread alone; if it is not allowed, the check is only less polite.
                    let _ = rustix::process::setpriority_process(None, 19);
                    report(walk(&path, until, &on_thread), &damage);
                }
            })
            .map_err(Error::folder("starting the check of", &path))?;
        Ok(Self { shared, worker: Some(worker) })
    }

    /// The last record that was found good.
    pub(crate) fn checked(&self) -> u64 {
        self.shared.checked.load(Ordering::Relaxed)
    }

    pub(crate) fn wait(&mut self) {
        if let Some(worker) = self.worker.take() {
            // A panic there has been printed; it says nothing about the log.
            let _ = worker.join();
        }
    }
}

impl Drop for ChainCheck {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.wait();
    }
}

fn walk(path: &Path, until: Head, shared: &Shared) -> Result<(), Error> {
    let connection = database::open_reader(path)?;
    let mut head = Head::EMPTY;
    while head.seq < until.seq && !shared.stop.load(Ordering::Relaxed) {
        let upto = until.seq.min(head.seq + limits::CHECK_CHUNK_RECORDS);
        read_events(&connection, path, head.seq, upto, |record| Ok(head.follow(&record)?))?;
        if head.seq != upto {
            return Err(Error::damaged(head.seq + 1, "is missing"));
        }
        shared.checked.store(head.seq, Ordering::Relaxed);
        thread::yield_now();
    }
    if head.seq == until.seq && head.hash != until.hash {
        return Err(Error::damaged(head.seq, "is not the one its snapshot was made of"));
    }
    Ok(())
}

fn report(walked: Result<(), Error>, damage: &Damage) {
    match walked {
        Ok(()) => {}
        Err(error @ Error::Damaged { .. }) => {
            tracing::error!(%error, "the older log is damaged: the server is now read-only");
            // Set once: the first damage is the one to tell.
            let _ = damage.set(error.to_string());
        }
        // Not being able to look is not damage: `neap verify` will tell.
        Err(error) => tracing::warn!(%error, "the older log could not be checked"),
    }
}
