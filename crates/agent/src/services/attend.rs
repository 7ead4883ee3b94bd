//! `neap attend`: starts an attempt's services, then becomes its command. It runs where the job runs, with its rights, and
//! leaves no child behind that the command would not know of.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The word that makes the program this.
pub const WORD: &str = "attend";
/// The user's command: in a variable, since arguments can be seen by everybody on the machine.
pub(crate) const COMMAND: &str = "NEAP_ATTEND_COMMAND";

/// `SCRIPT`, or `SCRIPT launch WORDS…` where the launcher stands before the command.
pub fn main(words: &[OsString]) -> ExitCode {
    let [script, rest @ ..] = words else {
        return failed("which services? This command is for the agent, not for people");
    };
    // The shell in between ends at once, so that the services are nobody's children here.
    let started = Command::new("/bin/sh")
        .args(["-c", "/bin/sh \"$0\" </dev/null >/dev/null 2>&1 &"])
        .arg(script)
        .env_remove(COMMAND)
        .stdin(Stdio::null())
        .status();
    if let Err(e) = started {
        say(&format!("[neap] The job's services could not be started: /bin/sh: {e}."));
    }
    match rest {
        [] => {}
        [word, words @ ..] if word == crate::launcher::WORD => return crate::launcher::main(words),
        _ => return failed("unknown words"),
    }
    let Some(command) = std::env::var_os(COMMAND) else {
        return failed(&format!("{COMMAND} is not set"));
    };
    let shell = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| Path::new(path).exists());
    let e = Command::new(shell.unwrap_or("/bin/sh")).arg("-c").arg(command).env_remove(COMMAND).exec();
    failed(&format!("running the command: {e}"))
}

fn failed(message: &str) -> ExitCode {
    say(&format!("neap attend: {message}"));
    ExitCode::FAILURE
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
