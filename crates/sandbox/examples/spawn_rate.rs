//! How many attempts a second the spawner starts and ends, beside a bare spawn in the same run.
//!
//! `cargo run --release -p neap-sandbox --example spawn_rate [seconds] [at once] [number]`

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use neap_sandbox::{
    Attempt, AttemptLimits, Event, JOBS_PLACE, Launch, Lease, NodeCgroup, Outcome, Spawner, SpawnerConfig,
    USERS_FROM, View, boot_ms, fence_node,
};
use rustix::event::{PollFd, PollFlags, poll};

const NODE: u64 = 1;
const ROUNDS: usize = 15;
/// With HOME and SHELL set, bash does not look its user up.
const ENV: [(&str, &str); 3] = [("PATH", "/usr/bin:/bin"), ("HOME", "/tmp"), ("SHELL", "/bin/bash")];
const BARE_BASH: [&CStr; 3] = [c"/bin/bash", c"-c", c"true"];
const ENV_TEXT: [&CStr; 3] = [c"PATH=/usr/bin:/bin", c"HOME=/tmp", c"SHELL=/bin/bash"];

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let (seconds, at_once) = (args.next().unwrap_or(3), args.next().unwrap_or(2));
    let root = tempfile::tempdir().expect("a folder");
    let installation = "spawn-rate".to_owned();
    let config = SpawnerConfig {
        node_dir: root.path().into(),
        installation: installation.clone(),
        node: NODE,
        visible: Vec::new(),
        shared: Vec::new(),
        hide: vec![root.path().into()],
        network: None,
        listen: neap_sandbox::net::ListenSpec::default(),
    };
    let spawner = Spawner::start(&config).expect("a spawner");
    let lease = Lease::open(root.path()).expect("a lease");
    lease.renew_until(boot_ms() + 1_000_000);

    let only = std::env::args().nth(3);
    let mut rates: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut measure = |name, rate: &dyn Fn() -> f64| {
        if only.as_ref().is_none_or(|only| str::starts_with(name, only.as_str())) {
            rates.entry(name).or_default().push(rate());
        }
    };
    // Many short rounds, each of all: what else the machine does then falls on all alike.
    for _ in 0..ROUNDS {
        let ms = seconds * 1000 / ROUNDS;
        measure("1 bare posix_spawn /bin/true", &|| bare(ms, at_once, &["/bin/true"]));
        measure("2 bare posix_spawn bash -c true", &|| bare(ms, at_once, &["/bin/bash", "-c", "true"]));
        measure("3 attempts, isolation off", &|| attempts(&spawner, root.path(), ms, at_once, false));
        measure("4 bare bash in namespaces and cgroup", &|| bare_isolated(ms, at_once, &BARE_BASH));
        measure("5 bare true in namespaces and cgroup", &|| bare_isolated(ms, at_once, &[c"/bin/true"]));
        measure("6 attempts, isolation full", &|| attempts(&spawner, root.path(), ms, at_once, true));
    }
    let mut out = std::io::stdout();
    for (name, rates) in &mut rates {
        rates.sort_by(f64::total_cmp);
        let (least, median, most) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
        let _ = writeln!(out, "{name:40} median {median:6.0} /s   ({least:.0} to {most:.0})");
    }
    drop(spawner);
    let _ = fence_node(&installation, NODE, root.path());
}

fn spawn(argv: &[&str]) -> i32 {
    let owned: Vec<CString> = argv.iter().map(|a| CString::new(*a).expect("text")).collect();
    let mut pointers: Vec<*mut libc::c_char> = owned.iter().map(|a| a.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let mut env: Vec<*mut libc::c_char> = ENV_TEXT.iter().map(|text| text.as_ptr().cast_mut()).collect();
    env.push(std::ptr::null_mut());
    let mut pid = 0;
    // SAFETY: every pointer is valid for the call and both arrays end with null.
    let failed = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            pointers[0],
            std::ptr::null(),
            std::ptr::null(),
            pointers.as_ptr(),
            env.as_ptr(),
        )
    };
    assert_eq!(failed, 0);
    pid
}

fn wait_any() {
    // SAFETY: a null status pointer is allowed.
    unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn bare(ms: usize, at_once: usize, argv: &[&str]) -> f64 {
    let begin = Instant::now();
    let mut done = 0;
    let mut live = 0;
    while begin.elapsed().as_millis() < ms as u128 {
        while live < at_once {
            spawn(argv);
            live += 1;
        }
        wait_any();
        live -= 1;
        done += 1;
    }
    for _ in 0..live {
        wait_any();
    }
    f64::from(done) / begin.elapsed().as_secs_f64()
}

/// The least that a spawn into the same namespaces and cgroup costs: clone, join, mount /proc, exec.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn bare_isolated(ms: usize, at_once: usize, argv: &[&CStr]) -> f64 {
    let mut argv: Vec<_> = argv.iter().map(|word| word.as_ptr()).collect();
    argv.push(std::ptr::null());
    let _ = NodeCgroup::create("spawn-rate-bare", NODE);
    let mut procs = Vec::new();
    for controller in ["cpu", "memory", "pids", ""] {
        let dir = Path::new("/sys/fs/cgroup").join(controller).join("neap/spawn-rate-bare/1/bare");
        if fs::create_dir_all(&dir).is_ok()
            && let Ok(file) = fs::OpenOptions::new().write(true).open(dir.join("cgroup.procs"))
        {
            procs.push(file);
        }
    }
    let begin = Instant::now();
    let mut done = 0;
    let mut live = 0;
    while begin.elapsed().as_millis() < ms as u128 {
        while live < at_once {
            // SAFETY: this process is single-threaded; the child makes plain calls and executes.
            unsafe {
                let mut args: libc::clone_args = std::mem::zeroed();
                args.flags =
                    (libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;
                args.exit_signal = libc::SIGCHLD as u64;
                let pid = libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>());
                if pid == 0 {
                    for file in &mut procs {
                        let _ = file.write_all(b"0");
                    }
                    libc::mount(
                        c"none".as_ptr(),
                        c"/".as_ptr(),
                        c"".as_ptr(),
                        libc::MS_REC | libc::MS_PRIVATE,
                        std::ptr::null(),
                    );
                    libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), 0, std::ptr::null());
                    let env =
                        [ENV_TEXT[0].as_ptr(), ENV_TEXT[1].as_ptr(), ENV_TEXT[2].as_ptr(), std::ptr::null()];
                    libc::execve(argv[0], argv.as_ptr(), env.as_ptr());
                    libc::_exit(127);
                }
                assert!(pid > 0, "needs root");
            }
            live += 1;
        }
        wait_any();
        live -= 1;
        done += 1;
    }
    for _ in 0..live {
        wait_any();
    }
    let rate = f64::from(done) / begin.elapsed().as_secs_f64();
    let _ = fence_node("spawn-rate-bare", NODE, Path::new("/nonexistent"));
    rate
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn attempts(spawner: &Spawner, root: &Path, ms: usize, at_once: usize, full: bool) -> f64 {
    let launches: Vec<Launch> = (0..at_once as u32)
        .map(|slot| {
            let dir = root.join(format!("slot-{slot}"));
            let user = spawner.capabilities().root.then(|| USERS_FROM + slot);
            for name in ["work/wd", "tmp"] {
                fs::create_dir_all(dir.join(name)).expect("a folder");
            }
            let view = View {
                work_dir: dir.join("work"),
                job_name: "job".into(),
                tmp_dir: dir.join("tmp"),
                hide: vec![root.into()],
                user,
                binds: Vec::new(),
                closed_devices: Vec::new(),
                resolver: None,
                hosts: String::new(),
            };
            let apart = full && spawner.capabilities().namespaces();
            Launch {
                head_bytes: 0,
                own_program: None,
                command: "true".into(),
                env: ENV.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
                cwd: if apart { PathBuf::from(JOBS_PLACE).join("job/wd") } else { dir.join("work/wd") },
                timeout_ms: None,
                log_bytes_max: 1 << 20,
                view: full.then_some(view),
                slot,
                limits: AttemptLimits {
                    cpus_milli: 2000,
                    memory_mb: 1000,
                    processes: 1000,
                    file_bytes_max: None,
                },
                attempt_dir: dir,
                beside: None,
                masked: Vec::new(),
            }
        })
        .collect();
    let mut live: Vec<(usize, Attempt)> = Vec::new();
    let begin = Instant::now();
    let mut done = 0;
    for (slot, launch) in launches.iter().enumerate() {
        live.push((slot, spawner.launch(launch, &neap_sandbox::AttemptNetwork::Own).expect("launched")));
    }
    while !live.is_empty() {
        let mut fds: Vec<PollFd<'_>> =
            live.iter().map(|(_, a)| PollFd::from_borrowed_fd(a.as_fd(), PollFlags::IN)).collect();
        poll(&mut fds, None).expect("poll");
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for at in (0..live.len()).rev().filter(|at| ready[*at]) {
            let heard = live[at].1.events().expect("events");
            let Some(Event::Ended(record)) = heard.events.last() else { continue };
            spawner.prepare().expect("supervisors to come");
            assert_eq!(record.outcome, Outcome::Exited { code: 0 });
            done += 1;
            let (slot, _) = live.swap_remove(at);
            if begin.elapsed().as_millis() < ms as u128 {
                live.push((
                    slot,
                    spawner.launch(&launches[slot], &neap_sandbox::AttemptNetwork::Own).expect("launched"),
                ));
            }
        }
    }
    f64::from(done) / begin.elapsed().as_secs_f64()
}
