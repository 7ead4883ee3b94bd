//! System calls that a job may not make: a filter of the kernel, made once and put in force before the job's first
//! instruction. It lists what is refused. What a training job needs is everything else; what it must not have are the
//! calls that change the machine, that reach into the kernel's rarely used corners, or that would get it out of the
//! layers around it.

use std::io;

use crate::sys;

/// What a refused call answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// "Operation not permitted".
    Refused,
    /// `ENOSYS`. Programs then fall back to an older call.
    Absent,
    /// "Operation not supported": as on file systems that cannot do it.
    Unsupported,
}

impl Answer {
    fn errno(self) -> u32 {
        (match self {
            Self::Refused => libc::EPERM,
            Self::Absent => libc::ENOSYS,
            Self::Unsupported => libc::EOPNOTSUPP,
        }) as u32
    }
}

const NEW_NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | 0x80) as u32;

/// Refused whatever their arguments.
const CALLS: &[(libc::c_long, Answer)] = &[
    // Namespaces and mounts.
    (libc::SYS_setns, Answer::Refused),
    (libc::SYS_mount, Answer::Refused),
    (libc::SYS_umount2, Answer::Refused),
    (libc::SYS_pivot_root, Answer::Refused),
    (libc::SYS_chroot, Answer::Refused),
    (libc::SYS_open_tree, Answer::Refused),
    (libc::SYS_move_mount, Answer::Refused),
    (libc::SYS_fsopen, Answer::Refused),
    (libc::SYS_fsconfig, Answer::Refused),
    (libc::SYS_fsmount, Answer::Refused),
    (libc::SYS_fspick, Answer::Refused),
    (libc::SYS_mount_setattr, Answer::Refused),
    (OPEN_TREE_ATTR, Answer::Refused),
    (libc::SYS_open_by_handle_at, Answer::Refused),
    // Its flags are in memory, where a filter cannot look; libc falls back to `clone`.
    (libc::SYS_clone3, Answer::Absent),
    // Keys outlive processes.
    (libc::SYS_keyctl, Answer::Refused),
    (libc::SYS_add_key, Answer::Refused),
    (libc::SYS_request_key, Answer::Refused),
    // Large and rarely used parts of the kernel.
    (libc::SYS_io_uring_setup, Answer::Absent),
    (libc::SYS_io_uring_enter, Answer::Absent),
    (libc::SYS_io_uring_register, Answer::Absent),
    (libc::SYS_bpf, Answer::Refused),
    (libc::SYS_perf_event_open, Answer::Refused),
    (libc::SYS_userfaultfd, Answer::Refused),
    (libc::SYS_fanotify_init, Answer::Refused),
    (libc::SYS_lookup_dcookie, Answer::Refused),
    (libc::SYS_vhangup, Answer::Refused),
    (libc::SYS_acct, Answer::Refused),
    (libc::SYS_quotactl, Answer::Refused),
    (libc::SYS_quotactl_fd, Answer::Refused),
    (libc::SYS_syslog, Answer::Refused),
    (libc::SYS_kcmp, Answer::Refused),
    (libc::SYS_process_madvise, Answer::Refused),
    (libc::SYS_move_pages, Answer::Refused),
    (libc::SYS_migrate_pages, Answer::Refused),
    // Modules, other kernels, the machine as a whole.
    (libc::SYS_init_module, Answer::Refused),
    (libc::SYS_finit_module, Answer::Refused),
    (libc::SYS_delete_module, Answer::Refused),
    (libc::SYS_kexec_load, Answer::Refused),
    (libc::SYS_kexec_file_load, Answer::Refused),
    (libc::SYS_reboot, Answer::Refused),
    (libc::SYS_swapon, Answer::Refused),
    (libc::SYS_swapoff, Answer::Refused),
    (libc::SYS_sethostname, Answer::Refused),
    (libc::SYS_setdomainname, Answer::Refused),
    // Clocks.
    (libc::SYS_clock_settime, Answer::Refused),
    (libc::SYS_clock_adjtime, Answer::Refused),
    (libc::SYS_settimeofday, Answer::Refused),
    (libc::SYS_adjtimex, Answer::Refused),
    // Room on the disk is counted as it is written; what is reserved at once could not be. Programs write instead.
    (libc::SYS_fallocate, Answer::Unsupported),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_iopl, Answer::Refused),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ioperm, Answer::Refused),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_modify_ldt, Answer::Refused),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_uselib, Answer::Refused),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_sysfs, Answer::Refused),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ustat, Answer::Refused),
];

/// Since Linux 6.15; libc has no name for it yet.
const OPEN_TREE_ATTR: libc::c_long = 467;

/// Families of sockets that reach past the network namespace, or into corners of the kernel that no job needs.
const SOCKET_FAMILIES: [i32; 8] = [
    libc::AF_VSOCK,
    libc::AF_ALG,
    libc::AF_PACKET,
    libc::AF_KEY,
    libc::AF_TIPC,
    libc::AF_RDS,
    libc::AF_BLUETOOTH,
    libc::AF_XDP,
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
/// Calls of the x32 interface have this bit: it is another way to every call of the list.
const X32: u32 = 0x4000_0000;

/// What a seccomp program reads: the number of the call, its interface, and its arguments' lower halves.
const AT_NUMBER: u32 = 0;
const AT_ARCHITECTURE: u32 = 4;
const AT_FIRST_ARGUMENT: u32 = 16;
const AT_SECOND_ARGUMENT: u32 = 24;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// A filter, ready to be put in force.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Vec<libc::sock_filter>);

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// The next instruction if it holds, the one after that if not.
fn branch(code: u16, k: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: skip, k }
}

impl Filter {
    pub(crate) fn new() -> Self {
        let refuse = |answer: Answer| statement(RETURN, ERRNO | answer.errno());
        let mut all = vec![
            statement(LOAD, AT_ARCHITECTURE),
            // Another interface (32-bit programs) has other numbers: none of them is served.
            libc::sock_filter { code: EQUAL, jt: 1, jf: 0, k: ARCHITECTURE },
            refuse(Answer::Absent),
            statement(LOAD, AT_NUMBER),
            branch(AT_LEAST, X32, 1),
            refuse(Answer::Absent),
        ];
        for (number, answer) in CALLS {
            all.extend([branch(EQUAL, *number as u32, 1), refuse(*answer)]);
        }
        // New namespaces by `clone` and `unshare`; threads and processes without them are everybody's.
        for number in [libc::SYS_clone, libc::SYS_unshare] {
            all.extend([
                branch(EQUAL, number as u32, 4),
                statement(LOAD, AT_FIRST_ARGUMENT),
                branch(ANY_BIT, NEW_NAMESPACES, 1),
                refuse(Answer::Refused),
                statement(RETURN, ALLOW),
            ]);
        }
        // Some sockets, by their family.
        all.push(branch(EQUAL, libc::SYS_socket as u32, 2 + 2 * SOCKET_FAMILIES.len() as u8));
        all.push(statement(LOAD, AT_FIRST_ARGUMENT));
        for family in SOCKET_FAMILIES {
            all.extend([branch(EQUAL, family as u32, 1), refuse(Answer::Refused)]);
        }
        all.push(statement(RETURN, ALLOW));
        // Typing on somebody else's terminal.
        all.extend([
            branch(EQUAL, libc::SYS_ioctl as u32, 5),
            statement(LOAD, AT_SECOND_ARGUMENT),
            branch(EQUAL, libc::TIOCSTI as u32, 1),
            refuse(Answer::Refused),
            branch(EQUAL, libc::TIOCLINUX as u32, 1),
            refuse(Answer::Refused),
            statement(RETURN, ALLOW),
        ]);
        Self(all)
    }

    /// As the kernel reads it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let words = self.0.iter().map(|now| (now.code.to_ne_bytes(), [now.jt, now.jf], now.k.to_ne_bytes()));
        words.flat_map(|(code, jumps, k)| code.into_iter().chain(jumps).chain(k)).collect()
    }

    /// For this process and all that it starts, for ever. It must have given up new privileges.
    pub(crate) fn enter(&self) -> io::Result<()> {
        sys::seccomp_enter(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would make of a call: an interpreter of the few instructions that are used.
    fn run(filter: &Filter, architecture: u32, number: u32, arguments: [u32; 2]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let now = filter.0[at];
            at += 1;
            let holds = match now.code {
                LOAD => {
                    loaded = match now.k {
                        AT_NUMBER => number,
                        AT_ARCHITECTURE => architecture,
                        AT_FIRST_ARGUMENT => arguments[0],
                        AT_SECOND_ARGUMENT => arguments[1],
                        other => panic!("reads at {other}"),
                    };
                    continue;
                }
                RETURN => return now.k,
                EQUAL => loaded == now.k,
                AT_LEAST => loaded >= now.k,
                ANY_BIT => loaded & now.k != 0,
                other => panic!("instruction {other:#x}"),
            };
            at += usize::from(if holds { now.jt } else { now.jf });
        }
    }

    #[test]
    fn every_call_gets_its_answer() {
        let filter = Filter::new();
        let on = |number: libc::c_long, arguments| run(&filter, ARCHITECTURE, number as u32, arguments);
        let refused = |answer: Answer| ERRNO | answer.errno();
        for (number, answer) in CALLS {
            assert_eq!(on(*number, [0, 0]), refused(*answer), "call {number}");
        }
        for (number, arguments, expect) in [
            (libc::SYS_read, [0, 0], ALLOW),
            (libc::SYS_execve, [0, 0], ALLOW),
            (libc::SYS_ptrace, [0, 0], ALLOW),
            (libc::SYS_clone, [libc::CLONE_VM as u32, 0], ALLOW),
            (
                libc::SYS_clone,
                [libc::CLONE_NEWUSER as u32 | libc::CLONE_VM as u32, 0],
                refused(Answer::Refused),
            ),
            (libc::SYS_unshare, [libc::CLONE_FILES as u32, 0], ALLOW),
            (libc::SYS_unshare, [libc::CLONE_NEWNET as u32, 0], refused(Answer::Refused)),
            (libc::SYS_socket, [libc::AF_INET as u32, 0], ALLOW),
            (libc::SYS_socket, [libc::AF_UNIX as u32, 0], ALLOW),
            (libc::SYS_socket, [libc::AF_NETLINK as u32, 0], ALLOW),
            (libc::SYS_socket, [libc::AF_VSOCK as u32, 0], refused(Answer::Refused)),
            (libc::SYS_socket, [libc::AF_PACKET as u32, 0], refused(Answer::Refused)),
            (libc::SYS_ioctl, [0, libc::TIOCGWINSZ as u32], ALLOW),
            (libc::SYS_ioctl, [0, libc::TIOCSTI as u32], refused(Answer::Refused)),
        ] {
            assert_eq!(on(number, arguments), expect, "call {number} {arguments:?}");
        }
        assert_eq!(run(&filter, 0x4000_0003, 1, [0, 0]), refused(Answer::Absent), "another interface");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(on(libc::SYS_mount | i64::from(X32), [0, 0]), refused(Answer::Absent));
        }
    }
}
