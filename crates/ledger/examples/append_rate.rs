//! How many events per second the ledger takes, by batch size, and how long a start takes.
//!
//! `cargo run -p neap-ledger --example append_rate [FOLDER]`: the folder's file system is the one that is measured.

#![allow(clippy::print_stdout)] // A program whose only purpose is to print figures.
#![allow(clippy::disallowed_methods)] // It measures time.

use std::path::Path;
use std::time::{Duration, Instant};

use neap_core::cluster::{Scale, Shape, Tier};
use neap_core::event::{
    AttemptFinalizing, AttemptStarted, ClusterCreated, JobEnded, JobPlaced, JobSubmitted, NodeReady,
    NodeRequested,
};
use neap_core::job::{AttemptFacts, Exit, Need, Outcome};
use neap_core::{Capacity, ClusterId, Event, JobId, MicroUsd, Millis, NodeId, State, WorkspaceId, apply};
use neap_ledger::{Batch, Document, Entry, Error, Ledger, Options};

const NODE: Capacity = Capacity { cpus_milli: 4_000, memory_mb: 14_336, gpus: 0 };

/// Jobs one after the other on one node, five events each.
#[derive(Default)]
struct Work {
    state: State,
    events: u64,
    job: u64,
}

impl Work {
    fn batch(&mut self, size: usize) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        while batch.entries.len() < size {
            let event = self.next(&mut batch)?;
            let at = Millis(1_700_000_000_000 + self.events);
            apply::apply(&mut self.state, at, &event);
            self.events += 1;
            batch.entries.push(Entry { at, actor: "bench".into(), event, postings: Vec::new() });
        }
        Ok(batch)
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Event, Error> {
        let (id, attempt) = (JobId(self.job), 1);
        let mut document = || -> Result<_, Error> {
            let document = Document::new(vec![b'x'; 300])?;
            let hash = document.hash;
            batch.documents.push(document);
            Ok(hash)
        };
        Ok(match self.events {
            0 => ClusterCreated {
                id: ClusterId(1),
                workspace: WorkspaceId(1),
                name: "cpu".into(),
                location: "eastus".into(),
                shape: Shape {
                    size: "STANDARD_DS3_V2".into(),
                    family: "standardDSv2Family".into(),
                    nominal: NODE,
                    tier: Tier::Dedicated,
                    price: MicroUsd(1),
                },
                network: None,
                scale: Scale { min: 0, max: 4, idle_ms: 120_000 },
                floor: None,
                document: document()?,
                reference: None,
            }
            .into(),
            1 => NodeRequested {
                id: NodeId(1),
                cluster: ClusterId(1),
                nominal: NODE,
                shape: None,
                lease: None,
                cause: None,
                deadline: Millis(u64::MAX >> 1),
                reason: "work waits".into(),
            }
            .into(),
            2 => NodeReady { id: NodeId(1), actual: NODE, isolation: "cgroup".into() }.into(),
            n => match n % 5 {
                3 => {
                    self.job += 1;
                    JobSubmitted {
                        tags: vec![],
                        id: JobId(self.job),
                        workspace: WorkspaceId(1),
                        cluster: ClusterId(1),
                        name: format!("job-{}", self.job).into(),
                        owner: "bench".into(),
                        priority: 100,
                        need: Need::Whole,
                        nodes: 1,
                        family: None,
                        after: Vec::new(),
                        work: None,
                        timeout_ms: None,
                        retry: None,
                        like: None,
                        tier: Default::default(),
                        document: document()?,
                        meta: document()?,
                    }
                    .into()
                }
                4 => JobPlaced { id, attempt, node: NodeId(1), others: Vec::new(), until: None }.into(),
                0 => {
                    AttemptStarted { id, attempt, report: 1, run_deadline: None, facts: AttemptFacts::new() }
                        .into()
                }
                1 => AttemptFinalizing { id, attempt, report: 2 }.into(),
                _ => JobEnded {
                    id,
                    attempt: Some(1),
                    exit: Some(Exit::Success),
                    outcome: Outcome::completed(),
                }
                .into(),
            },
        })
    }
}

fn main() -> Result<(), Error> {
    let parent = std::env::args_os().nth(1).unwrap_or_else(|| std::env::temp_dir().into());
    let dir = Path::new(&parent).join(format!("neap-append-rate-{}", std::process::id()));
    let measured = measure(&dir);
    if let Err(error) = std::fs::remove_dir_all(&dir) {
        println!("{} stays behind: {error}", dir.display());
    }
    measured
}

fn measure(dir: &Path) -> Result<(), Error> {
    for size in [1, 10, 100, 1000] {
        let mut ledger = Ledger::open(&dir.join(format!("by-{size}")), Options::default())?.ledger;
        let (events, took) = append_for(&mut ledger, &mut Work::default(), size, Duration::from_secs(2))?;
        let rate = events as f64 / took.as_secs_f64();
        let each = took.as_secs_f64() * 1e6 * size as f64 / events as f64;
        println!("batches of {size:>4}: {rate:>9.0} events/s, {each:>7.0} us per batch");
    }
    let dir = dir.join("start");
    let mut work = Work::default();
    for (total, name) in [(100_000, "10^5"), (1_000_000, "10^6")] {
        let mut ledger = Ledger::open(&dir, Options::default())?.ledger;
        while work.events < total {
            let batch = work.batch(1000)?;
            ledger.append(Millis(0), &batch)?;
            if ledger.snapshot_due() {
                let head = ledger.head();
                ledger.write_snapshot(&work.state, head)?;
            }
        }
        ledger.wait_for_snapshot()?;
        drop(ledger);
        start(&dir, name, &work.state)?;
        std::fs::remove_dir_all(dir.join("snapshots")).map_err(|source| Error::Folder {
            doing: "removing",
            path: dir.join("snapshots"),
            source,
        })?;
        start(&dir, &format!("{name} without a snapshot"), &work.state)?;
    }
    Ok(())
}

fn start(dir: &Path, name: &str, expected: &State) -> Result<(), Error> {
    let begun = Instant::now();
    let opened = Ledger::open(dir, Options::default())?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    let same = if opened.state == *expected { "the same" } else { "DIFFERS" };
    println!("start at {name}: {took:.0} ms, {} replayed, state {same}", opened.replayed);
    Ok(())
}

fn append_for(
    ledger: &mut Ledger,
    work: &mut Work,
    size: usize,
    span: Duration,
) -> Result<(u64, Duration), Error> {
    let (mut events, mut spent) = (0, Duration::ZERO);
    while spent < span {
        let batch = work.batch(size)?;
        let begun = Instant::now();
        ledger.append(Millis(0), &batch)?;
        spent += begun.elapsed();
        events += size as u64;
    }
    Ok((events, spent))
}
