//! Attempts as they run: how each can end, what they can see, and that nothing stays behind.
//!
//! The spawner must be forked before any thread exists, which the usual test harness cannot promise; so this
//! file brings its own small one, with the options that `cargo test` and `cargo nextest` use.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use neap_sandbox::{
    Attempt, AttemptLimits, Detached, Event, ExitRecord, JOBS_PLACE, Launch, Lease, Outcome, ProcessWatch,
    Spawner, SpawnerConfig, SpoolReader, USERS_FROM, View, boot_ms, fence_node, is_alive, spawn_detached,
    start_time,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const INSTALLATION: &str = "sandbox-tests";
const LONG_MS: u64 = 60_000;

type Test = fn(&World);

const TESTS: &[(&str, Test)] = &[
    ("exit_codes_are_told", exit_codes_are_told),
    ("a_signal_is_told", a_signal_is_told),
    ("memory_is_limited", memory_is_limited),
    ("a_timeout_is_told", a_timeout_is_told),
    ("stop_gives_grace_then_kills", stop_gives_grace_then_kills),
    ("a_patient_stop_waits_for_everybody", a_patient_stop_waits_for_everybody),
    ("daemons_do_not_stay_behind", daemons_do_not_stay_behind),
    ("the_lease_ends_an_attempt", the_lease_ends_an_attempt),
    ("an_attempt_ends_with_its_agent", an_attempt_ends_with_its_agent),
    ("a_lost_supervisor_leaves_nothing", a_lost_supervisor_leaves_nothing),
    ("output_is_bounded", output_is_bounded),
    ("output_comes_while_it_runs", output_comes_while_it_runs),
    ("an_attempt_sees_only_its_own", an_attempt_sees_only_its_own),
    ("closed_devices_open_for_nobody", closed_devices_open_for_nobody),
    ("what_cannot_start_says_why", what_cannot_start_says_why),
    ("the_environment_is_what_was_given", the_environment_is_what_was_given),
    ("without_a_shell_it_is_the_same", without_a_shell_it_is_the_same),
    ("a_spool_is_written_over", a_spool_is_written_over),
    ("a_fenced_node_has_no_processes", a_fenced_node_has_no_processes),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ignored = args.iter().any(|a| a == "--ignored");
    if args.iter().any(|a| a == "--list") {
        for (name, _) in TESTS.iter().filter(|_| !ignored) {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let exact = args.iter().any(|a| a == "--exact");
    let wanted: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let world = World::new();
    let mut failed = false;
    for (name, test) in TESTS {
        let chosen = wanted.iter().any(|w| if exact { *w == name } else { name.contains(w.as_str()) });
        if ignored || !(wanted.is_empty() || chosen) {
            continue;
        }
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&world))).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed |= !passed;
    }
    let World { spawner, node, root, .. } = world;
    drop(spawner);
    fence_node(INSTALLATION, node, root.path()).expect("nothing is left");
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct World {
    spawner: Spawner,
    lease: Lease,
    root: tempfile::TempDir,
    node: u64,
    counter: std::cell::Cell<u32>,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let node = u64::from(std::process::id());
        let spawner = Spawner::start(&SpawnerConfig {
            node_dir: root.path().into(),
            installation: INSTALLATION.into(),
            node,
            visible: Vec::new(),
            shared: Vec::new(),
            hide: vec![root.path().into()],
            network: None,
            listen: neap_sandbox::net::ListenSpec::default(),
        })
        .expect("a spawner");
        let lease = Lease::open(root.path()).expect("a lease");
        lease.renew_until(boot_ms() + LONG_MS);
        Self { spawner, lease, root, node, counter: std::cell::Cell::new(0) }
    }

    fn is_root(&self) -> bool {
        self.spawner.capabilities().root
    }

    fn isolated(&self) -> bool {
        self.spawner.capabilities().namespaces()
    }

    /// An attempt's folder and how it is launched with full isolation.
    fn full(&self, command: &str) -> Launch {
        let n = self.counter.get();
        self.counter.set(n + 1);
        let dir = self.root.path().join(format!("attempt-{n}"));
        let slot = n % 4;
        let user = self.is_root().then(|| USERS_FROM + n);
        for name in ["work", "work/wd", "tmp"] {
            fs::create_dir_all(dir.join(name)).unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o700)).unwrap();
            chown(dir.join(name), user, user).unwrap();
        }
        let cwd =
            if self.isolated() { PathBuf::from(JOBS_PLACE).join("job/wd") } else { dir.join("work/wd") };
        Launch {
            head_bytes: 0,
            own_program: None,
            command: command.into(),
            env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            cwd,
            timeout_ms: None,
            log_bytes_max: 1 << 20,
            view: Some(View {
                work_dir: dir.join("work"),
                job_name: "job".into(),
                tmp_dir: dir.join("tmp"),
                hide: vec![self.root.path().into()],
                user,
                binds: Vec::new(),
                closed_devices: Vec::new(),
                resolver: None,
                hosts: String::new(),
            }),
            slot,
            limits: AttemptLimits { cpus_milli: 1000, memory_mb: 64, processes: 64, file_bytes_max: None },
            attempt_dir: dir,
            beside: None,
            masked: Vec::new(),
        }
    }

    fn off(&self, command: &str) -> Launch {
        let full = self.full(command);
        Launch { view: None, cwd: full.attempt_dir.join("work/wd"), ..full }
    }

    fn both(&self, command: &str) -> [Launch; 2] {
        [self.full(command), self.off(command)]
    }

    fn start(&self, launch: &Launch) -> Running {
        Running {
            attempt: self.spawner.launch(launch, &neap_sandbox::AttemptNetwork::Own).expect("launched"),
            seen: Vec::new(),
            launch: launch.clone(),
        }
    }

    fn run(&self, launch: &Launch) -> Ran {
        self.start(launch).end()
    }
}

struct Running {
    attempt: Attempt,
    seen: Vec<Event>,
    launch: Launch,
}

struct Ran {
    record: ExitRecord,
    output: String,
}

impl Running {
    /// Waits until `done` finds what it looks for in what was said so far.
    fn until<T>(&mut self, what: &str, done: impl Fn(&[Event]) -> Option<T>) -> T {
        loop {
            if let Some(found) = done(&self.seen) {
                return found;
            }
            assert!(readable(&self.attempt, 30_000), "{what} within 30 s; heard {:?}", self.seen);
            let heard = self.attempt.events().unwrap();
            self.seen.extend(heard.events);
            assert!(
                !heard.closed || done(&self.seen).is_some(),
                "{what} before the end; heard {:?}",
                self.seen
            );
        }
    }

    fn started(mut self) -> Self {
        self.until("Started", |seen| seen.contains(&Event::Started).then_some(()));
        self
    }

    /// Waits until the head of the log holds a line.
    fn printed(mut self, line: &str) -> Self {
        let log = self.launch.attempt_dir.join("log");
        let line = format!("{line}\n");
        self.until("its line", |_| {
            fs::read_to_string(&log).unwrap_or_default().contains(&line).then_some(())
        });
        self
    }

    fn end(mut self) -> Ran {
        let record = self.until("Ended", |seen| match seen.last() {
            Some(Event::Ended(record)) => Some(record.clone()),
            _ => None,
        });
        let spool = SpoolReader::new(&self.launch.attempt_dir, self.launch.log_bytes_max);
        let output = spool.read(0, 1 << 24, Some(record.spool)).unwrap();
        Ran { record, output: String::from_utf8_lossy(&output).into_owned() }
    }
}

fn readable(fd: &impl AsFd, ms: i64) -> bool {
    let timeout = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Waits for a condition that the kernel gives no notice of.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = boot_ms() + 30_000;
    while !condition() {
        assert!(boot_ms() < deadline, "{what} within 30 s");
        let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: 2_000_000 });
    }
}

/// Whether any process on the machine has this text in its command line (and is not a zombie).
fn runs(marker: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { return false };
        pid != std::process::id()
            && fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
    })
}

fn marker(world: &World, name: &str) -> String {
    // A number of seconds that nobody else would sleep.
    format!("3{}.{:05}{name}", world.node, world.counter.get()).replace(|c: char| c.is_alphabetic(), "1")
}

fn exit_codes_are_told(world: &World) {
    for code in [0, 1, 7, 255] {
        for launch in world.both(&format!("echo out; echo err >&2; exit {code}")) {
            let ran = world.run(&launch);
            assert_eq!(ran.record.outcome, Outcome::Exited { code });
            assert_eq!(ran.output, "out\nerr\n");
        }
    }
}

fn a_signal_is_told(world: &World) {
    for launch in world.both("kill -USR1 $$") {
        assert_eq!(world.run(&launch).record.outcome, Outcome::Signaled { signal: libc::SIGUSR1 });
    }
}

fn memory_is_limited(world: &World) {
    if world.spawner.capabilities().cgroup.is_none() {
        println!("skipped: no cgroups can be made here, so memory is not limited");
        return;
    }
    // `tail` must hold the whole of one endless line.
    let ran = world.run(&world.full("head -c 300m /dev/zero | tail -n 1 > /dev/null; exit ${PIPESTATUS[1]}"));
    assert_eq!(ran.record.outcome, Outcome::OutOfMemory { limit_mb: 64 });
    // The count of an earlier attempt in the same slot is not held against the next.
    for _ in 0..4 {
        assert_eq!(world.run(&world.full("exit 3")).record.outcome, Outcome::Exited { code: 3 });
    }
}

fn a_timeout_is_told(world: &World) {
    for launch in world.both("trap 'echo asked; exit 0' TERM; sleep 1000 & wait") {
        let ran = world.run(&Launch { timeout_ms: Some(100), ..launch });
        assert_eq!((ran.record.outcome, ran.output.as_str()), (Outcome::TimedOut, "asked\n"));
    }
}

fn stop_gives_grace_then_kills(world: &World) {
    for launch in world.both("trap 'echo saved; exit 5' TERM; echo ready; sleep 1000 & wait") {
        let running = world.start(&launch).printed("ready");
        running.attempt.stop(LONG_MS).unwrap();
        let ran = running.end();
        assert_eq!((ran.record.outcome, ran.output.as_str()), (Outcome::Stopped, "ready\nsaved\n"));
    }
    for launch in world.both("trap '' TERM; echo ready; while true; do sleep 0.01; done") {
        let running = world.start(&launch).printed("ready");
        running.attempt.stop(30).unwrap();
        assert_eq!(running.end().record.outcome, Outcome::Stopped);
    }
    for launch in world.both("echo ready; sleep 1000") {
        let running = world.start(&launch).printed("ready");
        running.attempt.stop(LONG_MS).unwrap();
        running.attempt.stop(0).unwrap();
        assert_eq!(running.end().record.outcome, Outcome::Stopped);
    }
}

fn a_patient_stop_waits_for_everybody(world: &World) {
    // The outer shell ends with the signal; what it waited for has its own way of ending.
    let saves =
        "(trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done); echo never";
    for launch in world.both(saves) {
        let running = world.start(&launch).printed("ready");
        running.attempt.stop_patiently(LONG_MS).unwrap();
        let ran = running.end();
        // What a shell says of its children is its own.
        let output = ran.output.replace("Terminated\n", "");
        assert_eq!((ran.record.outcome, output.as_str()), (Outcome::Stopped, "ready\nsaved\n"));
    }
    for launch in world.both("(trap '' TERM; echo ready; while :; do sleep 0.01; done); echo never") {
        let running = world.start(&launch).printed("ready");
        running.attempt.stop_patiently(50).unwrap();
        assert_eq!(running.end().record.outcome, Outcome::Stopped);
    }
}

fn daemons_do_not_stay_behind(world: &World) {
    let mark = marker(world, "d");
    let command = format!(
        "for i in 1 2 3; do (setsid setsid sleep {mark} >/dev/null 2>&1 &) ; done; (trap '' TERM HUP; exec sleep {mark}) & \
         until [ $(grep -la {mark} /proc/[0-9]*/cmdline 2>/dev/null | wc -l) -ge 4 ]; do :; done; echo up"
    );
    for launch in world.both(&command) {
        let ran = world.run(&launch);
        assert_eq!((ran.record.outcome, ran.output.as_str()), (Outcome::Exited { code: 0 }, "up\n"));
        assert!(!runs(&mark), "a daemon stayed behind");
    }
}

fn the_lease_ends_an_attempt(world: &World) {
    let mark = marker(world, "l");
    world.lease.renew_until(boot_ms() + 100);
    for launch in world.both(&format!("sleep {mark}")) {
        let ran = world.run(&launch);
        assert_eq!(ran.record.outcome, Outcome::LeaseLost);
        assert!(!runs(&mark));
    }
    world.lease.renew_until(boot_ms() + LONG_MS);
}

fn an_attempt_ends_with_its_agent(world: &World) {
    let mark = marker(world, "a");
    for launch in world.both(&format!("trap '' TERM; setsid sleep {mark} & echo up; sleep {mark}")) {
        let running = world.start(&launch).printed("up");
        assert!(runs(&mark));
        drop(running);
        eventually("the attempt is gone", || !runs(&mark));
    }
}

fn a_lost_supervisor_leaves_nothing(world: &World) {
    let mark = marker(world, "s");
    for launch in world.both(&format!("setsid sleep {mark} & echo up; sleep {mark}")) {
        let mut running = world.start(&launch).printed("up");
        let supervisors =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", world.spawner.pid())).unwrap();
        for pid in supervisors.split_whitespace() {
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        loop {
            assert!(readable(&running.attempt, 30_000), "the handle closes");
            let heard = running.attempt.events().unwrap();
            assert!(!heard.events.iter().any(|e| matches!(e, Event::Ended(_))));
            if heard.closed {
                break;
            }
        }
        world.spawner.sweep(&running.attempt).unwrap();
        eventually("what the supervisor left behind is gone", || !runs(&mark));
    }
}

fn output_is_bounded(world: &World) {
    for launch in world.both("echo first; for i in $(seq 40000); do echo 0123456789abcdef$i; done; echo last")
    {
        let ran = world.run(&Launch { log_bytes_max: 10_000, ..launch.clone() });
        assert_eq!(ran.record.outcome, Outcome::Exited { code: 0 });
        assert!(ran.output.starts_with("first\n0123456789abcdef1\n"), "{}", &ran.output[..100]);
        assert!(ran.output.ends_with("0123456789abcdef40000\nlast\n"));
        assert!(ran.output.contains("bytes of output left out here; log_bytes_max is 10000]\n"));
        assert!(ran.output.len() < 10_200, "{}", ran.output.len());
        let on_disk: u64 = ["log", "log.tail"]
            .iter()
            .map(|name| fs::metadata(launch.attempt_dir.join(name)).unwrap().len())
            .sum();
        assert_eq!(on_disk, 10_000);
    }
}

fn output_comes_while_it_runs(world: &World) {
    for launch in world.both("echo one; read -t 1000 < <(sleep 1000); echo two") {
        let ours = "written by the agent\n";
        fs::write(launch.attempt_dir.join("log"), format!("{ours}and what another attempt left")).unwrap();
        let launch = Launch { head_bytes: ours.len() as u64, ..launch };
        let mut running = world.start(&launch).started();
        let expect = "written by the agent\none\n";
        let bytes = running.until("notice of its output", |seen| {
            seen.iter().rev().find_map(|event| match event {
                Event::Log { head_bytes } if *head_bytes >= expect.len() as u64 => Some(*head_bytes),
                _ => None,
            })
        });
        assert_eq!(bytes, expect.len() as u64);
        let spool = SpoolReader::new(&launch.attempt_dir, launch.log_bytes_max);
        assert_eq!(spool.read(0, bytes as usize, None).unwrap(), expect.as_bytes());
        running.attempt.stop(0).unwrap();
        assert_eq!(running.end().output, expect);
    }
}

fn an_attempt_sees_only_its_own(world: &World) {
    if !world.isolated() {
        println!("skipped: {}", world.spawner.capabilities().missing.join(" "));
        return;
    }
    let root = world.root.path().display();
    let launch = world.full(&format!(
        "echo made > file; echo $PWD; echo hidden: $(ls -A {root} 2>/dev/null | wc -l); echo tmp: $(ls -A /tmp | wc -l); \
         echo pids: $(ls -d /proc/[0-9]* | wc -l); cat /proc/1/comm; id -u; id -G; echo t > /tmp/t; echo s > /dev/shm/neap-s; \
         touch /mnt/azureml/x 2>/dev/null || echo refused; grep NoNewPrivs /proc/self/status; grep CapEff /proc/self/status"
    ));
    let ran = world.run(&launch);
    let user = launch.view.as_ref().unwrap().user;
    let id = user.unwrap_or_else(|| rustix::process::getuid().as_raw());
    let lines: Vec<&str> = ran.output.lines().collect();
    assert_eq!(lines[0], "/mnt/azureml/cr/j/job/wd");
    assert_eq!(lines[1..3], ["hidden: 0", "tmp: 0"], "{}", ran.output);
    assert!(["pids: 4", "pids: 5"].contains(&lines[3]), "its own few processes: {}", ran.output);
    assert_eq!(lines[4], "neap-supervisor");
    assert_eq!(lines[5], id.to_string());
    assert!(
        ran.output.contains("NoNewPrivs:\t1") && ran.output.contains("CapEff:\t0000000000000000"),
        "{}",
        ran.output
    );
    assert!(lines.contains(&"refused"), "{}", ran.output);
    let made = launch.attempt_dir.join("work/wd/file");
    assert_eq!(
        (fs::read_to_string(&made).unwrap().as_str(), fs::metadata(&made).unwrap().uid()),
        ("made\n", id)
    );
    assert!(launch.attempt_dir.join("tmp/t").exists() && !Path::new("/dev/shm/neap-s").exists());
    assert!(world.root.path().join("lease").exists(), "the host's own view is untouched");
}

fn closed_devices_open_for_nobody(world: &World) {
    if !world.isolated() {
        return;
    }
    let try_both = "for d in zero full; do head -c 0 /dev/$d && head -c 1 /dev/$d >/dev/null && echo open $d; done; ls /dev/zero";
    let ran = world.run(&world.full(try_both));
    assert_eq!(ran.output, "open zero\nopen full\n/dev/zero\n");
    let mut launch = world.full(try_both);
    if let Some(view) = &mut launch.view {
        view.closed_devices = vec!["/dev/zero".into(), "/dev/no-such-device".into()];
    }
    let ran = world.run(&launch);
    assert!(!ran.output.contains("open zero") && ran.output.contains("open full"), "{}", ran.output);
    assert!(ran.output.contains("ermission denied"), "{}", ran.output);
    // The next attempt of the slot has it again, and the machine never lost it.
    let again = Launch { slot: launch.slot, ..world.full(try_both) };
    assert!(world.run(&again).output.starts_with("open zero"));
    fs::File::open("/dev/zero").unwrap();
}

fn what_cannot_start_says_why(world: &World) {
    for launch in world.both("true") {
        let ran = world.run(&Launch { cwd: "/no/such/folder".into(), ..launch });
        let Outcome::NotStarted { step, message } = ran.record.outcome else { panic!("{:?}", ran.record) };
        assert_eq!(step, "entering the working folder");
        assert!(message.contains("No such file"), "{message}");
    }
}

fn the_environment_is_what_was_given(world: &World) {
    for launch in world.both("/usr/bin/env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= | sort; ls /proc/$$/fd; true")
    {
        let env = vec![("A".to_owned(), "b c".to_owned()), ("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let ran = world.run(&Launch { env, ..launch });
        let (env, fds) = ran.output.split_once("/bin\n").unwrap();
        assert_eq!(env, "A=b c\nPATH=/usr/bin:");
        assert_eq!(fds, "0\n1\n2\n", "no descriptor leaks in");
    }
}

/// The same command, plain and so that it takes a shell, must do the same.
fn without_a_shell_it_is_the_same(world: &World) {
    let scripts = |dir: &Path| {
        let files = [
            ("hash-bang", "#!/bin/sh\necho by sh: $0 $*; exit 4\n", 0o755),
            ("bare", "echo by the shell: $1; exit 5\n", 0o755),
            ("not-executable", "echo no\n", 0o644),
            ("no-interpreter", "#!/no/such/program\n", 0o755),
        ];
        for (name, text, mode) in files {
            let path = dir.join("work/wd").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let code = |ran: &Ran| match ran.record.outcome {
        Outcome::Exited { code } => code,
        ref other => panic!("{other:?}"),
    };
    for (command, expect) in [
        ("true", 0),
        ("false", 1),
        ("echo one two  three", 0),
        ("env", 0),
        ("sh -c pwd", 0),
        ("./hash-bang a b", 4),
        ("./bare a", 5),
        ("./not-executable", 126),
        ("./no-interpreter", 126),
        ("/bin", 126),
        ("./nothing", 127),
        ("no-such-program-anywhere x", 127),
        ("ls /no/such/file", 2),
    ] {
        for (plain, shell) in world.both(command).into_iter().zip(world.both(&format!("{command} #"))) {
            scripts(&plain.attempt_dir);
            // The second finds the same folders, so that every path in the output is the same.
            let shell = Launch { command: shell.command, ..plain.clone() };
            let [plain, shell] = [world.run(&plain), world.run(&shell)];
            let lines = |ran: &Ran| {
                let mut lines: Vec<String> = ran.output.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(lines(&plain), lines(&shell), "{command}");
            assert_eq!(code(&plain), code(&shell), "{command}: {}", plain.output);
            assert!(
                code(&plain) == expect || [126, 127].contains(&expect) && code(&plain) > 125,
                "{command}: {}",
                plain.output
            );
        }
    }
}

fn a_spool_is_written_over(world: &World) {
    for launch in world.both("exit 0") {
        for (command, expect) in [
            ("printf 'a long first line'", "a long first line"),
            ("true", ""),
            ("echo hi", "hi\n"),
            ("seq 3", "1\n2\n3\n"),
        ] {
            let ran = world.run(&Launch { command: command.into(), ..launch.clone() });
            assert_eq!((ran.record.outcome, ran.output.as_str()), (Outcome::Exited { code: 0 }, expect));
        }
    }
}

fn a_fenced_node_has_no_processes(world: &World) {
    let mark = marker(world, "f");
    let node = world.node + 10_000_000;
    let dir = tempfile::tempdir().unwrap();
    let command = format!("trap '' TERM HUP; (setsid sleep {mark} &); echo up; sleep {mark}");
    let log = dir.path().join("agent.log");
    let agent =
        spawn_detached(Path::new("/bin/bash"), &["-c", &command], INSTALLATION, node, dir.path(), &log)
            .unwrap();
    eventually("it runs", || fs::read_to_string(&log).unwrap() == "up\n");
    let watch = ProcessWatch::open(agent).unwrap().unwrap();
    assert!(is_alive(agent) && !readable(&watch, 0));
    assert_eq!(start_time(agent.pid), Some(agent.start_time));
    assert!(ProcessWatch::open(Detached { start_time: agent.start_time + 1, ..agent }).unwrap().is_none());
    fence_node(INSTALLATION, node, dir.path()).unwrap();
    assert!(readable(&watch, 10_000), "the watch tells its end");
    watch.reap();
    assert!(!is_alive(agent) && !runs(&mark));
    fence_node(INSTALLATION, node, dir.path()).unwrap();
}
