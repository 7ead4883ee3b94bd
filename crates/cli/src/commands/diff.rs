//! `neap diff`: what is different about a cluster between two times.

use crate::args::{Global, named};
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::moment;
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Definition, nodes, jobs and spend, all from the log.\n\nExamples:\n  neap diff cpu-cluster --from -2h -o table\n  \
                  neap diff cpu-cluster --from 2026-11-01 --to 2026-11-02T12:00:00Z"
)]
pub struct DiffArgs {
    /// Name of the cluster
    #[arg(value_parser = named)]
    cluster: String,
    /// The earlier time: a time, a date, or how long ago (-2h, 7d)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: String,
    /// The later time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
}

const COLUMNS: &[Column] = &[("What", "what"), ("From", "from"), ("To", "to")];

pub fn run(args: &DiffArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let times = moment::read([("from", Some(&args.from)), ("to", args.to.as_deref())])?;
    let mut asked = Vec::new();
    for (key, time) in ["from", "to"].into_iter().zip(times) {
        if let Some(time) = time {
            asked.push(format!("{key}={}", segment(&time.to_string())));
        }
    }
    let path = format!("computes/{}/diff?{}", segment(&args.cluster), asked.join("&"));
    let session = Session::open(global, terminal)?;
    block_on(async {
        let mut answer = session.client.get(&session.own_path(&path)).await?;
        session.print(&answer["changes"].take(), COLUMNS)?;
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        session.terminal.note(&format!("{} from {} to {}", text("cluster"), text("from"), text("to")));
        if let Some(left_out) = answer["left_out"].as_u64().filter(|count| *count > 0) {
            session
                .terminal
                .note(&format!("{left_out} further changes are not shown; choose a shorter time"));
        }
        Ok(ExitCode::SUCCESS)
    })
}
