//! An attempt with several processes, or on several nodes, as the agent sees it: what it adds to the launch, whose output
//! its log is, and what became of it. What happens inside is the [launcher](crate::launcher)'s.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use neap_protocol::{AttemptSpec, Exit, LogSource};
use neap_sandbox::Launch;

use crate::launcher::note::{Note, RUN_DIR};
use crate::launcher::plan::Plan;
use crate::launcher::{COMMAND, PLAN, WORD};
use crate::prepare::Layout;

/// In an attempt's folder, where the job does not see it.

fn plan_of(spec: &AttemptSpec) -> Option<Plan> {
    let ranks = spec.ranks.clone()?;
    let loopback = ranks.addresses.iter().all(|address| address.starts_with("127."));
    let distribution = spec.distribution.clone();
    Some(Plan { ranks, distribution, run_dir: PathBuf::new(), cwd: PathBuf::new(), loopback, apart: false })
}

/// Whether the launcher stands before the job's processes.
pub(crate) fn needs_launcher(spec: &AttemptSpec) -> bool {
    plan_of(spec).is_some_and(|plan| plan.needs_launcher())
}

/// Whose output the node's log holds, where the job has several.
pub(crate) fn log_source(spec: &AttemptSpec) -> Option<LogSource> {
    let plan = plan_of(spec)?;
    Some(LogSource { rank: plan.first_rank(), tagged: plan.needs_launcher() })
}

/// Adds what the processes must know of each other, and puts the launcher before them where one is needed.
pub(crate) fn arrange(spec: &AttemptSpec, layout: &Layout, launch: &mut Launch) -> io::Result<()> {
    let Some(mut plan) = plan_of(spec) else { return Ok(()) };
    for (name, value) in plan.interface_variables() {
        if !launch.env.iter().any(|(known, _)| *known == name) {
            launch.env.push((name, value));
        }
    }
    set(launch, plan.node_variables());
    if !plan.needs_launcher() {
        let first = plan.processes().first().copied();
        set(launch, first.map(|process| plan.process_variables(process)).unwrap_or_default());
        return Ok(());
    }
    layout.tmp_tree.make_folders(RUN_DIR, 0o700)?;
    plan.apart = launch.view.is_some() && layout.is_apart();
    let tmp = if plan.apart { "/tmp".into() } else { layout.tmp.clone() };
    plan.run_dir = tmp.join(RUN_DIR);
    plan.cwd.clone_from(&launch.cwd);
    let command = std::mem::take(&mut launch.command);
    set(launch, vec![(PLAN.to_owned(), serde_json::to_string(&plan)?), (COMMAND.to_owned(), command)]);
    launch.own_program = Some(vec![WORD.to_owned()]);
    Ok(())
}

/// Where Ray's dashboard is, if this node has it.
pub(crate) fn ray_dashboard(spec: &AttemptSpec, asked: Option<u16>) -> Option<(IpAddr, u16)> {
    let plan = plan_of(spec)?;
    let address = plan.ranks.addresses.first()?.parse().ok()?;
    Some((address, plan.ray_dashboard_port(asked)))
}

fn set(launch: &mut Launch, variables: Vec<(String, String)>) {
    launch.env.retain(|(known, _)| !variables.iter().any(|(name, _)| name == known));
    launch.env.extend(variables);
}

/// How it ended, more closely where the launcher has left a note.
pub(crate) fn closer(spec: &AttemptSpec, layout: &Layout, exit: Exit) -> Exit {
    if !matches!(exit, Exit::Code { .. } | Exit::Signal { .. }) {
        return exit;
    }
    if !needs_launcher(spec) {
        return exit;
    }
    Note::read_untrusted(&layout.tmp_tree).map_or(exit, Note::exit)
}
