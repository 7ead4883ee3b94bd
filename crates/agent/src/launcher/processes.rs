//! Several processes of one command on a node: all of them succeed, or the first that does not ends the rest.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::Failed;
use super::link::{Head, Node, Word};
use super::output::Output;
use super::plan::Plan;
use super::run::{code_of, note_of, user_command};

pub(super) async fn run(plan: &Plan, output: &Output) -> Result<(), Failed> {
    let mut running = FuturesUnordered::new();
    let mut workers_left = 0;
    let mut serving = false;
    for process in plan.processes() {
        let mut variables = plan.node_variables();
        variables.extend(plan.process_variables(process));
        let started = user_command(plan, variables)?;
        workers_left += usize::from(!process.serves);
        serving |= process.serves;
        running.push(async move { (process, started.follow(process.rank, output).await) });
    }
    let servers_anywhere = serving || plan.world() > plan.processes().len() as u32 && has_servers(plan);
    let mut over = std::pin::pin!(workers_over(plan, servers_anywhere && plan.nodes() > 1));
    let mut told = None;
    while workers_left > 0 || serving {
        tokio::select! {
            biased;
            Some((process, status)) = running.next() => {
                let status = status?;
                if !status.success() {
                    let _ = note_of(process.rank, status).leave(&plan.run_dir);
                    return Err(Failed::Process(code_of(status)));
                }
                workers_left -= usize::from(!process.serves);
            }
            // Servers are needed until the last worker of all nodes is done.
            done = &mut over, if workers_left == 0 && told.is_none() => {
                told = Some(done?);
                serving = false;
            }
        }
    }
    // The workers of this node have ended; those of others may still need the head to count them.
    if servers_anywhere && told.is_none() {
        over.await?;
    }
    Ok(())
}

fn has_servers(plan: &Plan) -> bool {
    use neap_protocol::Distribution;
    matches!(plan.distribution, Some(Distribution::Tensorflow { parameter_servers, .. }) if parameter_servers > 0)
}

/// Says that the workers of this node have ended, and waits until those of all others have.
async fn workers_over(plan: &Plan, ask: bool) -> Result<(), Failed> {
    if !ask {
        return Ok(());
    }
    if !plan.is_head() {
        let mut node = Node::connect(plan).await?;
        node.say(&Word::Done).await?;
        while !matches!(node.hear().await?, Word::End) {}
        return Ok(());
    }
    let mut head = Head::listen(plan).await?;
    let mut left: std::collections::BTreeSet<u32> = (1..plan.nodes()).collect();
    while !left.is_empty() {
        let heard = head.hear().await;
        match heard.word {
            Some(Word::Done) => {
                left.remove(&heard.node);
            }
            Some(_) => {}
            None if left.contains(&heard.node) => {
                return Err(Failed::Other(format!("the link to node {} was lost", heard.node)));
            }
            None => {}
        }
    }
    head.end(plan).await;
    Ok(())
}
