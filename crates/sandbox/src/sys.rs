//! The few kernel calls that no safe wrapper offers: fork, clone, exec, and their surroundings.
//!
//! Everything here is small and says why it is sound. It never decides anything.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::direct::Direct;

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
    dies_with_parent: bool,
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
    /// Where no pid namespace ends it with its supervisor.
    pub dies_with_parent: bool,
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
            dies_with_parent: spec.dies_with_parent,
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
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
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

    /// The same in a copy of this process and in a mount namespace of its own, which `confine` then leaves for the
    /// attempt's. The caller must be single-threaded.
    pub(crate) fn start_confined(
        &mut self,
        confine: impl FnOnce() -> Result<(), (&'static str, io::Error)>,
    ) -> Result<i32, (&'static str, io::Error)> {
        let starting = |e: rustix::io::Errno| ("starting a process", io::Error::from(e));
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(starting)?;
        match fork(libc::CLONE_NEWNS as u64).map_err(|e| ("starting a process", e))? {
            Forked::Child => {
                new_session();
                let joined = self.join_cgroups();
                let (step, error) = match joined.and_then(|()| confine()) {
                    Ok(()) => {
                        execute(self);
                        (self.step, self.error)
                    }
                    Err((step, e)) => (step, e.raw_os_error().unwrap_or(libc::EINVAL)),
                };
                let mut word = error.to_le_bytes().to_vec();
                word.extend_from_slice(step.as_bytes());
                let _ = rustix::io::write(&write, &word);
                exit_now(127)
            }
            Forked::Parent(pid) => {
                drop(write);
                let mut word = [0; 256];
                // Nothing comes when it has been executed: then the other end is closed.
                let length = loop {
                    match rustix::io::read(&read, &mut word) {
                        Err(rustix::io::Errno::INTR) => {}
                        other => break other.unwrap_or(0),
                    }
                };
                if length < 4 {
                    return Ok(pid);
                }
                let _ = wait_for(pid);
                let error = i32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                // Kept for ever, which is not long: this process starts nothing else.
                let step = String::from_utf8_lossy(&word[4..length]).into_owned().leak();
                Err((step, io::Error::from_raw_os_error(error)))
            }
        }
    }

    fn join_cgroups(&self) -> Result<(), (&'static str, io::Error)> {
        for fd in &self.cgroup_procs {
            // SAFETY: one byte of a string, to a descriptor that the supervisor keeps open.
            if unsafe { libc::write(*fd, c"0".as_ptr().cast(), 1) } != 1 {
                return Err(("joining the cgroup", io::Error::last_os_error()));
            }
        }
        Ok(())
    }
}

/// The child between clone and exec. It shares memory with its suspended parent, so that whatever it allocates
/// it frees again before it executes.
extern "C" fn begin(program: *mut c_void) -> c_int {
    // SAFETY: `start` passes its own `&mut Program` and is suspended while this runs.
    let program = unsafe { &mut *program.cast::<Program>() };
    new_session();
    if let Err((step, e)) = program.join_cgroups() {
        program.step = step;
        program.error = e.raw_os_error().unwrap_or(libc::EIO);
        return 127;
    }
    execute(program);
    127
}

/// Becomes the program. Returns only where that failed, with step and error in `program`.
fn execute(program: &mut Program) {
    let failed = |program: &mut Program, step: &'static str| {
        program.step = step;
        program.error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    };
    // SAFETY: plain calls on integers and on strings that `program` owns.
    unsafe {
        if program.dies_with_parent {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
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
    failed(program, "executing the shell");
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

/// Nothing can be written.
pub(crate) const READ_ONLY: u64 = 1;
/// Programs get no other user's rights.
pub(crate) const NO_SETUID: u64 = 2;
/// Device files open nothing.
pub(crate) const NO_DEVICES: u64 = 4;

/// A detached copy of the mount at `path` (a bind mount without a place yet).
pub(crate) fn open_tree(path: &CStr) -> io::Result<OwnedFd> {
    open_tree_with(path, 0)
}

/// The same with everything that is mounted below it.
pub(crate) fn open_tree_recursive(path: &CStr) -> io::Result<OwnedFd> {
    open_tree_with(path, libc::AT_RECURSIVE as u32)
}

fn open_tree_with(path: &CStr, flags: u32) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: u32 = 1;
    // SAFETY: the path is a valid C string; the descriptor that comes back is ours.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            path.as_ptr(),
            OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | flags,
        );
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as RawFd)) }
    }
}

/// Adds attributes to a detached mount, and with `recursive` to all that are below it.
pub(crate) fn set_attributes(tree: &OwnedFd, set: u64, recursive: bool) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    mount_setattr(tree.as_raw_fd(), c"", flags, set)
}

/// Adds attributes to the mount at `path`.
pub(crate) fn set_attributes_at(path: &CStr, set: u64) -> io::Result<()> {
    mount_setattr(libc::AT_FDCWD, path, 0, set)
}

fn mount_setattr(at: RawFd, path: &CStr, flags: c_int, set: u64) -> io::Result<()> {
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
            at,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the current folder, which is a mount, the root of this mount namespace, and lets go of the old root.
pub(crate) fn pivot_root_here() -> io::Result<()> {
    // SAFETY: two valid C strings; with both the same the old root comes to lie over the new one, and is taken away.
    let done = unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a valid C string and an integer.
    if unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes a character device that everybody may read and write.
pub(crate) fn make_device(path: &CStr, major: u32, minor: u32) -> io::Result<()> {
    // SAFETY: a valid C string and integers.
    let done = unsafe {
        libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(major, minor)) == 0
            && libc::chmod(path.as_ptr(), 0o666) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
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
pub(crate) fn close_now(fd: &impl AsRawFd) {
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

/// The newest version of Landlock's rules that this kernel knows.
pub(crate) fn landlock_version() -> io::Result<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the kernel reads no memory and answers with a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<c_void>(),
            0,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).map_err(|_| io::Error::last_os_error()).and_then(|version| {
        if version == 0 { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) } else { Ok(version) }
    })
}

/// An empty set of rules that deals with these rights about files, and these scopes.
pub(crate) fn landlock_new(rights: u64, scopes: u64, version: u32) -> io::Result<OwnedFd> {
    /// As the kernel has it (`struct landlock_ruleset_attr`).
    #[repr(C)]
    struct Attributes {
        files: u64,
        network: u64,
        scopes: u64,
    }
    let attributes = Attributes { files: rights, network: 0, scopes };
    // Older kernels know a shorter structure, and refuse a longer one only where it is not zero.
    let size = if version >= 6 { size_of::<Attributes>() } else { size_of::<u64>() };
    // SAFETY: the structure outlives the call, and `size` is no more than its size; the new descriptor is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as RawFd)) }
    }
}

/// Allows these rights below what `at` stands for.
pub(crate) fn landlock_allow(set: &OwnedFd, at: RawFd, rights: u64) -> io::Result<()> {
    const LANDLOCK_RULE_PATH_BENEATH: u32 = 1;
    /// As the kernel has it (`struct landlock_path_beneath_attr`).
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        at: RawFd,
    }
    let rule = PathBeneath { rights, at };
    // SAFETY: the structure outlives the call; both descriptors are open.
    let done = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            set.as_raw_fd(),
            LANDLOCK_RULE_PATH_BENEATH,
            &raw const rule,
            0,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts the rules in force for this process.
pub(crate) fn landlock_enter(set: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes an open descriptor and an integer.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, set.as_raw_fd(), 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a filter of system calls in force for this process.
pub(crate) fn seccomp_enter(program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program outlives the call, which copies it.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A session keyring of its own: the one of the process before is not seen any more.
pub(crate) fn new_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    let done =
        unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<c_char>()) };
    if done >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Becomes a user and its group, and nobody else's, for ever. With `keep_capabilities` the process has until it executes
/// another program what it may do now.
pub(crate) fn become_user(id: u32, keep_capabilities: bool) -> io::Result<()> {
    // SAFETY: plain calls on integers, and a null pointer with a length of zero. The caller is single-threaded, so that
    // the raw calls change the whole process.
    let done = unsafe {
        libc::prctl(libc::PR_SET_KEEPCAPS, c_int::from(keep_capabilities), 0, 0, 0) == 0
            && libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) == 0
            && libc::syscall(libc::SYS_setresgid, id, id, id) == 0
            && libc::syscall(libc::SYS_setresuid, id, id, id) == 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    if keep_capabilities { raise_capabilities() } else { Ok(()) }
}

/// Makes all capabilities that are permitted effective.
fn raise_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 reads and writes one header and two data structures, which outlive both calls.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        for half in &mut data {
            half.effective = half.permitted;
        }
        if libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Enters new namespaces (`CLONE_NEW*`).
pub(crate) fn unshare(namespaces: c_int) -> io::Result<()> {
    // SAFETY: takes an integer; namespaces alone do not touch memory.
    if unsafe { libc::unshare(namespaces) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether others of the same user may look into this process.
pub(crate) fn set_dumpable(may: bool) {
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, c_int::from(may), 0, 0, 0) };
}

/// No program that this process executes gets rights that it does not have.
pub(crate) fn no_new_privileges() -> io::Result<()> {
    // SAFETY: takes integers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
