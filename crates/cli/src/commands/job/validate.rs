//! `job validate`: the checks of `job create`, and nothing else.

use crate::args::Global;
use crate::failure::Outcome;
use crate::output::Printer;
use crate::settings::Settings;
use crate::specification::Specification;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job validate -f pipeline.yml\n  neap job validate -f job.yml --set inputs.epochs=3"
)]
pub struct ValidateArgs {
    /// YAML file with the job
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
}

pub fn run(args: &ValidateArgs, global: &Global) -> Outcome<ExitCode> {
    let specification = Specification::load(Some(&args.file), &[], &args.set)?;
    specification.check(super::create::builder("name"))?;
    Printer::new(global, &Settings::load()?)?
        .print(&json!({"result": "Succeeded"}), &[("Result", "result")])?;
    Ok(ExitCode::SUCCESS)
}
