//! `job connect-ssh` and `job tunnel`: the real `ssh` into a job, through the server, with the caller's rights.
//!
//! `ssh` starts `neap job tunnel` as its ProxyCommand; that pipes its bytes through an HTTPS upgrade. The host key is the one
//! that the server tells of, so that nobody in between can be taken for the job.

use super::services::instances;
use crate::args::{Global, named, whole};
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::settings::data_folder;
use crate::terminal::Terminal;
use clap::Args;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::io::AsyncWriteExt;

/// The upgrade that gives the bytes of a service themselves.
const STREAM: &str = "neap-stream";
/// The name under which the job's host key is known to `ssh`.
const HOST_ALIAS: &str = "neap-job";

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job connect-ssh -n run-7 --private-key-file-path ~/.ssh/id_ed25519\n  \
                        neap job connect-ssh -n run-7 --node-index 1 -- nvidia-smi"
)]
pub struct ConnectArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Index of the node
    #[arg(long, short = 'i', value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<u32>)]
    node_index: u32,
    /// File with the private key that belongs to one of the service's public keys
    #[arg(long, short = 'f', value_name = "FILE")]
    private_key_file_path: Option<PathBuf>,
    /// Name of the service, where the job has more than one of type ssh
    #[arg(long, short = 's', value_parser = named)]
    service: Option<String>,
    /// More words for `ssh`: options, or a command to run
    #[arg(last = true, value_name = "WORDS")]
    words: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    scp -o ProxyCommand='neap job tunnel -n run-7 -s my_ssh' -i ~/.ssh/id_ed25519 neap@run-7:outputs/model.pt .")]
pub struct TunnelArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Index of the node
    #[arg(long, short = 'i', value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<u32>)]
    node_index: u32,
    /// Name of the service
    #[arg(long, short = 's', value_parser = named)]
    service: String,
}

pub fn connect(args: &ConnectArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let session = Session::open(global, terminal)?;
    let (name, service) = crate::commands::block_on(find(args, &session))?;
    let property = |key: &str| {
        service.pointer(&format!("/properties/{key}")).and_then(Value::as_str).map(str::to_owned).ok_or_else(
            || {
                Failure::failed(format!(
                    "the service '{name}' is {} and cannot be logged in to yet",
                    status(&service)
                ))
                .hint(format!("`neap job show-services -n {}` says how it is", args.name))
            },
        )
    };
    let (user, host_key) = (property("user")?, property("hostKey")?);
    let known_hosts = KnownHosts::write(&format!("{HOST_ALIAS} {host_key}\n"))?;
    let proxy = proxy_command(args, &name, &session, &data_folder(global.data.as_deref())?)?;
    let mut ssh = std::process::Command::new("ssh");
    for option in [
        format!("ProxyCommand={proxy}"),
        format!("UserKnownHostsFile={}", known_hosts.0.display()),
        "GlobalKnownHostsFile=/dev/null".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        format!("HostKeyAlias={HOST_ALIAS}"),
    ] {
        ssh.arg("-o").arg(option);
    }
    if let Some(key) = &args.private_key_file_path {
        ssh.arg("-o").arg("IdentitiesOnly=yes").arg("-i").arg(key);
    }
    // Options come before the name of the host, a command after it.
    let options = args.words.iter().take_while(|word| word.starts_with('-')).count();
    ssh.args(&args.words[..options]).arg(format!("{user}@{}", args.name)).args(&args.words[options..]);
    let ended = ssh.status().map_err(|error| {
        Failure::failed(format!("ssh could not be started: {error}")).hint("install an OpenSSH client")
    })?;
    Ok(ExitCode::from(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(255)))
}

async fn find(args: &ConnectArgs, session: &Session) -> Outcome<(String, Value)> {
    let all = instances(session, &args.name, args.node_index).await?;
    let is_ssh = |service: &Value| service.get("type").and_then(Value::as_str) == Some("SSH");
    let wanted = |name: &str| args.service.as_deref().is_none_or(|wanted| wanted == name);
    let mut found = all.into_iter().filter(|(name, service)| is_ssh(service) && wanted(name));
    let Some((name, service)) = found.next() else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("the job {} has no ssh service on node {}", args.name, args.node_index),
        )
        .hint("give it one: services: {my_ssh: {type: ssh, ssh_public_keys: ssh-ed25519 AAAA…}}"));
    };
    if let Some((other, _)) = found.next() {
        return Err(Failure::usage(format!(
            "the job {} has more than one ssh service, '{name}' and '{other}' among them; choose with --service",
            args.name
        )));
    }
    if let Some(message) = service.pointer("/error/error/message").and_then(Value::as_str) {
        return Err(Failure::failed(format!("the service '{name}' failed: {message}")));
    }
    Ok((name, service))
}

fn status(service: &Value) -> &str {
    service.get("status").and_then(Value::as_str).unwrap_or("not known")
}

/// What `ssh` starts for its bytes: this very program.
fn proxy_command(args: &ConnectArgs, service: &str, session: &Session, data: &Path) -> Outcome<String> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("this program cannot find itself: {error}")))?;
    let node = args.node_index.to_string();
    let words = [
        program.as_os_str().to_string_lossy().into_owned(),
        "job".into(),
        "tunnel".into(),
        "--name".into(),
        args.name.clone(),
        "--service".into(),
        service.to_owned(),
        "--node-index".into(),
        node,
        "--data".into(),
        data.display().to_string(),
        "--subscription".into(),
        session.scope.subscription_id.clone(),
        "--resource-group".into(),
        session.scope.resource_group.clone(),
        "--workspace-name".into(),
        session.scope.workspace.clone(),
    ];
    Ok(in_ssh_config(&words))
}

/// Words for a shell, inside an option in which `%` means something.
fn in_ssh_config(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ").replace('%', "%%")
}

/// A file that is there as long as this.
struct KnownHosts(PathBuf);

impl KnownHosts {
    fn write(text: &str) -> Outcome<Self> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(|error| Failure::failed(format!("no random numbers: {error}")))?;
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = std::env::temp_dir().join(format!("neap-known-hosts-{name}"));
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| Failure::file("write", &path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for KnownHosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Pipes stdin and stdout through the server to a service, until either side ends.
pub fn tunnel(args: &TunnelArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let session = Session::open(global, terminal)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the asynchronous runtime cannot start: {error}")))?;
    let piped = runtime.block_on(pipe(args, &session));
    // Nobody may write to stdin any more: that is not waited for.
    runtime.shutdown_background();
    piped.map(|()| ExitCode::SUCCESS)
}

async fn pipe(args: &TunnelArgs, session: &Session) -> Outcome<()> {
    let mut all = instances(session, &args.name, args.node_index).await?;
    let service = all.remove(&args.service).ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            format!("the job {} has no service '{}' on node {}", args.name, args.service, args.node_index),
        )
    })?;
    let endpoint = service.get("endpoint").and_then(Value::as_str).ok_or_else(|| {
        Failure::failed(format!(
            "the service '{}' is {} and cannot be reached",
            args.service,
            status(&service)
        ))
    })?;
    let stream = session.client.upgrade(endpoint, STREAM).await?;
    let (mut from_service, mut to_service) = tokio::io::split(stream);
    let upwards = async {
        let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut to_service).await;
        // The other direction goes on until the service has said everything.
        let _ = to_service.shutdown().await;
        std::future::pending::<()>().await;
    };
    let downwards = async {
        let mut out = tokio::io::stdout();
        let copied = tokio::io::copy(&mut from_service, &mut out).await;
        let _ = out.flush().await;
        copied
    };
    tokio::select! {
        () = upwards => Ok(()),
        copied = downwards => match copied {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::failed(format!("the connection to the service broke: {error}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::in_ssh_config;

    #[test]
    fn words_survive_ssh_and_the_shell() {
        let words = ["/a b/neap", "it's", "100%"].map(str::to_owned);
        assert_eq!(in_ssh_config(&words), r"'/a b/neap' 'it'\''s' '100%%'");
    }
}
