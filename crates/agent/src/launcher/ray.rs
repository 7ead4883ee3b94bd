//! Ray, by the `ray` of the job's environment: a head, the other nodes as workers, then the command on the head.

use std::ffi::OsString;

use neap_protocol::Distribution;

use super::Failed;
use super::link::{Head, Node, Word, patience};
use super::output::Output;
use super::plan::{Plan, Process};
use super::run::{code_of, find_program, note_of, shell, start, user_command};

const NOT_RUN: u8 = 255;

pub(super) async fn run(plan: &Plan, output: &Output) -> Result<(), Failed> {
    if find_program("ray").is_none() {
        return Err(Failed::Missing(
            "This job asks for Ray, but there is no 'ray' on its PATH: add the package 'ray[default]' to its environment."
                .into(),
        ));
    }
    if plan.is_head() { lead(plan, output).await } else { serve(plan, output).await }
}

async fn lead(plan: &Plan, output: &Output) -> Result<(), Failed> {
    let mut head = if plan.nodes() > 1 { Some(Head::listen(plan).await?) } else { None };
    let code = run_line(&head_line(plan), 0, output).await;
    if code != 0 {
        return Err(Failed::Other(format!(
            "Ray's head did not start: 'ray start' ended with exit code {code}."
        )));
    }
    if let Some(head) = &mut head {
        for node in 1..plan.nodes() {
            head.say(node, Word::Run { id: u64::from(node), line: worker_line(plan, node) }).await;
        }
        let mut left = plan.nodes() - 1;
        while left > 0 {
            let heard = head.hear().await;
            match heard.word {
                Some(Word::Ended { code: 0, .. }) => left -= 1,
                Some(Word::Ended { code, .. }) => {
                    let message = format!("'ray start' on node {} ended with exit code {code}.", heard.node);
                    return Err(Failed::Other(message));
                }
                Some(_) => {}
                None => {
                    patience().await;
                    return Err(Failed::Other(format!("the link to node {} was lost", heard.node)));
                }
            }
        }
    }
    let process = Process { rank: 0, local_rank: 0, serves: false };
    let mut variables = plan.node_variables();
    variables.extend(plan.process_variables(process));
    let status = user_command(plan, variables)?.follow(0, output).await?;
    if let Some(head) = &mut head {
        head.end(plan).await;
    }
    if status.success() {
        return Ok(());
    }
    let _ = note_of(0, status).leave(&plan.run_dir);
    Err(Failed::Process(code_of(status)))
}

async fn serve(plan: &Plan, output: &Output) -> Result<(), Failed> {
    let mut node = Node::connect(plan).await?;
    loop {
        match node.hear().await? {
            Word::Run { id, line } => {
                let code = run_line(&line, plan.first_rank(), output).await;
                node.say(&Word::Ended { id, code }).await?;
            }
            Word::End => {
                let _ = node.say(&Word::Goodbye { note: None }).await;
                return Ok(());
            }
            Word::Ended { .. } | Word::Ask { .. } | Word::Done | Word::Goodbye { .. } => {}
        }
    }
}

/// Ray's own processes go into the background and stay until the launcher's supervisor ends them.
async fn run_line(line: &str, rank: u32, output: &Output) -> u8 {
    let mut command = shell(&OsString::from(line));
    // It is the address of a running Ray: here is none yet.
    command.env_remove("RAY_ADDRESS");
    match start(command) {
        Ok(running) => running.follow(rank, output).await.map_or(NOT_RUN, code_of),
        Err(_) => NOT_RUN,
    }
}

fn head_line(plan: &Plan) -> String {
    let Some(Distribution::Ray { port, include_dashboard, dashboard_port, head_arguments, .. }) =
        &plan.distribution
    else {
        return String::new();
    };
    let (head, port) = (plan.head(), plan.ray_port(*port));
    let dashboard = if *include_dashboard {
        let port = plan.ray_dashboard_port(*dashboard_port);
        format!("--include-dashboard=true --dashboard-host={head} --dashboard-port={port}")
    } else {
        "--include-dashboard=false".to_owned()
    };
    let more = head_arguments.as_deref().unwrap_or("");
    format!(
        "ray start --head --node-ip-address={head} --port={port} {dashboard} --disable-usage-stats {more}"
    )
}

fn worker_line(plan: &Plan, node: u32) -> String {
    let Some(Distribution::Ray { port, worker_arguments, .. }) = &plan.distribution else {
        return String::new();
    };
    let (head, port, own) = (plan.head(), plan.ray_port(*port), plan.address(node));
    let more = worker_arguments.as_deref().unwrap_or("");
    format!("ray start --address={head}:{port} --node-ip-address={own} --disable-usage-stats {more}")
}
