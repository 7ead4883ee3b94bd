//! The network of jobs: the outside is open, this machine and other jobs are not.
//!
//! ```text
//!  job's namespace            router's namespace           the host
//!  eth0 198.18.3.7/32 ─veth─▶ j40a1b2c3 … up ────veth────▶ neap-1a2b3c4d ─▶ eth0 ─▶ outside
//!  lo: 127.0.0.1, relay       forwards or refuses          forwards, masquerades
//! ```
//!
//! Packets leave through a *router*, one namespace per installation. Its rules stand where no tool of the host can
//! flush them. The host has a table of its own beside those of other firewalls. There is no bridge: each job has a
//! point-to-point link, an address of its own, and no way to use another's. docs/network.md says what a job can reach.
//!
//! How it is used, as root:
//!
//! 1. Agent, before it forks the spawner: [`ensure`]`(&Place::new(installation))`, a millisecond once it is set up.
//!    [`Absent`] is a sentence for people; jobs then get [`loopback_only`].
//! 2. Spawner, after it has closed inherited descriptors: [`Attacher::open`]. For each supervisor that it forks with
//!    CLONE_NEWNET: `attacher.attach(namespace)`, with `/proc/<pid>/ns/net` opened. About 0.5 ms, no program is run.
//!    Nothing has to be given back: the address is free again when the namespace is gone. Never delete the interface.
//! 3. Supervisor, in the namespace, before it gives up rights: [`open_listeners`]; the sockets go to the agent by
//!    SCM_RIGHTS. [`connect_inside`] on the agent's request.
//! 4. Agent, once its runtime runs: a thread of its own with [`guard`].
//! 5. An attempt with ranks on several nodes: the agent calls [`join`], passes the descriptor to the supervisor,
//!    and the supervisor moves there with `setns` before the user namespace is made and before step 3.
//! 6. A container is created with `--network none`; between its start and its command: [`adopt`].
//! 7. `neap down`, when no node is left: [`remove`].
//!
//! [`missing`] is for `neap doctor`. As an ordinary user: [`loopback_only`] in the first process of the user and network namespace; [`Absent::NotRoot`]
//! is what to tell people.

mod adopt;
mod attach;
mod firewall;
mod guard;
mod limits;
mod links;
mod listeners;
mod namespace;
mod netlink;
mod place;
mod programs;
mod ranks;
mod router;
mod rules;

pub use adopt::{adopt, adopt_without_router, connect_in, is_own, namespace_of};
pub use attach::{Attacher, loopback_only};
pub use guard::guard;
pub use limits::{CONNECTIONS_PER_JOB_MAX, JOB_INTERFACE, LISTENERS_MAX, SUBNET_BITS};
pub use listeners::{ListenSpec, connect_inside, open_listeners};
pub use place::Place;
pub use ranks::{SharedNetwork, join};
pub use router::{Absent, Health, ensure, heal, hindrances, missing, remove};
pub use rules::CLOSED;
