//! The `neap` program: reads the command line, runs one command, prints its answer, returns an exit code.
//!
//! Commands talk HTTPS to a server like any other client. Only those under `local` touch a data folder's content, and
//! `down`, `status` and `env` read the two small files in it that say where the server is.

// This is the room that prints: data on stdout, everything else on stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod client;
mod commands;
mod connection;
mod distrust;
mod entity;
mod failure;
mod local;
mod moment;
mod names;
mod output;
mod preparation;
mod second_look;
mod session;
mod settings;
mod specification;
mod terminal;
mod transfer;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    let terminal = terminal::Terminal::new(&cli.global);
    match commands::run(cli, &terminal) {
        Ok(code) => code,
        Err(failure) => {
            terminal.failure(&failure);
            failure.exit.into()
        }
    }
}
