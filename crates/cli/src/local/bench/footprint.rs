//! `neap bench footprint`: what a server that does nothing costs, alone and with many nodes that do nothing.
//!
//! The nodes are simulated (`neap_agent::simulated`): this process plays their agents over real connections.

use super::clock;
use super::installation::{Bench, Installation, Subject};
use super::interrupt::Interrupt;
use super::report::{Report, Unit};
use super::wire::Wire;
use super::workspace::{Shape, Workspace};
use crate::failure::{Failure, Outcome};
use clap::Args;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Nodes are written down and not started, and as many as are asked for.
const CONFIG: &str = "  simulated_agents: true\n  max_nodes: 65000\n";
/// Between two looks for nodes whose agents are to be played.
const LOOK: Duration = Duration::from_millis(50);
/// Everybody has joined by then, also on a small machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// What joining has begun is over by then.
const SETTLE: Duration = Duration::from_secs(3);
/// How long an idle server is watched.
const WATCH: Duration = Duration::from_secs(5);
/// Files that a process has open besides its connections.
const FILES_BESIDE: u64 = 256;

#[derive(Debug, Args)]
pub struct FootprintArgs {
    /// How many connected agents, one number after the other, growing
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000],
        value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub agents: Vec<u32>,
    #[command(flatten)]
    pub subject: Subject,
}

pub fn run(args: &FootprintArgs, bench: &Bench<'_>) -> Outcome<Report> {
    if args.subject.here {
        return Err(Failure::usage("footprint needs a server with simulated agents: it takes no --here"));
    }
    if !args.agents.is_sorted() {
        return Err(Failure::usage("--agents: the numbers must grow"));
    }
    allow_files(u64::from(args.agents.last().copied().unwrap_or(0)) + FILES_BESIDE)?;
    Installation::measure_with(bench, &args.subject, CONFIG, |installation| measure(args, installation))
}

/// A connection is an open file, here and in the server, which inherits the limit.
fn allow_files(needed: u64) -> Outcome<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|limit| limit >= needed) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })
        .ok()
        .filter(|()| now.maximum.is_none_or(|limit| limit >= needed))
        .ok_or_else(|| {
            Failure::failed(format!("{needed} open files are needed, and this process may not have so many"))
                .hint(format!("raise the limit (ulimit -n {needed}), or ask for fewer --agents"))
        })
}

fn measure(args: &FootprintArgs, installation: &Installation<'_>) -> Outcome<Report> {
    let mut wire = installation.wire()?;
    let workspace = Workspace::prepare(installation, &mut wire, Shape::small(0, 0, 3_600))?;
    let counts: Vec<String> = args.agents.iter().map(u32::to_string).collect();
    let about = format!("an idle server, alone and with {} connected agents", counts.join(", then "));
    let mut report = Report::new("footprint", about, installation);
    report.parameter("agents", args.agents.clone());
    watch(&mut report, installation, 0)?;
    let players = Players::begin(installation.data.join("nodes"))?;
    let mut before = 0;
    for agents in args.agents.iter().copied() {
        installation.bench().terminal.note(&format!("{agents} agents join"));
        let begun = clock::now();
        workspace.create_cluster(&mut wire, &workspace.cluster, Shape::small(agents, agents, 3_600))?;
        wait_for_idle(&mut wire, agents, &installation.bench().interrupt)?;
        let rate = f64::from(agents - before) / begun.elapsed().as_secs_f64();
        report.one(
            &format!("joins_per_second_{agents}"),
            &format!("joins, up to {agents} agents"),
            Unit::PerSecond,
            rate,
        );
        before = agents;
        clock::pause(SETTLE);
        watch(&mut report, installation, agents)?;
    }
    drop(players);
    Ok(report)
}

fn watch(report: &mut Report, installation: &Installation<'_>, agents: u32) -> Outcome<()> {
    let cpu = installation.server_cpu_ms();
    clock::pause(WATCH);
    let share = (installation.server_cpu_ms() - cpu) / (WATCH.as_secs_f64() * 1e3);
    let memory = installation.resident_bytes()?;
    let label = |what: &str| format!("{what}, {agents} agents");
    report.one(&format!("resident_bytes_{agents}"), &label("server memory"), Unit::Bytes, memory as f64);
    if agents > 0 {
        let more = memory.saturating_sub(installation.resident_idle) as f64 / f64::from(agents);
        report.one(&format!("bytes_per_agent_{agents}"), &label("bytes for each"), Unit::Count, more);
    }
    report.one(
        &format!("threads_{agents}"),
        &label("server threads"),
        Unit::Count,
        installation.threads()? as f64,
    );
    report.one(&format!("core_share_{agents}"), &label("share of one core"), Unit::Share, share);
    Ok(())
}

fn wait_for_idle(wire: &mut Wire, wanted: u32, interrupt: &Interrupt) -> Outcome<()> {
    let begun = clock::now();
    loop {
        interrupt.check()?;
        let nodes = &wire.get("/neap/v1/status")?["nodes"];
        if nodes["idle"].as_u64() == Some(wanted.into()) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::failed(format!("{wanted} idle nodes were waited for; there are: {nodes}")));
        }
        clock::pause(Duration::from_millis(200));
    }
}

/// A thread that plays the agent of every node that is written down.
struct Players {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Players {
    fn begin(nodes: PathBuf) -> Outcome<Self> {
        neap_agent::simulated::silence();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("the agents cannot be played: {error}")))?;
        let over = Arc::new(AtomicBool::new(false));
        let ask = over.clone();
        let thread = std::thread::spawn(move || {
            tokio::task::LocalSet::new().block_on(&runtime, play_all(&nodes, &ask));
        });
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for Players {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn play_all(nodes: &Path, over: &AtomicBool) {
    let mut played: BTreeSet<OsString> = BTreeSet::new();
    while !over.load(Ordering::Relaxed) {
        for entry in std::fs::read_dir(nodes).into_iter().flatten().flatten() {
            let dir = entry.path();
            // Until it is written to the end, it is no configuration.
            if !played.contains(&entry.file_name()) && neap_agent::NodeConfig::read(&dir).is_ok() {
                played.insert(entry.file_name());
                tokio::task::spawn_local(async move {
                    // One that fails is missed in the count of idle nodes.
                    let _ = neap_agent::simulated::play(&dir).await;
                });
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
