//! Runs attempts: namespaces, cgroups of both versions, limits, and the certainty that nothing stays behind.
//!
//! ```text
//! agent ──fork──▶ spawner ──fork──▶ supervisor ──exec──▶ the user's command
//!   └───────────────── socket ───────┘   (one per attempt)
//! ```
//!
//! The only room with `unsafe`; every such block says why it is sound. It is synchronous and knows nothing of
//! the control plane, of HTTP, or of any runtime: descriptors that become readable are its whole asynchrony.

mod cgroup;
mod confine;
mod core_dumps;
mod direct;
mod file_user;
mod first_program;
mod gpu;
mod landlock;
mod launch;
mod layers;
mod lease;
mod mask;
pub mod net;
mod node;
mod probe;
mod remove;
mod root;
mod seccomp;
mod spawner;
mod spool;
mod supervisor;
mod sys;
mod users;
mod writers;

pub use cgroup::{CgroupVersion, NodeCgroup};
pub use core_dumps::forbid_core_dumps;
pub use file_user::with_file_user;
pub use first_program::first_program;
pub use gpu::{GPUS_MAX, Gpu, GpuUse, Gpus, Nvml, VISIBLE, device_files, emulated, gpus};
pub use launch::{
    AttemptLimits, Bind, Event, ExitRecord, JOBS_PLACE, Launch, Outcome, PROCESSES_MAX, TIMEOUT_GRACE_MS,
    Used, View,
};
pub use layers::Layer;
pub use lease::{LEASE_FILE, Lease, boot_ms};
pub use mask::MASKED_BYTES_MIN;
pub use node::{
    AGENT_FILE, Detached, NODE_MARK, ProcessWatch, carries, end_process, fence_node, is_alive,
    spawn_detached, start_time,
};
pub use probe::{Capabilities, Machine, machine, probe};
pub use remove::{remove_path, remove_tree};
pub use root::is_system_folder;
pub use spawner::{Attempt, AttemptNetwork, Heard, Spawner, SpawnerConfig};
pub use spool::{HEAD_FILE, SpoolEnd, SpoolReader};
pub use users::{USERS_FROM, Users};
pub use writers::may_have_writers;

/// Slots of a node: attempts that may run on it at once, each limited by a cgroup of its own.
pub const SLOTS_MAX: u32 = 256;

/// What can go wrong outside of an attempt; what goes wrong inside one is its [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the spawner must be started before any thread, but this process has {threads}")]
    TooLate { threads: usize },
    #[error("{doing} (spawner): {source}; the node cannot run attempts and should be replaced")]
    Spawner { doing: &'static str, source: std::io::Error },
    #[error("starting {program}: {source}")]
    Detached { program: String, source: std::io::Error },
    #[error("watching process {pid}: {source}")]
    Watch { pid: u32, source: std::io::Error },
    #[error("node {node}: {left} processes could not be ended; look at them with `ps` and end them by hand")]
    Unfenced { node: u64, left: usize },
    #[error("node {node}: its cgroups could not be removed: {source}")]
    CgroupLeft { node: u64, source: std::io::Error },
}

/// A bounded pause between two looks at something the kernel gives no notice of.
fn pause_ms(ms: i64) {
    let pause = rustix::thread::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    let _ = rustix::thread::nanosleep(&pause);
}
