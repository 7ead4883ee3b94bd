//! `neap up`: starts the server.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::terminal::Terminal;
use clap::Args;
use std::net::SocketAddr;
use std::process::ExitCode;
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap up --detach\n  neap up --data /srv/neap --listen 0.0.0.0:8443")]
pub struct UpArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    pub listen: SocketAddr,
    /// Go on in the background; return when the server answers
    #[arg(long)]
    pub detach: bool,
}

pub fn run(_args: UpArgs, _global: &Global, _terminal: &Terminal) -> Outcome<ExitCode> {
    Err(Failure::failed("not built into this binary"))
}
