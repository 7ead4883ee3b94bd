//! The supervisor: an attempt's first process. It starts the user's command, keeps its output, and sees to it
//! that the whole tree of processes ends, whoever else has died or hangs.
//!
//! It is a forked copy of the spawner, single-threaded, and never returns.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::cgroup::{self, SlotCgroup};
use crate::isolate::{self, StepError};
use crate::launch::{EXIT_FILE, Event, ExitRecord, Launch, Outcome, TIMEOUT_GRACE_MS};
use crate::lease::{LeaseReading, boot_ms};
use crate::spool::{SpoolEnd, SpoolWriter};
use crate::sys::{self, Program, ProgramSpec, Reaped};

/// While output comes without pause, the agent is told about it this often.
const LOG_NOTICE_MS: u64 = 25;
const PUMP_BYTES: usize = 64 * 1024;
/// How many pump buffers are taken before anything else is looked at.
const PUMP_ROUNDS_MAX: usize = 16;
const KILL_ROUND_MS: i64 = 20;

/// What a supervisor has from the spawner it was forked from.
pub(crate) struct Inherited<'a> {
    pub lease: &'a LeaseReading,
    pub shell: &'a std::ffi::CStr,
    pub dev_null: BorrowedFd<'a>,
    pub cgroup: Option<&'a SlotCgroup>,
    /// It is the first process of a pid namespace.
    pub first_of_namespace: bool,
    /// User and group to be mapped to themselves in the user namespace it was forked into.
    pub map_self: Option<(u32, u32)>,
}

/// Reads the launch from the agent, runs it to its end, tells the agent.
pub(crate) fn supervise(inherited: &Inherited<'_>, mut agent: UnixStream) {
    sys::new_session();
    sys::set_name(c"neap-supervisor");
    let Some(launch) = receive(&mut agent) else { return };
    let record = match Supervisor::start(inherited, &launch, &agent) {
        Ok(supervisor) => supervisor.run(&launch),
        Err((step, e)) => ExitRecord {
            outcome: Outcome::NotStarted { step: step.to_owned(), message: e.to_string() },
            spool: SpoolEnd::default(),
        },
    };
    let _ = tell(&agent, &Event::Ended(record));
}

fn receive(agent: &mut UnixStream) -> Option<Launch> {
    let mut length = [0; 4];
    agent.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    agent.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

/// Says something to the agent. Never waits for it: an agent that does not listen loses notices, not the end.
fn tell(mut agent: &UnixStream, event: &Event) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    agent.write_all(&line)
}

struct Supervisor<'a> {
    agent: &'a UnixStream,
    lease: &'a LeaseReading,
    folder: OwnedFd,
    spool: SpoolWriter,
    output: File,
    output_open: bool,
    children: OwnedFd,
    timer: OwnedFd,
    timer_at_ms: u64,
    main: i32,
    whole_namespace: bool,
    oom: Option<(File, u64)>,
    told_bytes: u64,
    told_at_ms: u64,
    buffer: Vec<u8>,
}

/// Why the tree is being ended, and when it is killed.
struct Ending {
    outcome: Outcome,
    kill_at_ms: u64,
}

impl<'a> Supervisor<'a> {
    fn start(inherited: &Inherited<'a>, launch: &Launch, agent: &'a UnixStream) -> Result<Self, StepError> {
        let step = |step: &'static str| move |e: rustix::io::Errno| (step, io::Error::from(e));
        let folder = rustix::fs::open(
            &launch.attempt_dir,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(step("opening the attempt's folder"))?;
        let spool_folder = rustix::io::fcntl_dupfd_cloexec(&folder, 3).map_err(step("opening the spool"))?;
        let oom = inherited.cgroup.and_then(SlotCgroup::oom_counter).map(|counter| {
            let before = cgroup::oom_kills(&counter);
            (counter, before)
        });
        if let Some((uid, gid)) = inherited.map_self {
            isolate::map_self(uid, gid)?;
        }
        if let Some(view) = launch.view.as_ref().filter(|_| inherited.first_of_namespace) {
            isolate::enter(view, inherited.map_self.is_some())?;
        }
        if !inherited.first_of_namespace {
            sys::become_subreaper();
        }
        let children = sys::child_signals().map_err(|e| ("watching for children", e))?;
        let timer = rustix::time::timerfd_create(
            rustix::time::TimerfdClockId::Boottime,
            rustix::time::TimerfdFlags::CLOEXEC | rustix::time::TimerfdFlags::NONBLOCK,
        )
        .map_err(step("making a timer"))?;
        let (read, write) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(step("making a pipe for the output"))?;
        rustix::io::ioctl_fionbio(&read, true).map_err(step("making a pipe for the output"))?;
        let mut program = Program::new(ProgramSpec {
            shell: inherited.shell,
            command: &launch.command,
            env: &launch.env,
            cwd: launch.cwd.as_os_str().as_bytes(),
            stdin: inherited.dev_null.as_raw_fd(),
            output: write.as_raw_fd(),
            cgroup_procs: inherited.cgroup.map(SlotCgroup::procs).unwrap_or_default(),
            user: launch.view.as_ref().and_then(|view| view.user),
            die_with_parent: launch.view.is_none(),
        })
        .map_err(|e| ("reading the command", e))?;
        let main = program.start()?;
        drop(write);
        let _ = tell(agent, &Event::Started);
        let _ = agent.set_nonblocking(true);
        let spool = SpoolWriter::new(spool_folder, launch.log_bytes_max);
        Ok(Self {
            agent,
            lease: inherited.lease,
            folder,
            told_bytes: spool.end().head_bytes,
            spool,
            output: File::from(read),
            output_open: true,
            children,
            timer,
            timer_at_ms: 0,
            main,
            whole_namespace: inherited.first_of_namespace,
            oom,
            told_at_ms: 0,
            buffer: Vec::new(),
        })
    }

    fn run(mut self, launch: &Launch) -> ExitRecord {
        let timeout_at_ms = launch.timeout_ms.map_or(u64::MAX, |ms| boot_ms().saturating_add(ms));
        let mut ending: Option<Ending> = None;
        let (status, tree_gone) = loop {
            let kill_at_ms = ending.as_ref().map_or(timeout_at_ms, |ending| ending.kill_at_ms);
            let ready = self.wait(kill_at_ms.min(self.lease.deadline_boot_ms()));
            if ready.output {
                self.pump();
            }
            if ready.children
                && let Some(ended) = self.reap_main()
            {
                break ended;
            }
            if ready.agent {
                match self.heard() {
                    Heard::Nothing => {}
                    Heard::Stop { grace_ms } => {
                        let kill_at_ms = boot_ms().saturating_add(grace_ms);
                        let outcome = match ending.take() {
                            Some(Ending { outcome, .. }) => outcome,
                            None => Outcome::Stopped,
                        };
                        ending = Some(Ending { outcome, kill_at_ms });
                        let _ = sys::kill(-self.main, libc::SIGTERM);
                    }
                    Heard::AgentGone => ending = Some(Ending { outcome: Outcome::AgentLost, kill_at_ms: 0 }),
                }
            }
            let now_ms = boot_ms();
            if now_ms >= self.lease.deadline_boot_ms() {
                ending = Some(Ending { outcome: Outcome::LeaseLost, kill_at_ms: 0 });
            } else if ending.is_none() && now_ms >= timeout_at_ms {
                ending = Some(Ending { outcome: Outcome::TimedOut, kill_at_ms: now_ms + TIMEOUT_GRACE_MS });
                let _ = sys::kill(-self.main, libc::SIGTERM);
            }
            if ending.as_ref().is_some_and(|ending| now_ms >= ending.kill_at_ms) {
                break (self.end_tree(), true);
            }
        };
        if !tree_gone {
            self.end_tree();
        }
        self.pump();
        let outcome = ending.map_or_else(|| self.outcome(status, launch), |ending| ending.outcome);
        let record = ExitRecord { outcome, spool: self.spool.end() };
        let _ = self.keep(&record);
        let _ = self.agent.set_nonblocking(false);
        record
    }

    /// Waits for something to happen, at most until `until_ms`.
    fn wait(&mut self, mut until_ms: u64) -> Ready {
        if self.spool.end().head_bytes > self.told_bytes {
            until_ms = until_ms.min(self.told_at_ms + LOG_NOTICE_MS);
        }
        if until_ms != self.timer_at_ms {
            // Zero would switch the timer off; the past fires at once. The kernel takes no date beyond
            // its own range, and no attempt lasts that long.
            let at_ms = until_ms.clamp(1, i64::MAX as u64 / 2_000_000);
            let at = rustix::time::Timespec {
                tv_sec: (at_ms / 1000) as i64,
                tv_nsec: (at_ms % 1000 * 1_000_000) as i64,
            };
            let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = rustix::time::timerfd_settime(
                &self.timer,
                rustix::time::TimerfdTimerFlags::ABSTIME,
                &rustix::time::Itimerspec { it_interval: zero, it_value: at },
            );
            self.timer_at_ms = until_ms;
        }
        let mut fds = [
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(self.agent, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.output, PollFlags::IN),
        ];
        let watched = if self.output_open { 4 } else { 3 };
        let _ = poll(&mut fds[..watched], None);
        let ready = |n: usize| n < watched && !fds[n].revents().is_empty();
        let ready = Ready { children: ready(0), agent: ready(1), timer: ready(2), output: ready(3) };
        if ready.timer {
            self.timer_at_ms = 0;
            self.notice();
        }
        ready
    }

    /// Takes what the process has written, as far as it has; a full pipe would make it wait.
    fn pump(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = vec![0; PUMP_BYTES];
        }
        for _ in 0..PUMP_ROUNDS_MAX {
            match (&self.output).read(&mut self.buffer) {
                Ok(0) => {
                    self.output_open = false;
                    break;
                }
                Ok(n) => {
                    // A full disk loses output; it does not stop the process.
                    let _ = self.spool.write(&self.buffer[..n]);
                    if n < PUMP_BYTES / 16 {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        self.notice();
    }

    fn notice(&mut self) {
        let head_bytes = self.spool.end().head_bytes;
        let now_ms = boot_ms();
        if head_bytes > self.told_bytes && now_ms >= self.told_at_ms + LOG_NOTICE_MS {
            if tell(self.agent, &Event::Log { head_bytes }).is_ok() {
                self.told_bytes = head_bytes;
            }
            self.told_at_ms = now_ms;
        }
    }

    /// Takes the children that have ended. When the main process is among them: its status, and whether
    /// nothing else is left.
    fn reap_main(&mut self) -> Option<(i32, bool)> {
        let mut info = [0u8; 128];
        let _ = rustix::io::read(&self.children, &mut info);
        let mut main = None;
        loop {
            match sys::reap() {
                Reaped::Child { pid, status } if pid == self.main => main = Some(status),
                Reaped::Child { .. } => {}
                Reaped::NoneYet => return main.map(|status| (status, false)),
                Reaped::NoChildren => return main.map(|status| (status, true)),
            }
        }
    }

    fn heard(&mut self) -> Heard {
        let mut message = [0u8; 8];
        match self.agent.read(&mut message) {
            Ok(8) => Heard::Stop { grace_ms: u64::from_le_bytes(message) },
            Ok(0) => Heard::AgentGone,
            Ok(_) => Heard::Stop { grace_ms: 0 },
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Heard::Nothing
            }
            Err(_) => Heard::AgentGone,
        }
    }

    /// Kills and reaps every process of the attempt, and gives the main one's status (zero if it had ended).
    fn end_tree(&mut self) -> i32 {
        let mut main_status = 0;
        loop {
            if self.whole_namespace {
                // From the first process of a pid namespace: all others in it.
                let _ = sys::kill(-1, libc::SIGKILL);
            } else {
                let _ = sys::kill(-self.main, libc::SIGKILL);
                for pid in children_of(std::process::id()) {
                    let _ = sys::kill(pid, libc::SIGKILL);
                }
            }
            loop {
                match sys::reap() {
                    Reaped::Child { pid, status } if pid == self.main => main_status = status,
                    Reaped::Child { .. } => {}
                    Reaped::NoneYet => break,
                    Reaped::NoChildren => return main_status,
                }
            }
            self.pump();
            let mut fds = [PollFd::new(&self.children, PollFlags::IN)];
            let round = rustix::event::Timespec { tv_sec: 0, tv_nsec: KILL_ROUND_MS * 1_000_000 };
            let _ = poll(&mut fds, Some(&round));
            let mut info = [0u8; 128];
            let _ = rustix::io::read(&self.children, &mut info);
        }
    }

    fn outcome(&self, status: i32, launch: &Launch) -> Outcome {
        let code = sys::exit_code(status);
        if code != Some(0)
            && let Some((counter, before)) = &self.oom
            && cgroup::oom_kills(counter) > *before
        {
            return Outcome::OutOfMemory { limit_mb: launch.limits.memory_mb };
        }
        match (code, sys::exit_signal(status)) {
            (Some(code), _) => Outcome::Exited { code },
            (None, signal) => Outcome::Signaled { signal: signal.unwrap_or(0) },
        }
    }

    fn keep(&self, record: &ExitRecord) -> io::Result<()> {
        let part = format!("{EXIT_FILE}.part");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(self.folder.as_fd(), &part, flags, Mode::from_raw_mode(0o600))?;
        File::from(file).write_all(&serde_json::to_vec(record)?)?;
        Ok(rustix::fs::renameat(&self.folder, &part, &self.folder, EXIT_FILE)?)
    }
}

struct Ready {
    children: bool,
    agent: bool,
    timer: bool,
    output: bool,
}

enum Heard {
    Nothing,
    Stop { grace_ms: u64 },
    AgentGone,
}

/// The children of a single-threaded process.
pub(crate) fn children_of(pid: u32) -> Vec<i32> {
    if let Ok(list) = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        return list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    }
    // A kernel without that file: look at everybody's parent.
    crate::node::processes()
        .into_iter()
        .filter(|found| found.parent == pid as i32)
        .map(|found| found.pid)
        .collect()
}
