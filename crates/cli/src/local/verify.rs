//! `neap verify`: checks the ledger of a data folder, also while a server runs on it.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::output::{Printer, emit};
use crate::settings::{Settings, data_folder};
use crate::terminal::Terminal;
use clap::Args;
use neap_ledger::{Report, VerifyOptions};
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Every record's hash is computed again, every document is compared with its hash, and the invariants \
                  are checked on the state. --replay rebuilds the state and the tables from the first event, checks every promise \
                  on the way, and compares. Exit code 1 if anything is wrong.\n\n\
                  Examples:\n  neap verify\n  neap verify --replay --data /srv/neap"
)]
pub struct VerifyArgs {
    /// Rebuild the state from the first event and compare
    #[arg(long)]
    pub replay: bool,
}

pub fn run(args: &VerifyArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let data = data_folder(global.data.as_deref())?;
    let spinner = terminal.spinner("checking the ledger");
    let seal = neap_server::ledger_seal(&data).map_err(|error| Failure::failed(error.to_string()))?;
    let options = VerifyOptions { replay: args.replay };
    let report = neap_ledger::verify_with(&data.join("ledger"), options, seal, |progress| {
        spinner.set_message(format!("checking the ledger: {progress:?}"));
    });
    spinner.finish_and_clear();
    let report = report.map_err(|error| Failure::failed(error.to_string()))?;
    for warning in &report.warnings {
        terminal.warning(warning);
    }
    if global.output.is_some() || global.query.is_some() {
        Printer::new(global, &Settings::load()?)?.print(&as_value(&report), &[])?;
    } else {
        emit(&for_people(&report))?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_value(report: &Report) -> serde_json::Value {
    json!({
        "clean": report.is_clean(),
        "events": report.events,
        "documents": report.documents,
        "erased": report.erased,
        "replayed": report.replayed,
        "findings": report.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "warnings": report.warnings,
    })
}

fn for_people(report: &Report) -> String {
    let mut text = format!("{} events, {} documents", report.events, report.documents);
    if report.replayed {
        text.push_str(", replayed from the first event");
    }
    if report.is_clean() {
        text.push_str(": clean\n");
        return text;
    }
    text.push_str(": NOT clean\n");
    for finding in &report.findings {
        text.push_str(&format!("  - {finding}\n"));
    }
    text
}
