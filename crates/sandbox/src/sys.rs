//! The few kernel calls that no safe wrapper offers: fork, clone, exec, and their surroundings.
//!
//! Everything here is small and says why it is sound. It never decides anything.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::direct::Direct;
use crate::launch::View;

/// Which side of a fork one is on.
pub(crate) enum Forked {
    Parent(i32),
    Child,
}

/// A fork, into new namespaces where `flags` names some (`CLONE_NEW*`).
///
/// The caller must be single-threaded: the child goes on running ordinary code, and a lock held by another
/// thread would stay held for ever in it.
pub(crate) fn fork(flags: u64) -> io::Result<Forked> {
    // SAFETY: all-zero is a valid `clone_args`.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM the child has its own copy of memory and, with a null stack, goes on on its
    // copy of ours; `args` outlives the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid as i32)),
    }
}

/// Ends the process without running anything that belongs to the process it was forked from.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: `_exit` takes any value and does not return.
    unsafe { libc::_exit(code) }
}

/// What the user's process is started with. Made before the fork, so that the child allocates nothing.
#[derive(Debug)]
pub(crate) struct Program {
    shell: CString,
    _text: Vec<CString>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    /// To be executed in place of the shell, with the same variables.
    own_program: Option<RawFd>,
    direct: Option<DirectProgram>,
    cwd: CString,
    stdin: RawFd,
    output: RawFd,
    cgroup_procs: Vec<RawFd>,
    namespaces: c_int,
    view: Option<View>,
    error: i32,
    step: &'static str,
}

/// A program that is executed without a shell.
#[derive(Debug)]
struct DirectProgram {
    _words: Vec<CString>,
    argv: Vec<*const c_char>,
    /// Where it may be, each with the variable `_` that the shell would set.
    candidates: Vec<(CString, CString)>,
    /// What the shell would add to the variables; they stand in `envp` from `added_at` on, `_` last.
    added: [CString; 2],
    added_at: usize,
}

/// How a program is to be started; see [`Program`].
pub(crate) struct ProgramSpec<'a> {
    pub shell: &'a CStr,
    pub command: &'a str,
    /// What is run instead of the command: an open program, and its arguments.
    pub own_program: Option<(RawFd, &'a [String])>,
    /// The same command, where it needs no shell.
    pub direct: Option<Direct>,
    pub env: &'a [(String, String)],
    pub cwd: &'a [u8],
    pub stdin: RawFd,
    pub output: RawFd,
    pub cgroup_procs: Vec<RawFd>,
    /// What it sees of the machine: in namespaces of its own (beside the supervisor's pid namespace), as a
    /// user of its own. None: everything.
    pub view: Option<View>,
    /// False where the machine has no namespaces for us: then only the user of `view` counts, and the process
    /// dies when its supervisor does.
    pub apart: bool,
}

/// Memory that the child runs on between clone and exec; kept, since fresh memory costs page faults.
#[derive(Debug)]
pub(crate) struct ChildStack(Vec<u128>);

impl ChildStack {
    const BYTES: usize = 256 * 1024;

    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(Self::BYTES / size_of::<u128>()))
    }

    fn top(&mut self) -> *mut c_void {
        self.0.spare_capacity_mut().as_mut_ptr_range().end.cast::<c_void>()
    }
}

impl Program {
    pub(crate) fn new(spec: ProgramSpec<'_>) -> io::Result<Self> {
        let text = |bytes: Vec<u8>| {
            CString::new(bytes)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a zero byte in the text"))
        };
        let mut owned = match spec.own_program {
            None => {
                vec![text(spec.shell.to_bytes().to_vec())?, text(b"-c".to_vec())?, text(spec.command.into())?]
            }
            Some((_, arguments)) => std::iter::once(&"neap".to_owned())
                .chain(arguments)
                .map(|word| text(word.clone().into_bytes()))
                .collect::<io::Result<_>>()?,
        };
        let words = owned.len();
        for (name, value) in spec.env {
            owned.push(text(format!("{name}={value}").into_bytes())?);
        }
        let mut argv: Vec<_> = owned[..words].iter().map(|t| t.as_ptr()).collect();
        argv.push(std::ptr::null());
        let mut envp: Vec<_> = owned[words..].iter().map(|t| t.as_ptr()).collect();
        let mut direct = None;
        if let Some(Direct { words, candidates }) = spec.direct.filter(|_| spec.own_program.is_none()) {
            let added = [text([b"PWD=", spec.cwd].concat())?, c"SHLVL=0".to_owned()];
            let words =
                words.into_iter().map(|word| text(word.into_bytes())).collect::<io::Result<Vec<_>>>()?;
            let mut argv: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
            argv.push(std::ptr::null());
            let candidates = candidates
                .into_iter()
                .map(|at| Ok((text(at.clone().into_bytes())?, text(format!("_={at}").into_bytes())?)))
                .collect::<io::Result<Vec<_>>>()?;
            let added_at = envp.len();
            envp.extend(added.iter().map(|variable| variable.as_ptr()));
            envp.push(std::ptr::null());
            direct = Some(DirectProgram { _words: words, argv, candidates, added, added_at });
        }
        envp.push(std::ptr::null());
        Ok(Self {
            shell: spec.shell.to_owned(),
            own_program: spec.own_program.map(|(fd, _)| fd),
            _text: owned,
            argv,
            envp,
            direct,
            cwd: text(spec.cwd.to_vec())?,
            stdin: spec.stdin,
            output: spec.output,
            cgroup_procs: spec.cgroup_procs,
            namespaces: if spec.view.is_some() && spec.apart {
                libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS
            } else {
                0
            },
            view: spec.view,
            error: 0,
            step: "",
        })
    }

    /// Starts it in its own session. Returns when it has been executed, or with the step that failed.
    pub(crate) fn start(&mut self, stack: &mut ChildStack) -> Result<i32, (&'static str, io::Error)> {
        // SAFETY: CLONE_VFORK suspends this (only) thread until the child has executed or ended, so that the
        // child has the shared memory for itself; it runs on its own stack, whose top is 16-byte aligned and
        // which outlives the call; `self` is not touched here meanwhile.
        let pid = unsafe {
            libc::clone(
                begin,
                stack.top(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | self.namespaces,
                std::ptr::from_mut(self).cast::<c_void>(),
            )
        };
        if pid < 0 {
            return Err(("starting a process", io::Error::last_os_error()));
        }
        if self.error != 0 {
            // SAFETY: a null status pointer is allowed; the child is ours and has ended.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            return Err((self.step, io::Error::from_raw_os_error(self.error)));
        }
        Ok(pid)
    }
}

/// The child between clone and exec. It shares memory with its suspended parent, so that whatever it allocates
/// it frees again before it executes.
extern "C" fn begin(program: *mut c_void) -> c_int {
    // SAFETY: `start` passes its own `&mut Program` and is suspended while this runs.
    let program = unsafe { &mut *program.cast::<Program>() };
    let failed = |program: &mut Program, step: &'static str| {
        program.step = step;
        program.error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        127
    };
    if program.namespaces != 0
        && let Some(view) = &program.view
        && let Err((step, e)) = crate::isolate::enter(view)
    {
        program.step = step;
        program.error = e.raw_os_error().unwrap_or(libc::EINVAL);
        return 127;
    }
    // SAFETY: plain calls on integers and on strings that `program` owns. The `set*id` calls are made raw,
    // since libc's wrappers would look for other threads of the parent whose memory this still is.
    unsafe {
        libc::setsid();
        for fd in &program.cgroup_procs {
            if libc::write(*fd, c"0".as_ptr().cast(), 1) != 1 {
                return failed(program, "joining the cgroup");
            }
        }
        if let Some(id) = program.view.as_ref().and_then(|view| view.user)
            && (libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) != 0
                || libc::syscall(libc::SYS_setresgid, id, id, id) != 0
                || libc::syscall(libc::SYS_setresuid, id, id, id) != 0)
        {
            return failed(program, "becoming the unprivileged user");
        }
        if program.namespaces == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        if program.view.is_some() && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return failed(program, "giving up new privileges");
        }
        if libc::chdir(program.cwd.as_ptr()) != 0 {
            return failed(program, "entering the working folder");
        }
        if libc::dup2(program.stdin, 0) < 0
            || libc::dup2(program.output, 1) < 0
            || libc::dup2(program.output, 2) < 0
        {
            return failed(program, "connecting stdin, stdout and stderr");
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if let Some(fd) = program.own_program {
            let (argv, envp) = (program.argv.as_ptr(), program.envp.as_ptr());
            libc::syscall(libc::SYS_execveat, fd, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH);
            return failed(program, "executing the agent's program");
        }
        if let Some(direct) = &program.direct {
            // The first that can be executed, as the shell searches. Where none can, or the kernel does not take it,
            // the shell below gets the command after all: with the variables as they were given.
            let found = |(at, _): &&(CString, CString)| libc::access(at.as_ptr(), libc::X_OK) == 0;
            if let Some((at, underscore)) = direct.candidates.iter().find(found) {
                program.envp[direct.added_at + direct.added.len()] = underscore.as_ptr();
                libc::execve(at.as_ptr(), direct.argv.as_ptr(), program.envp.as_ptr());
            }
            program.envp[direct.added_at] = std::ptr::null();
        }
        libc::execve(program.shell.as_ptr(), program.argv.as_ptr(), program.envp.as_ptr());
    }
    failed(program, "executing the shell")
}

/// Blocks SIGCHLD and gives a descriptor that becomes readable when a child changes.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by `sigemptyset`; the new descriptor is owned by nobody else.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Lets the kernel reap this process's children: nothing here waits for them.
pub(crate) fn reap_children_unseen() {
    // SAFETY: SIG_IGN is a valid disposition, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// What `waitpid(-1)` had to say.
pub(crate) enum Reaped {
    Child { pid: i32, status: i32 },
    NoneYet,
    NoChildren,
}

pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for the call.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => return Reaped::NoneYet,
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Reaped::NoChildren,
            pid => return Reaped::Child { pid, status },
        }
    }
}

pub(crate) fn exit_code(status: i32) -> Option<i32> {
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

pub(crate) fn exit_signal(status: i32) -> Option<i32> {
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

/// `kill(2)`, with its special meanings of negative numbers.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes two integers.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn new_session() {
    // SAFETY: takes nothing; fails harmlessly for a process that already leads a group.
    unsafe { libc::setsid() };
}

pub(crate) fn set_name(name: &CStr) {
    // SAFETY: the kernel copies at most 16 bytes of the string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

pub(crate) fn become_subreaper() {
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Closes every descriptor from 3 on, except those in `keep`.
pub(crate) fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().map(|fd| *fd as u32).collect();
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if fd > from {
            // SAFETY: called in a fresh fork whose other descriptors nobody uses again.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}

/// A page shared with every process forked later: the node's lease.
#[derive(Debug)]
pub(crate) struct SharedPage(*mut c_void);

// SAFETY: the page is only read and written through an atomic.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    pub(crate) fn map(file: BorrowedFd<'_>, write: bool) -> io::Result<Self> {
        let protection = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: asks for a fresh mapping; the file is at least one page long (see `Lease::open`).
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(at)) }
    }

    pub(crate) fn word(&self) -> u64 {
        // SAFETY: the mapping is page-aligned, lives as long as `self`, and is only accessed atomically.
        unsafe { &*self.0.cast::<AtomicU64>() }.load(Ordering::Acquire)
    }

    /// Only for a page mapped for writing.
    pub(crate) fn set_word(&self, value: u64) {
        // SAFETY: as in `word`.
        unsafe { &*self.0.cast::<AtomicU64>() }.store(value, Ordering::Release);
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made.
        unsafe { libc::munmap(self.0, 4096) };
    }
}

/// A detached copy of the mount at `path` (a bind mount without a place yet).
pub(crate) fn open_tree(path: &CStr) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: u32 = 1;
    // SAFETY: the path is a valid C string; the descriptor that comes back is ours.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            path.as_ptr(),
            OPEN_TREE_CLONE | libc::O_CLOEXEC as u32,
        );
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as RawFd)) }
    }
}

/// Nothing can be written through this detached mount any more.
pub(crate) fn make_read_only(tree: &OwnedFd) -> io::Result<()> {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    set_attributes(tree, MOUNT_ATTR_RDONLY)
}

/// No device can be opened through this detached mount any more.
pub(crate) fn make_deviceless(tree: &OwnedFd) -> io::Result<()> {
    const MOUNT_ATTR_NODEV: u64 = 4;
    set_attributes(tree, MOUNT_ATTR_NODEV)
}

fn set_attributes(tree: &OwnedFd, set: u64) -> io::Result<()> {
    /// As the kernel has it (`struct mount_attr`).
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the string and the structure outlive the call, whose size is given; the descriptor is open.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a detached mount in its place.
pub(crate) fn move_mount(tree: &OwnedFd, to: &CStr) -> io::Result<()> {
    const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
    // SAFETY: both strings are valid C strings and the descriptor is open.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn mount(source: &CStr, at: &CStr, kind: &CStr, flags: u64, options: &CStr) -> io::Result<()> {
    // SAFETY: four valid C strings and an integer.
    let done = unsafe {
        libc::mount(source.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast::<c_void>())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the pipe behind a descriptor to a user, so that `/dev/stdout` can be opened by its processes.
pub(crate) fn give_to(fd: &OwnedFd, user: u32) {
    // SAFETY: takes integers.
    unsafe { libc::fchown(fd.as_raw_fd(), user, user) };
}

/// Closes a descriptor that a forked copy inherited and must not hold. The copy never returns to its owner.
pub(crate) fn close_now(fd: &OwnedFd) {
    // SAFETY: the process ends with `_exit` without using or dropping the owner.
    unsafe { libc::close(fd.as_raw_fd()) };
}

/// Waits for one child: its exit code, or none if a signal ended it.
pub(crate) fn wait_for(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
    exit_code(status)
}
