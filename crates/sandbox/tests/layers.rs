//! With one layer switched off, the next one still holds. With all of them off the attack succeeds: so these tests can fail.
//!
//! The switch is in builds with debug assertions alone. The spawner reads it when it starts, and must start before any
//! thread: so each case is a run of this program of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use neap_sandbox::net::ListenSpec;
use neap_sandbox::{
    AttemptLimits, AttemptNetwork, Event, JOBS_PLACE, Launch, Layer, Lease, Spawner, SpawnerConfig,
    SpoolReader, USERS_FROM, View, boot_ms, fence_node,
};
use rustix::event::{PollFd, PollFlags, poll};

const OFF: &str = "NEAP_TEST_LAYERS_OFF";
const INSTALLATION: &str = "layer-tests";
/// A file of somebody else's that everybody may read and write, in a folder that no job is shown: what it can do with it.
const ATTACK: &str = "cat $SECRET && echo READ; echo x >> $SECRET && echo WRITTEN; \
    ls $(dirname $SECRET) >/dev/null && echo LISTED; kill -0 $OUTSIDE && echo SIGNALLED; true";

const CASES: &[(&str, &[Layer], &[&str])] = &[
    ("all_layers", &[], &[]),
    ("without_a_root_of_its_own", &[Layer::Root], &["LISTED"]),
    ("without_file_rules", &[Layer::Landlock], &[]),
    ("without_a_list_of_calls", &[Layer::Seccomp], &[]),
    ("without_a_user_namespace", &[Layer::UserNamespace], &[]),
    ("without_either_file_layer", &[Layer::Root, Layer::Landlock], &["READ", "WRITTEN", "LISTED"]),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--list") {
        if !args.iter().any(|a| a == "--ignored") {
            CASES.iter().for_each(|(name, ..)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    if std::env::var(OFF).is_ok() {
        print!("{}", attack());
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let mut failed = false;
    for (name, off, expect) in CASES {
        if args.iter().any(|a| a == "--ignored") || !(wanted.is_empty() || wanted.iter().any(|w| *w == name))
        {
            continue;
        }
        let words: Vec<&str> = off.iter().map(|layer| layer.word()).collect();
        let program = std::env::current_exe().expect("this program");
        let ran = Command::new(program).env(OFF, words.join(",")).output().expect("a run");
        let output = String::from_utf8_lossy(&ran.stdout).into_owned();
        let found: Vec<&str> = ["READ", "WRITTEN", "LISTED", "SIGNALLED"]
            .into_iter()
            .filter(|word| output.lines().any(|line| line == *word))
            .collect();
        let passed = output.contains("skipped") || (output.contains("attacked") && found == *expect);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            println!(
                "expected {expect:?}, found {found:?}\n{output}{}",
                String::from_utf8_lossy(&ran.stderr)
            );
        }
        failed |= !passed;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What the attack printed.
fn attack() -> String {
    let root = tempfile::tempdir().expect("a folder");
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    let secret = root.path().join("secret");
    fs::write(&secret, "s\n").expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o666)).expect("a mode");
    let node = u64::from(std::process::id());
    let spawner = Spawner::start(&SpawnerConfig {
        node_dir: root.path().into(),
        installation: INSTALLATION.into(),
        node,
        visible: Vec::new(),
        shared: Vec::new(),
        hide: Vec::new(),
        network: None,
        listen: ListenSpec::default(),
    })
    .expect("a spawner");
    if !spawner.capabilities().namespaces() {
        return "skipped: nothing can be isolated here\n".into();
    }
    let lease = Lease::open(root.path()).expect("a lease");
    lease.renew_until(boot_ms() + 60_000);
    let output = run(&spawner, root.path(), &secret);
    drop(spawner);
    fence_node(INSTALLATION, node, root.path()).expect("nothing is left");
    format!("{output}attacked\n")
}

fn run(spawner: &Spawner, root: &Path, secret: &Path) -> String {
    let dir = root.join("attempt");
    let user = spawner.capabilities().root.then_some(USERS_FROM + 1);
    for name in ["work", "work/wd", "tmp"] {
        fs::create_dir_all(dir.join(name)).expect("a folder");
        chown(dir.join(name), user, user).expect("an owner");
    }
    let launch = Launch {
        head_bytes: 0,
        own_program: None,
        command: ATTACK.into(),
        env: vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("SECRET".into(), secret.display().to_string()),
            ("OUTSIDE".into(), std::process::id().to_string()),
        ],
        cwd: PathBuf::from(JOBS_PLACE).join("job/wd"),
        timeout_ms: Some(20_000),
        log_bytes_max: 1 << 20,
        view: Some(View {
            work_dir: dir.join("work"),
            job_name: "job".into(),
            tmp_dir: dir.join("tmp"),
            hide: Vec::new(),
            user,
            binds: Vec::new(),
            closed_devices: Vec::new(),
            resolver: None,
            hosts: String::new(),
        }),
        slot: 0,
        limits: AttemptLimits { cpus_milli: 1000, memory_mb: 64, processes: 64, file_bytes_max: None },
        attempt_dir: dir.clone(),
        beside: None,
        masked: Vec::new(),
    };
    let mut attempt = spawner.launch(&launch, &AttemptNetwork::Own).expect("launched");
    loop {
        poll(&mut [PollFd::new(&attempt, PollFlags::IN)], None).expect("a wait");
        let heard = attempt.events().expect("events");
        assert!(!heard.closed, "the supervisor was lost");
        if let Some(Event::Ended(record)) = heard.events.last() {
            let spool = SpoolReader::new(&dir, launch.log_bytes_max).read(0, 1 << 20, Some(record.spool));
            return format!("{}\n{:?}\n", String::from_utf8_lossy(&spool.expect("a log")), record.outcome);
        }
    }
}
