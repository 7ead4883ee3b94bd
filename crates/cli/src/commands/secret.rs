//! `neap secret`: values that jobs and datastores use by name. A value is never an argument and never shown.

use crate::args::{Global, named};
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Create a secret, or replace its value
    Create(CreateArgs),
    /// List the secrets of the workspace; never their values
    #[command(after_help = "Examples:\n  neap secret list -o table")]
    List,
    /// Show when a secret was changed, and by whom; never its value
    #[command(after_help = "Examples:\n  neap secret show -n HF_TOKEN")]
    Show(NameArgs),
    /// Delete a secret; jobs that refer to it and have not started yet will fail
    #[command(after_help = "Examples:\n  neap secret delete -n HF_TOKEN")]
    Delete(NameArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Jobs use a secret as ${{secrets.NAME}} in environment_variables, datastores in their credentials. Its value is \
                  replaced by *** in the logs of jobs that use it. Without --value-stdin and --file the value is asked for.\n\n\
                  Examples:\n  neap secret create -n HF_TOKEN\n  \
                  pass show hf | neap secret create -n HF_TOKEN --value-stdin\n  \
                  neap secret create -n DEPLOY_KEY --file id_ed25519"
)]
pub struct CreateArgs {
    /// Name of the secret: letters, digits, '_' and '-'
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Read the value from stdin; one line break at its end does not count
    #[arg(long, conflicts_with = "file")]
    value_stdin: bool,
    /// Read the value from a file, as it is
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// Name of the secret
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
}

const COLUMNS: &[Column] =
    &[("Name", "name"), ("Created", "created"), ("Modified", "modified"), ("ModifiedBy", "modified_by")];

pub fn run(command: &SecretCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    // Read before the server is asked: a wrong file is told also where no server runs.
    let value = match command {
        SecretCommand::Create(args) => Some(value(args)?),
        SecretCommand::List | SecretCommand::Show(_) | SecretCommand::Delete(_) => None,
    };
    let session = Session::open(global, terminal)?;
    let at = |name: &str| session.own_path(&format!("secrets/{}", segment(name)));
    block_on(async {
        match command {
            SecretCommand::Create(args) => {
                let body = json!({"value": value});
                let secret = session.client.call(Method::PUT, &at(&args.name), Some(&body)).await?;
                session.print(&secret.body, COLUMNS)?;
            }
            SecretCommand::List => {
                let answer = session.client.get(&session.own_path("secrets")).await?;
                session.print(&answer["value"], COLUMNS)?;
            }
            SecretCommand::Show(args) => {
                let secret = session.client.get(&at(&args.name)).await?;
                session.print(&secret, COLUMNS)?;
            }
            SecretCommand::Delete(args) => {
                session.client.call(Method::DELETE, &at(&args.name), None).await?;
                session.terminal.note(&format!("The secret '{}' is deleted.", args.name));
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn value(args: &CreateArgs) -> Outcome<String> {
    let bytes = match &args.file {
        Some(file) => std::fs::read(file).map_err(|error| Failure::file("read", file, &error))?,
        None if args.value_stdin => {
            let mut bytes = Vec::new();
            std::io::stdin()
                .read_to_end(&mut bytes)
                .map_err(|error| Failure::file("read", Path::new("stdin"), &error))?;
            without_line_break(bytes)
        }
        None => without_line_break(asked(&args.name)?.into_bytes()),
    };
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage("the value is not UTF-8 text, which an environment variable must be")
            .hint("encode it, for example with base64, and decode it in the job")
    })
}

fn without_line_break(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    bytes
}

/// Asks for the value without showing what is typed.
fn asked(name: &str) -> Outcome<String> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "no value is given, and stdin is not a terminal to ask at")
            .hint("pipe the value in and add --value-stdin, or name a file with --file"));
    }
    let echo = |word: &str| Command::new("stty").arg(word).status().is_ok_and(|status| status.success());
    if !echo("-echo") {
        return Err(Failure::failed("the terminal would show what is typed: 'stty -echo' failed")
            .hint("pipe the value in and add --value-stdin"));
    }
    eprint!("Value of the secret '{name}' (not shown): ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    echo("echo");
    eprintln!();
    read.map_err(|error| Failure::file("read", Path::new("stdin"), &error))?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_break_at_the_end_does_not_count() {
        for (text, expect) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("\n", ""), ("", ""), ("a\r", "a\r")]
        {
            assert_eq!(without_line_break(text.into()), expect.as_bytes(), "{text:?}");
        }
    }
}
