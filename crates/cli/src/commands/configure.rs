//! `neap configure --defaults key=value`: what this user does not want to type each time.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::output::{Column, Printer};
use crate::settings::{DEFAULT_KEYS, Settings};
use crate::terminal::Terminal;
use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Keys: workspace, group, subscription, location, output. An empty value forgets a default.\n\n\
                        Examples:\n  neap configure --defaults workspace=research group=vision\n  \
                        neap configure --defaults output=table\n  \
                        neap configure --defaults location=\n  neap configure --list-defaults"
)]
pub struct ConfigureArgs {
    /// Defaults to store, as key=value
    #[arg(long, short = 'd', num_args = 1.., value_name = "KEY=VALUE")]
    defaults: Vec<String>,
    /// Show what is stored
    #[arg(long, short = 'l')]
    list_defaults: bool,
}

const COLUMNS: &[Column] = &[("Name", "name"), ("Value", "value")];

pub fn run(args: &ConfigureArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let mut settings = Settings::load()?;
    if args.defaults.is_empty() && !args.list_defaults {
        return Err(Failure::usage("nothing to store")
            .hint("as in: neap configure --defaults workspace=default group=neap"));
    }
    let mut wrong = Vec::new();
    for assignment in &args.defaults {
        match assignment.split_once('=') {
            Some((key, value)) if DEFAULT_KEYS.iter().any(|(known, _)| *known == key) => {
                if value.is_empty() {
                    settings.defaults.remove(key);
                } else {
                    settings.defaults.insert(key.to_owned(), value.to_owned());
                }
            }
            Some((key, _)) => {
                wrong.push(match neap_spec::nearest(key, DEFAULT_KEYS.iter().map(|(known, _)| *known)) {
                    Some(near) => format!("{key}: unknown; did you mean `{near}`?"),
                    None => format!("{key}: unknown"),
                });
            }
            None => wrong.push(format!("{assignment}: write it as key=value")),
        }
    }
    if !wrong.is_empty() {
        let mut failure = Failure::usage("these defaults cannot be stored");
        failure.details = wrong;
        for (key, meaning) in DEFAULT_KEYS {
            failure.hints.push(format!("{key}: {meaning}"));
        }
        return Err(failure);
    }
    // The format is read back before it is stored: a wrong one would break every later command.
    let printer = Printer::new(global, &settings)?;
    if !args.defaults.is_empty() {
        let path = settings.save()?;
        terminal.verbose(&format!("stored in {}", path.display()));
    }
    if args.list_defaults {
        let rows: Vec<Value> =
            settings.defaults.iter().map(|(key, value)| json!({"name": key, "value": value})).collect();
        printer.print(&Value::Array(rows), COLUMNS)?;
    }
    Ok(ExitCode::SUCCESS)
}
