//! `neap doctor`: what works on this machine, and what does not.

use crate::args::Global;
use crate::connection::{Connection, server_file};
use crate::failure::Outcome;
use crate::output::{Printer, emit};
use crate::settings::{Settings, data_folder};
use crate::terminal::Terminal;
use clap::Args;
use neap_core::units::many;
use neap_server::{Config, ContainerRule, DiskSpace, IsolationRule};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, ExitCode};

const CONFIG: &str = "config.yaml";
const NO_GPU: &str = "none here: a cluster of a GPU size can be declared, and its jobs are refused (GpuNotAvailable); \
                      'neap up --emulate-gpus N' pretends to have some";

#[derive(Debug, Args)]
#[command(
    after_help = "Looks at this machine the way a node does: what separates jobs from each other and from the machine, \
                  what a size is worth here, which interpreter jobs find.\n\nExamples:\n  neap doctor\n  neap doctor -o json"
)]
pub struct DoctorArgs {}

pub fn run(_args: DoctorArgs, global: &Global, _terminal: &Terminal) -> Outcome<ExitCode> {
    let data = data_folder(global.data.as_deref())?;
    let report = examine(&data);
    if global.output.is_some() || global.query.is_some() {
        Printer::new(global, &Settings::load()?)?.print(&report, &[])?;
    } else {
        emit(&for_people(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn examine(data: &Path) -> Value {
    let capabilities = neap_sandbox::probe();
    let machine = neap_sandbox::machine();
    let gpus = neap_sandbox::gpus();
    let config = Config::load(&data.join(CONFIG));
    let each = gpus.list.iter().map(|gpu| {
        json!({"uuid": gpu.uuid, "name": gpu.name, "memory_mb": gpu.memory_mb, "device": format!("/dev/nvidia{}", gpu.minor)})
    });
    let (isolation, isolation_missing) = config.as_ref().map_or_else(
        |_| Config::default().isolation_of(&capabilities),
        |config| config.isolation_of(&capabilities),
    );
    let off = config.as_ref().is_ok_and(|config| config.local.isolation == IsolationRule::Off);
    let reachable = if off {
        "jobs run as the server's user and reach whatever it reaches, the data folder too".to_owned()
    } else if capabilities.namespaces() && capabilities.root {
        "each job runs as a user of its own and sees its own folders, and the system's read-only".to_owned()
    } else if capabilities.namespaces() {
        "jobs run as you, and see their own folders and, read-only, the system's; not your files".to_owned()
    } else {
        "jobs are refused: nothing here can isolate them (local.isolation: off runs them all the same)"
            .to_owned()
    };
    json!({
        "machine": {
            "cores": f64::from(machine.cpus_milli) / 1000.0,
            "memory_mb": machine.memory_mb,
            "gpus": gpus.list.len(),
        },
        "gpus": each.collect::<Vec<_>>(),
        "gpu_driver": gpus.driver,
        "gpu_remarks": gpus.remarks,
        "gpus_emulated": config.as_ref().map_or(0, |config| config.local.emulate_gpus),
        "sizes": "an Azure size is nominal here: a node gets what its size says or what the machine has, whichever is less",
        "root": capabilities.root,
        "cgroup": capabilities.cgroup.map(|version| format!("{version:?}").to_lowercase()),
        "isolation": isolation,
        "isolation_missing": isolation_missing,
        "reachable_by_jobs": reachable,
        "python": version_of("python3"),
        "container_engine": config.as_ref().map_or_else(|_| "unknown until the configuration can be read".to_owned(), engine),
        "data_folder": data.display().to_string(),
        "data_folder_free_mb": free_mb(data),
        "disk": config.as_ref().map_or_else(|_| Vec::new(), |config| disk(config, data)),
        "configuration": match &config {
            Err(wrong) => wrong.to_string(),
            Ok(_) if data.join(CONFIG).exists() => "can be read".to_owned(),
            Ok(_) => format!("none ({CONFIG} in the data folder); everything has its default"),
        },
        "server": server_state(data),
    })
}

/// Which container engine jobs would have.
fn engine(config: &Config) -> String {
    let sockets = config.engine().sockets(|name| std::env::var(name).ok());
    if let Some(there) = sockets.iter().find(|socket| socket.exists()) {
        return format!("at {}", there.display());
    }
    let looked: Vec<String> = sockets.iter().map(|socket| socket.display().to_string()).collect();
    let why = if looked.is_empty() {
        "switched off (environments.engine: none)".to_owned()
    } else {
        format!("none at {}", looked.join(", "))
    };
    let then = match config.environments.isolation {
        ContainerRule::HostAllowed => "jobs run on this machine's interpreter, and say so",
        ContainerRule::Container => "jobs are refused, since environments.isolation is container",
    };
    format!("{why}; {then}")
}

fn version_of(program: &str) -> Value {
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => json!(String::from_utf8_lossy(&output.stdout).trim()),
        _ => Value::Null,
    }
}

fn free_mb(data: &Path) -> Option<u64> {
    let there = data.ancestors().find(|path| path.exists())?;
    rustix::fs::statvfs(there).ok().map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >> 20)
}

/// Which limits on disk are in force, and how.
fn disk(config: &Config, data: &Path) -> Vec<String> {
    let Some(space) = data.ancestors().find(|path| path.exists()).and_then(DiskSpace::of) else {
        return Vec::new();
    };
    let rules = config.disk_rules(space);
    let mb = |bytes: u64| bytes >> 20;
    vec![
        format!(
            "a job may take {} MB (local.disk_mb_per_job{}); counted while it runs, containers' own layers aside",
            mb(rules.job_bytes_max),
            if config.local.disk_mb_per_job.is_none() { ", by default half of what is free" } else { "" },
        ),
        format!("jobs and uploads leave {} MB free (local.disk_reserve_mb)", mb(rules.free_bytes_min)),
        match rules.workspace_bytes_max {
            0 => "a workspace may keep as much as there is room for (storage.workspace_mb_max)".to_owned(),
            most => format!("a workspace may keep {} MB (storage.workspace_mb_max)", mb(most)),
        },
        format!(
            "{} MB are set aside for the log, so that jobs can be stopped on a full disk (storage.reserve_mb)",
            mb(rules.log_reserve_bytes.min(space.total_bytes / 16))
        ),
    ]
}

fn server_state(data: &Path) -> Value {
    match (server_file(data), Connection::of_folder(data)) {
        (Ok(Some(server)), Ok(Some(_))) => {
            json!(format!("serves at {} (process {})", server.url, server.pid))
        }
        _ => json!("does not run; start it with: neap up --detach"),
    }
}

fn for_people(report: &Value) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| text.push_str(&format!("{name:<18} {value}\n"));
    let said = |key: &str| match &report[key] {
        Value::String(s) => s.clone(),
        Value::Null => "none".into(),
        other => other.to_string(),
    };
    let machine = &report["machine"];
    row(
        "Machine",
        &format!(
            "{} cores, {} MB, {}",
            machine["cores"],
            machine["memory_mb"],
            many(machine["gpus"].as_u64().unwrap_or(0), "GPU")
        ),
    );
    for gpu in report["gpus"].as_array().into_iter().flatten() {
        let text = |key: &str| gpu[key].as_str().unwrap_or_default().to_owned();
        let driver = report["gpu_driver"].as_str().unwrap_or("unknown");
        let line = format!(
            "{}, {} MB, driver {driver}, {}, {}",
            text("name"),
            gpu["memory_mb"],
            text("uuid"),
            text("device")
        );
        row("GPU", &line);
    }
    for remark in report["gpu_remarks"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        row("GPU", remark);
    }
    match report["gpus_emulated"].as_u64().unwrap_or(0) {
        0 if report["gpus"].as_array().is_none_or(Vec::is_empty) => row("GPU", NO_GPU),
        0 => {}
        n => row("GPU", &format!("{n} pretended in place of the machine's (local.emulate_gpus in {CONFIG})")),
    }
    row("Sizes", &said("sizes"));
    row("Root", &said("root"));
    row("Cgroups", &said("cgroup"));
    let list = |key: &str| -> Vec<String> {
        report[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(String::from).collect()
    };
    row("Isolation", &list("isolation").join(", "));
    for missing in list("isolation_missing") {
        row("Missing", &missing);
    }
    row("Jobs reach", &said("reachable_by_jobs"));
    row("Python", &said("python"));
    row("Containers", &said("container_engine"));
    row("Data folder", &format!("{} ({} MB free)", said("data_folder"), report["data_folder_free_mb"]));
    for line in list("disk") {
        row("Disk", &line);
    }
    row("Configuration", &said("configuration"));
    row("Server", &said("server"));
    text
}
