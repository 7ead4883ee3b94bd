//! The programs that the network is set up with: `nft`, `iptables`, `firewall-cmd`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the program is. Daemons are often started without `sbin` in their `PATH`.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.is_file())
}

/// Runs a program to its end: what it prints, or what it complains about.
pub(crate) fn run(name: &str, args: &[&str], input: &str) -> io::Result<String> {
    let path = find(name).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("the program {name} is not installed"))
    })?;
    let mut child = Command::new(path)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has failed reads nothing; its complaint says more than a broken pipe.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let first = complaint.lines().next().unwrap_or("no reason given");
    Err(io::Error::other(format!("{name}: {first}")))
}
