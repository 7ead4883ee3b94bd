//! An attempt in a container: what its driver is told, and what its end means.

use std::io;
use std::path::{Path, PathBuf};

use neap_protocol::{AttemptRef, AttemptSpec, Exit, FailureClass, Isolation};
use neap_sandbox::net::Place;
use neap_sandbox::{JOBS_PLACE, Launch, NODE_MARK, first_program};
use rustix::process::{Resource, getrlimit};

use crate::environment::CONTAINERS_FILE;
use crate::environment::engine::{Engine, LABEL_ATTEMPT, LABEL_INSTALLATION, LABEL_NETWORK, LABEL_NODE};
use crate::environment::order::{
    Answer, EngineFiles, FIRST_FILE, HOSTS_FILE, Order, OwnNetwork, RESOLV_CONF_FILE, RunOrder, SharedWith,
    Step, driver_variables,
};
use crate::node::Node;
use crate::prepare::Layout;
use crate::session::prepare_failed;

/// Exit codes above this stand for signals, by the custom of shells, which engines keep.
const SIGNAL_CODES_FROM: i64 = 128;
const SIGNALS_MAX: i64 = 64;

/// Podman's own monitor has no more processes to give than this, whatever the machine allows.
const NPROC_MAX: i64 = 32_768;

/// Too little for a file; the kernel also starts no program of the machine's for a dump then, as it would for 0.
const CORE_BYTES: i64 = 1;

/// What the kernel takes, without the byte at its end.
const HOSTNAME_MAX: usize = 63;

/// The container's `/etc/hosts` begins with this.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";

/// The labels of a node's containers, or of one attempt's.
pub(crate) fn labels(node: &Node, attempt: Option<AttemptRef>) -> Vec<(String, String)> {
    let mut labels = vec![
        (LABEL_INSTALLATION.to_owned(), node.config.installation.clone()),
        (LABEL_NODE.to_owned(), node.config.node.to_string()),
    ];
    labels.extend(attempt.map(|attempt| (LABEL_ATTEMPT.to_owned(), attempt.to_string())));
    labels
}

pub(crate) fn process_file(layout: &Layout) -> PathBuf {
    EngineFiles::new(&layout.dir).process
}

pub(crate) fn answer(layout: &Layout) -> Option<Answer> {
    EngineFiles::new(&layout.dir).read()
}

/// The container of an attempt that is ready to be launched.
pub(crate) fn order(
    node: &Node,
    (attempt, spec): (AttemptRef, &AttemptSpec),
    layout: &Layout,
    (engine, image): (&Engine, &str),
    launch: &Launch,
) -> RunOrder {
    let mut env = launch.env.clone();
    let network = own_network(node, (attempt, spec), engine).ok();
    let mut shm_bytes = spec.container.shm_bytes;
    let mut ulimits = own_limits();
    for argument in &spec.container.args {
        match argument.split_once('=') {
            Some(("--env", variable)) => {
                if let Some((name, value)) = variable.split_once('=') {
                    env.push((name.to_owned(), value.to_owned()));
                }
            }
            Some(("--shm-size", bytes)) => shm_bytes = bytes.parse().ok().or(shm_bytes),
            Some(("--ulimit", limit)) => {
                if let Some(limit) = ulimit(limit) {
                    ulimits.retain(|(name, ..)| *name != limit.0);
                    ulimits.push(limit);
                }
            }
            // The others say what is so anyway.
            Some(_) | None => {}
        }
    }
    for limit in hard_limits(launch) {
        ulimits.retain(|(name, ..)| *name != limit.0);
        ulimits.push(limit);
    }
    let user = match layout.owner {
        Some(owner) => format!("{owner}:{owner}"),
        // Root inside is this very user outside.
        None if engine.rootless => "0:0".to_owned(),
        None => format!("{}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
    };
    let mark = env
        .iter()
        .find(|(name, _)| name == NODE_MARK)
        .map(|(name, value)| format!("{name}={value}"))
        .unwrap_or_else(|| format!("AZUREML_RUN_ID={}", spec.job_name));
    let mut mounts = vec![
        (layout.work.clone(), Path::new(JOBS_PLACE).join(&spec.job_name), false),
        (layout.tmp.clone(), "/tmp".into(), false),
    ];
    if network.is_some() {
        mounts.push((layout.dir.join(RESOLV_CONF_FILE), "/etc/resolv.conf".into(), true));
        mounts.push((layout.dir.join(HOSTS_FILE), "/etc/hosts".into(), true));
    }
    let mut labels = labels(node, Some(attempt));
    let shared = network.as_ref().and_then(|network| network.shared.as_ref());
    labels.extend(shared.map(|shared| (LABEL_NETWORK.to_owned(), shared.holder.clone())));
    let first = layout.dir.join(FIRST_FILE);
    let first = (spec.isolation == Isolation::Full && first.exists()).then_some(first);
    RunOrder {
        first,
        image: image.to_owned(),
        name: format!("neap-{}-{}-{attempt}", node.config.installation, node.config.node),
        command: launch.command.clone(),
        env,
        cwd: launch.cwd.clone(),
        mounts,
        hostname: network.is_some().then(hostname),
        network,
        user: Some(user),
        labels,
        cpus_milli: launch.limits.cpus_milli,
        memory_mb: launch.limits.memory_mb,
        processes: launch.limits.processes,
        // Whoever holds them says which.
        gpus: Vec::new(),
        shm_bytes,
        ulimits,
        process: process_file(layout),
        mark,
    }
}

/// The network that a container gets in place of the machine's. If it gets none, why that is so; empty: it is not
/// isolated.
pub(crate) fn own_network(
    node: &Node,
    (attempt, spec): (AttemptRef, &AttemptSpec),
    engine: &Engine,
) -> Result<OwnNetwork, String> {
    if spec.isolation == Isolation::Off {
        return Err(String::new());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("Neap does not run as root here".into());
    }
    if engine.rootless {
        return Err(format!("{} runs as an ordinary user", engine.name));
    }
    let place = node.network.place.clone();
    let several = spec.ranks.as_ref().is_some_and(|ranks| ranks.addresses.len() > 1);
    let shared = several.then(|| {
        let attempt = attempt.to_string().replace('.', "-");
        SharedWith::new(Place::new(&node.config.installation), &node.config.installation, &attempt)
    });
    Ok(OwnNetwork { place, relay: node.network.relay.clone(), shared })
}

/// The first line of the log about a container's network.
fn network_lines(node: &Node, own: &Result<OwnNetwork, String>) -> Option<String> {
    match own {
        Ok(OwnNetwork { place: Some(_), .. }) => None,
        Ok(OwnNetwork { place: None, .. }) => Some(format!(
            "[neap] The container has no way out but to the Neap server and to names. {}\n",
            node.network.missing.join(" ")
        )),
        Err(why) if why.is_empty() => None,
        Err(why) => Some(format!(
            "[neap] The container shares this machine's network, with its loopback and own addresses: {why}.\n"
        )),
    }
}

/// Writes what the container begins with and what it sees of its network, and says what it lacks.
pub(crate) fn prepare(
    node: &Node,
    attempt: (AttemptRef, &AttemptSpec),
    layout: &Layout,
    engine: &Engine,
    launch: &mut Launch,
) -> io::Result<()> {
    let own = own_network(node, attempt, engine);
    if let Some(line) = network_lines(node, &own) {
        layout.say(&line)?;
        launch.head_bytes = layout.said().head_bytes;
    }
    if let Some(program) = first_program().filter(|_| attempt.1.isolation == Isolation::Full) {
        layout.own.write(FIRST_FILE, 0o755, &program)?;
    }
    if let Ok(own) = own {
        layout.own.write(RESOLV_CONF_FILE, 0o644, own.relay.resolv_conf().as_bytes())?;
        let hosts = format!("{HOSTS}127.0.0.1 {}\n{}", hostname(), own.relay.hosts());
        layout.own.write(HOSTS_FILE, 0o644, hosts.as_bytes())?;
    }
    Ok(())
}

/// Of the machine, as jobs without a container see it too.
fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if name.is_empty() || name.len() > HOSTNAME_MAX || !name.chars().all(is_name) {
        "neap".into()
    } else {
        name
    }
}

/// Limits that no argument of the job changes.
fn hard_limits(launch: &Launch) -> Vec<(String, i64, i64)> {
    let mut limits = vec![("core".to_owned(), CORE_BYTES, CORE_BYTES)];
    if let Some(most) = launch.limits.file_bytes_max {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        limits.push(("fsize".to_owned(), most, most));
    }
    limits
}

/// Engines set limits of their own that not every machine can give; this process's are certainly there.
fn own_limits() -> Vec<(String, i64, i64)> {
    [("nofile", Resource::Nofile), ("nproc", Resource::Nproc)]
        .into_iter()
        .filter_map(|(name, resource)| {
            let most = if name == "nproc" { NPROC_MAX } else { i64::MAX };
            let hard = i64::try_from(getrlimit(resource).maximum?).unwrap_or(i64::MAX).min(most);
            Some((name.to_owned(), hard, hard))
        })
        .collect()
}

/// `memlock=-1`, `nofile=1024:2048`
fn ulimit(text: &str) -> Option<(String, i64, i64)> {
    let (name, values) = text.split_once('=')?;
    let (soft, hard) = values.split_once(':').unwrap_or((values, values));
    Some((name.to_owned(), soft.parse().ok()?, hard.parse().ok()?))
}

/// The launch of the process that drives the engine, in place of the command itself.
pub(crate) fn launch(
    node: &Node,
    layout: &Layout,
    engine: &Engine,
    order: RunOrder,
    launch: Launch,
) -> io::Result<Launch> {
    // Said before there is a container: whoever fences the node looks for it.
    std::fs::write(node.config.work_dir.join(CONTAINERS_FILE), "")?;
    let cache = node.config.environments_dir();
    std::fs::create_dir_all(&cache)?;
    std::fs::write(cache.join(CONTAINERS_FILE), "")?;
    let files = EngineFiles::new(&layout.dir);
    let process = order.process.clone();
    files.write(&Order {
        socket: engine.socket.clone(),
        step: Step::Run(Box::new(order)),
        answer: files.answer.clone(),
    })?;
    Ok(Launch {
        own_program: Some(files.program()),
        env: driver_variables(&node.path),
        cwd: layout.dir.clone(),
        view: None,
        beside: Some(process),
        ..launch
    })
}

/// What the end of a container means; none: its driver was killed before it could say.
pub(crate) fn exit_of(answer: Option<Answer>, limit_mb: u64) -> Exit {
    let system = |message: String| prepare_failed(FailureClass::System, message);
    match answer {
        Some(Answer::Ended { code: 0, .. }) => Exit::Success,
        Some(Answer::Ended { out_of_memory: true, .. }) => Exit::OutOfMemory { limit_mb },
        Some(Answer::Ended { code, .. }) => {
            let signal = code - SIGNAL_CODES_FROM;
            if (1..=SIGNALS_MAX).contains(&signal) {
                Exit::Signal { signal: signal as i32 }
            } else {
                Exit::Code { code: i32::try_from(code).unwrap_or(-1) }
            }
        }
        Some(Answer::Failed { message } | Answer::Absent { message }) => prepare_failed(
            FailureClass::Environment,
            format!("The container could not be started: {message}."),
        ),
        Some(Answer::Lost { message }) => system(message),
        Some(Answer::Image { .. }) => system("the engine's driver did something else".into()),
        None => system("the process that drives the engine was ended from outside".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let ended = |code, out_of_memory| exit_of(Some(Answer::Ended { code, out_of_memory }), 64);
        assert_eq!(ended(0, false), Exit::Success);
        assert_eq!(ended(0, true), Exit::Success);
        assert_eq!(ended(3, false), Exit::Code { code: 3 });
        assert_eq!(ended(143, false), Exit::Signal { signal: 15 });
        assert_eq!(ended(137, true), Exit::OutOfMemory { limit_mb: 64 });
        assert_eq!(ended(255, false), Exit::Code { code: 255 });
        let failed = exit_of(Some(Answer::Failed { message: "m".into() }), 64);
        assert!(matches!(failed, Exit::PrepareFailed { class: FailureClass::Environment, .. }));
        assert!(matches!(exit_of(None, 64), Exit::PrepareFailed { class: FailureClass::System, .. }));
    }

    #[test]
    fn limits_as_they_are_written() {
        assert_eq!(ulimit("memlock=-1"), Some(("memlock".into(), -1, -1)));
        assert_eq!(ulimit("nofile=10:20"), Some(("nofile".into(), 10, 20)));
        assert_eq!(ulimit("nofile"), None);
    }
}
