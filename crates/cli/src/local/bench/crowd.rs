//! Several clients at once, each with a connection of its own and one request under way, submitting until all is in.

use super::clock;
use super::installation::Installation;
use super::samples::Samples;
use super::wire::Wire;
use super::workspace::Workspace;
use crate::failure::{Failure, Outcome};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub struct Crowd(Vec<Wire>);

impl Crowd {
    /// Everybody is connected before anything is measured.
    pub fn gather(installation: &Installation<'_>, clients: u32) -> Outcome<Self> {
        (0..clients).map(|_| installation.wire()).collect::<Outcome<_>>().map(Self)
    }

    /// Submits the jobs of these numbers, and gives how long each took to be acknowledged.
    pub fn submit(&mut self, workspace: &Workspace, body: &[u8], numbers: Range<u64>) -> Outcome<Samples> {
        let next = AtomicU64::new(numbers.start);
        let one = |wire: &mut Wire| -> Outcome<Samples> {
            let mut took = Samples::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return Ok(took);
                }
                let path = workspace.job_path(&workspace.job_name(number));
                let begun = clock::now();
                let sent = wire.put_bytes(&path, body);
                took.push(clock::ms_since(begun));
                if sent.is_err() {
                    // One that fails ends the others, too.
                    next.store(numbers.end, Ordering::Relaxed);
                }
                sent?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = self.0.iter_mut().map(|wire| scope.spawn(|| one(wire))).collect();
            let mut all = Ok(Samples::default());
            for thread in threads {
                let took = thread.join().unwrap_or_else(|_| Err(Failure::failed("a client panicked")));
                all = all.and_then(|mut all: Samples| {
                    all.extend(took?);
                    Ok(all)
                });
            }
            all
        })
    }
}
