//! A note that the launcher leaves for the agent when something did not go well: more than an exit code can say. The
//! job could write it too; it would only tell a story about itself.

use std::io::{self, Write};
use std::path::Path;

use neap_protocol::{Exit, FailureClass};
use serde::{Deserialize, Serialize};

use crate::tree::Tree;

/// The launcher's folder, below the one that the job sees as `/tmp`.
pub(crate) const RUN_DIR: &str = ".neap";
const FILE: &str = "failed.json";
const NOTE_BYTES_MAX: u64 = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Note {
    /// This rank was the first that did not succeed.
    Process { rank: u32, code: Option<i32>, signal: Option<i32>, at_ms: i64 },
    /// Something that the job's environment must have is not there.
    Missing { message: String },
}

impl Note {
    /// When, to tell the first from those that followed from it.
    pub(crate) fn at_ms(&self) -> i64 {
        match self {
            Self::Process { at_ms, .. } => *at_ms,
            Self::Missing { .. } => 0,
        }
    }

    /// Leaves the note; the first of a node stays.
    pub(crate) fn leave(&self, run_dir: &Path) -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(run_dir.join(FILE))?;
        file.write_all(&serde_json::to_vec(self)?)
    }

    /// Leaves it in place of any other.
    pub(crate) fn replace(&self, run_dir: &Path) -> io::Result<()> {
        std::fs::write(run_dir.join(FILE), serde_json::to_vec(self)?)
    }

    pub(crate) fn read(run_dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(run_dir.join(FILE)).ok()?).ok()
    }

    /// Reads what may be anything: below `tmp` and nowhere else.
    pub(crate) fn read_untrusted(tmp: &Tree) -> Option<Self> {
        let text = tmp.read_at_most(&format!("{RUN_DIR}/{FILE}"), NOTE_BYTES_MAX).ok()??;
        serde_json::from_slice(&text).ok()
    }

    /// What it makes of the exit that the node's first process ended with.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Process { rank, code, signal, .. } => {
                let exit = match (code, signal) {
                    (_, Some(signal)) => Exit::Signal { signal },
                    (code, None) => Exit::Code { code: code.unwrap_or(1) },
                };
                Exit::Process { rank, exit: Box::new(exit) }
            }
            Self::Missing { message } => Exit::PrepareFailed { class: FailureClass::Environment, message },
        }
    }
}
