//! The node's one log, as several processes write to it: tagged lines, each in one write that no other can cut.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use neap_protocol::tag;

/// A pipe takes this much in one piece.
const PIPE_BUF_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Output(File);

impl Output {
    /// This process's own output.
    pub(crate) fn here() -> io::Result<Self> {
        Ok(Self(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// The output of the launcher, from a process that something else has started and listens to. `program` is
    /// the launcher's `/proc/<pid>/exe`.
    pub(crate) fn of_launcher(program: &str) -> io::Result<Self> {
        let folder = program.strip_suffix("exe").unwrap_or("/proc/self/");
        File::options().write(true).open(format!("{folder}fd/1")).map(Self)
    }

    pub(crate) fn write(&self, rank: u32, bytes: &[u8]) {
        // Nobody is left to be told if it is gone.
        tag::tag(rank, bytes, PIPE_BUF_BYTES, |line| drop((&self.0).write_all(line)));
    }

    /// A line of ours.
    pub(crate) fn say(&self, rank: u32, text: &str) {
        self.write(rank, format!("[neap] {text}\n").as_bytes());
    }
}
