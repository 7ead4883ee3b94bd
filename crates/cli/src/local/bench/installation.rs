//! The server that is measured: one of its own in a temporary folder, taken down and removed whatever happens, or the
//! one that runs already.

use super::clock;
use super::interrupt::Interrupt;
use super::machine::{Machine, TICKS_PER_SECOND};
use super::wire::{Address, Wire};
use crate::args::Global;
use crate::connection::{Connection, server_file};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::settings::data_folder;
use crate::terminal::Terminal;
use clap::{Args, ValueEnum};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A killed process is gone in microseconds; this is for a machine in trouble.
const GONE_POLLS_MAX: u32 = 2_000;
/// Ports that are tried lie between these two, unless the system gives out lower ones.
const PORTS_FROM: u16 = 10_240;
const PORTS_GIVEN_OUT_FROM: u16 = 32_768;
const PORT_TRIES_MAX: u32 = 100;

/// What to measure.
#[derive(Debug, Clone, Args)]
pub struct Subject {
    /// What separates jobs in the server that is started: what the machine has, or nothing [default: full]
    #[arg(long, value_enum)]
    pub isolation: Option<Isolation>,
    /// Where the temporary data folder is made: its disk is measured [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Measure the idle server of --data or NEAP_HOME instead; the jobs stay in its ledger
    #[arg(long, conflicts_with_all = ["isolation", "scratch"])]
    pub here: bool,
    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Isolation {
    Full,
    Off,
}

/// What every benchmark is given.
#[derive(Debug)]
pub struct Bench<'a> {
    pub global: &'a Global,
    pub terminal: &'a Terminal,
    pub interrupt: Interrupt,
}

#[derive(Debug)]
pub struct Installation<'a> {
    bench: &'a Bench<'a>,
    program: PathBuf,
    pub data: PathBuf,
    /// It was made here and goes with the benchmark.
    pub own: bool,
    /// A start that nobody has waited for yet.
    starting: Option<Child>,
    pub address: Address,
    pub connection: Connection,
    pid: Pid,
    pub machine: Machine,
    pub isolation: String,
    /// Memory before any work.
    pub resident_idle: u64,
}

impl<'a> Installation<'a> {
    /// Starts (or finds) a server, measures, and takes down what was started.
    pub fn measure<T>(
        bench: &'a Bench<'a>,
        subject: &Subject,
        work: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        Self::measure_with(bench, subject, "", work)
    }

    /// The same, with these lines more below `local:` in the configuration of a server of its own.
    pub fn measure_with<T>(
        bench: &'a Bench<'a>,
        subject: &Subject,
        local: &str,
        work: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut installation =
            if subject.here { Self::running(bench)? } else { Self::temporary(bench, subject, local)? };
        let outcome = work(&mut installation);
        let closed = installation.close();
        let value = outcome?;
        closed.map(|()| value)
    }

    fn running(bench: &'a Bench<'a>) -> Outcome<Self> {
        let data = data_folder(bench.global.data.as_deref())?;
        let mut installation = Self::attach(bench, data, false)?;
        let jobs = &installation.status()?["jobs"];
        if jobs["queued"].as_u64() != Some(0) || jobs["running"].as_u64() != Some(0) {
            return Err(Failure::failed("this server has jobs to do; what would be measured is theirs too")
                .hint("wait until it is idle, or leave --here out to measure a server of its own"));
        }
        installation.isolation = "as configured".into();
        Ok(installation)
    }

    fn temporary(bench: &'a Bench<'a>, subject: &Subject, local: &str) -> Outcome<Self> {
        let data = temporary_folder(subject)?;
        let isolation = subject.isolation.unwrap_or(Isolation::Full);
        let word = if isolation == Isolation::Off { "off" } else { "full" };
        let config = data.join("config.yaml");
        let begun = std::fs::write(&config, format!("local:\n  isolation: {word}\n{local}"))
            .map_err(|error| Failure::file("write", &config, &error))
            .and_then(|()| program())
            .and_then(|program| run(&program, &data, &["up", "--listen", &free_address()?, "--detach"]))
            .and_then(|()| Self::attach(bench, data.clone(), true));
        match begun {
            Ok(mut installation) => {
                installation.isolation = word.into();
                Ok(installation)
            }
            Err(failure) => {
                // The server may have come up after all.
                let down = program().and_then(|program| take_down(&program, &data));
                if down.is_ok() {
                    let _ = std::fs::remove_dir_all(&data);
                }
                Err(failure)
            }
        }
    }

    fn attach(bench: &'a Bench<'a>, data: PathBuf, own: bool) -> Outcome<Self> {
        let none = || {
            Failure::failed(format!("no server runs on {}", data.display()))
                .hint("start it with 'neap up --detach', or leave --here out")
        };
        let server = server_file(&data)?.ok_or_else(none)?;
        let pid = Pid::from_raw(server.pid).ok_or_else(none)?;
        let connection = Connection::of_folder(&data)?.ok_or_else(none)?;
        let machine = Machine::look(&data);
        if own && machine.writes_to_memory() {
            let warning = "the temporary folder lies in memory: durable writes cost nothing there; choose a disk with --scratch DIR";
            bench.terminal.warning(warning);
        }
        let address = Address::of(&connection, &bench.interrupt)?;
        let program = program()?;
        let isolation = String::new();
        let mut installation = Self {
            bench,
            program,
            data,
            own,
            starting: None,
            address,
            connection,
            pid,
            machine,
            isolation,
            resident_idle: 0,
        };
        // What a start has begun is over by then, too.
        installation.machine.watch(bench.terminal);
        installation.resident_idle = installation.resident_bytes()?;
        Ok(installation)
    }

    pub fn bench(&self) -> &'a Bench<'a> {
        self.bench
    }

    pub fn wire(&self) -> Outcome<Wire> {
        Wire::open(&self.address)
    }

    pub fn status(&self) -> Outcome<Value> {
        self.wire()?.get("/neap/v1/status")
    }

    /// Another command of this program, as a user of this server would run it; its output is read through a pipe.
    pub fn client(&self, arguments: &[&str]) -> Outcome<Child> {
        command(&self.program, &self.data, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::failed(format!("neap {} cannot be run: {error}", arguments.join(" "))))
    }

    /// Memory of the server process, as the kernel counts it.
    pub fn resident_bytes(&self) -> Outcome<u64> {
        let path = PathBuf::from(format!("/proc/{}/status", self.pid.as_raw_nonzero()));
        let text = std::fs::read_to_string(&path).map_err(|error| Failure::file("read", &path, &error))?;
        resident_in(&text).ok_or_else(|| Failure::failed(format!("{} tells no VmRSS", path.display())))
    }

    pub fn threads(&self) -> Outcome<usize> {
        let path = PathBuf::from(format!("/proc/{}/task", self.pid.as_raw_nonzero()));
        let threads = std::fs::read_dir(&path).map_err(|error| Failure::file("read", &path, &error))?;
        Ok(threads.count())
    }

    /// Processor time that the server has used, in milliseconds.
    pub fn server_cpu_ms(&self) -> f64 {
        cpu_ms(&format!("/proc/{}/stat", self.pid.as_raw_nonzero()))
    }

    /// Ends the server politely and keeps its folder.
    pub fn stop(&mut self) -> Outcome<()> {
        take_down(&self.program, &self.data)
    }

    /// Starts the server again, on the port it had, and does not wait for it.
    pub fn begin_again(&mut self) -> Outcome<()> {
        let listen = format!("127.0.0.1:{}", self.address.port());
        let child = command(&self.program, &self.data, &["up", "--listen", &listen, "--detach"])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::failed(format!("the server cannot be started: {error}")))?;
        self.starting = Some(child);
        Ok(())
    }

    /// A failure if what [`Self::begin_again`] has started ended without success.
    pub fn check_beginning(&mut self) -> Outcome<()> {
        let ended = self.starting.as_mut().map(Child::try_wait);
        match (ended, self.starting.take()) {
            (Some(Ok(Some(status))), Some(child)) if !status.success() => said(child.wait_with_output()),
            (_, starting) => {
                self.starting = starting;
                Ok(())
            }
        }
    }

    /// Waits for [`Self::begin_again`] to say that the server serves, and learns which process it is.
    pub fn begun_again(&mut self) -> Outcome<()> {
        if let Some(child) = self.starting.take() {
            said(child.wait_with_output())?;
        }
        let server = server_file(&self.data)?.and_then(|server| Pid::from_raw(server.pid));
        self.pid =
            server.ok_or_else(|| Failure::failed("the server that was started says nothing of itself"))?;
        Ok(())
    }

    /// kill -9; returns when the process is gone.
    pub fn kill(&mut self) -> Outcome<()> {
        rustix::process::kill_process(self.pid, Signal::KILL)
            .map_err(|error| Failure::failed(format!("the server cannot be killed: {error}")))?;
        for _ in 0..GONE_POLLS_MAX {
            if !is_running(self.pid) {
                return Ok(());
            }
            clock::pause(Duration::from_micros(500));
        }
        Err(Failure::failed("the killed server does not go away"))
    }

    fn close(mut self) -> Outcome<()> {
        self.clear_away()
    }

    fn clear_away(&mut self) -> Outcome<()> {
        if !self.own {
            return Ok(());
        }
        self.own = false;
        let kept = |failure: Failure| failure.hint(format!("its folder is kept: {}", self.data.display()));
        if let Some(child) = self.starting.take() {
            // Whether it came up or not: what there is then goes down.
            let _ = child.wait_with_output();
        }
        take_down(&self.program, &self.data).map_err(kept)?;
        std::fs::remove_dir_all(&self.data).map_err(|error| Failure::file("remove", &self.data, &error))
    }
}

impl Drop for Installation<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.clear_away() {
            self.bench.terminal.failure(&failure);
        }
    }
}

fn temporary_folder(subject: &Subject) -> Outcome<PathBuf> {
    let parent = subject.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("neap-bench-{}", &names::uuid()?[..13]));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
        Failure::file("create", &folder, &error).hint("choose a folder with --scratch DIR")
    })?;
    Ok(folder)
}

/// A free port that the system does not give out by itself: one that it does could be taken by anybody's connection
/// while a killed server is away, even by one that looks for the server.
fn free_address() -> Outcome<String> {
    let given_out_from = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(PORTS_GIVEN_OUT_FROM);
    for _ in 0..PORT_TRIES_MAX {
        let number = u16::from_str_radix(&names::uuid()?[..4], 16).unwrap_or(PORTS_FROM);
        let port = PORTS_FROM + number % given_out_from.saturating_sub(PORTS_FROM).max(1);
        if let Ok(listener) = std::net::TcpListener::bind(("127.0.0.1", port)) {
            drop(listener);
            return Ok(format!("127.0.0.1:{port}"));
        }
    }
    Ok("127.0.0.1:0".into())
}

fn program() -> Outcome<PathBuf> {
    std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find out which program this is: {error}")))
}

/// This program on that folder, out of reach of a Ctrl-C that is meant for the benchmark.
fn command(program: &Path, data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg("--data")
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0);
    command
}

fn run(program: &Path, data: &Path, arguments: &[&str]) -> Outcome<()> {
    said(command(program, data, arguments).stderr(Stdio::piped()).output())
}

fn take_down(program: &Path, data: &Path) -> Outcome<()> {
    run(program, data, &["down", "--grace", "0"])
}

/// The other process's own words, if it failed.
fn said(output: std::io::Result<std::process::Output>) -> Outcome<()> {
    let output = output.map_err(|error| Failure::failed(format!("neap cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut failure = Failure::failed(
        text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or(text.trim()).to_owned(),
    );
    for hint in text.lines().filter_map(|line| line.strip_prefix("hint: ")) {
        failure = failure.hint(hint);
    }
    Err(failure)
}

/// A process whose first thread has ended goes on until the others have: only then are its files and locks let go.
fn is_running(pid: Pid) -> bool {
    let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let Ok(stat) = std::fs::read_to_string(folder.join("stat")) else { return false };
    let ended = stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    !ended || std::fs::read_dir(folder.join("task")).is_ok_and(|threads| threads.count() > 1)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

/// User and system time of a process by its `stat` file; 0 once it is gone.
pub fn cpu_ms(stat: &str) -> f64 {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks * 1e3 / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_is_read_from_the_kernels_words() {
        assert_eq!(super::resident_in("Name:\tneap\nVmRSS:\t   10240 kB\n"), Some(10_485_760));
        assert_eq!(super::resident_in("Name:\tneap\n"), None);
    }
}
