//! Ctrl-C and SIGTERM as a flag that every wait looks at, so that what was started is always taken down.

use crate::failure::{Failure, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes both signals from now on.
    pub fn listen() -> Outcome<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let raised = flag.clone();
        let cannot = |error: std::io::Error| Failure::failed(format!("signals cannot be watched: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let (mut interrupt, mut terminate) = {
            let _entered = runtime.enter();
            (
                signal(SignalKind::interrupt()).map_err(cannot)?,
                signal(SignalKind::terminate()).map_err(cannot)?,
            )
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                });
                raised.store(true, Ordering::Relaxed);
                // The streams stay open, so that a second Ctrl-C does not cut the clearing away short.
                std::mem::forget((runtime, interrupt, terminate));
            })
            .map_err(cannot)?;
        Ok(Self(flag))
    }

    /// For clearing away, which nothing interrupts.
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// A failure once somebody wants this to end.
    pub fn check(&self) -> Outcome<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::failed("interrupted; the benchmark was taken down"));
        }
        Ok(())
    }
}
