//! `neap completion SHELL`: the script that teaches a shell this command line.

use crate::args::Cli;
use crate::failure::Outcome;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  source <(neap completion bash)\n  \
                        neap completion zsh > \"${fpath[1]}/_neap\"\n  \
                        neap completion fish > ~/.config/fish/completions/neap.fish")]
pub struct CompletionArgs {
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &CompletionArgs) -> Outcome<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "neap", &mut script);
    crate::output::emit(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
