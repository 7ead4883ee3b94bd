//! A program that puts the list of system calls in force and then runs its arguments: how the first process of a
//! container comes under the same list as a job without one, whatever the engine's own list allows.
//!
//! It runs in images that have nothing of ours, not even a C library, so it is a static ELF file of a few hundred bytes:
//! headers, the instructions below, and the filter. Without arguments it waits for ever: that keeps a network
//! namespace alive.

use std::mem::size_of;

use crate::seccomp::Filter;

#[cfg(target_arch = "x86_64")]
const MACHINE: Option<u16> = Some(62);
/// The instructions are x86-64's.
#[cfg(not(target_arch = "x86_64"))]
const MACHINE: Option<u16> = None;

const BASE: u64 = 0x40_0000;
const ELF_HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
/// Length and place of the filter: what `seccomp` is given. [`CODE`] names it.
const FILTER_AT: u64 = 0x80;
const CODE_AT: u64 = 0x90;

/// The file, or none for machines that it has no instructions for.
pub fn first_program() -> Option<Vec<u8>> {
    let machine = MACHINE?;
    let filter = Filter::new();
    let filter_at = (CODE_AT + CODE.len() as u64).next_multiple_of(8);
    let bytes = filter.bytes();
    let end = filter_at + bytes.len() as u64;
    let mut file = Vec::with_capacity(end as usize);
    // 64 bits, little endian, version 1, System V.
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for half in [2, machine] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [BASE + CODE_AT, ELF_HEADER, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [ELF_HEADER as u16, PROGRAM_HEADER as u16, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // One segment with everything, to read and execute.
    for word in [1_u32, 5] {
        file.extend(word.to_le_bytes());
    }
    for word in [0, BASE, BASE, end, end, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.resize(FILTER_AT as usize, 0);
    let instructions = bytes.len() / size_of::<libc::sock_filter>();
    file.extend((instructions as u64).to_le_bytes());
    file.extend((BASE + filter_at).to_le_bytes());
    file.extend(CODE);
    file.resize(filter_at as usize, 0);
    file.extend(bytes);
    Some(file)
}

#[rustfmt::skip]
const CODE: &[u8] = &[
    // No arguments: wait.
    0x48, 0x8b, 0x04, 0x24,             // mov rax, [rsp]
    0x48, 0x83, 0xf8, 0x01,             // cmp rax, 1
    0x7e, 0x56,                         // jle wait
    // prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    0xbf, 0x26, 0x00, 0x00, 0x00,       // mov edi, 38
    0xbe, 0x01, 0x00, 0x00, 0x00,       // mov esi, 1
    0x31, 0xd2,                         // xor edx, edx
    0x45, 0x31, 0xd2,                   // xor r10d, r10d
    0x45, 0x31, 0xc0,                   // xor r8d, r8d
    0xb8, 0x9d, 0x00, 0x00, 0x00,       // mov eax, 157
    0x0f, 0x05,                         // syscall
    // seccomp(SECCOMP_SET_MODE_FILTER, 0, the filter)
    0xbf, 0x01, 0x00, 0x00, 0x00,       // mov edi, 1
    0x31, 0xf6,                         // xor esi, esi
    0xba, 0x80, 0x00, 0x40, 0x00,       // mov edx, BASE + FILTER_AT
    0xb8, 0x3d, 0x01, 0x00, 0x00,       // mov eax, 317
    0x0f, 0x05,                         // syscall
    0x85, 0xc0,                         // test eax, eax
    0x75, 0x1a,                         // jnz fail
    // execve(argv[1], argv + 1, environment)
    0x48, 0x8b, 0x04, 0x24,             // mov rax, [rsp]
    0x48, 0x8d, 0x74, 0x24, 0x10,       // lea rsi, [rsp + 16]
    0x48, 0x8d, 0x54, 0xc4, 0x10,       // lea rdx, [rsp + rax * 8 + 16]
    0x48, 0x8b, 0x7c, 0x24, 0x10,       // mov rdi, [rsp + 16]
    0xb8, 0x3b, 0x00, 0x00, 0x00,       // mov eax, 59
    0x0f, 0x05,                         // syscall
    // fail: exit(126)
    0xbf, 0x7e, 0x00, 0x00, 0x00,       // mov edi, 126
    0xb8, 0x3c, 0x00, 0x00, 0x00,       // mov eax, 60
    0x0f, 0x05,                         // syscall
    // wait: pause()
    0xb8, 0x22, 0x00, 0x00, 0x00,       // mov eax, 34
    0x0f, 0x05,                         // syscall
    0xeb, 0xf7,                         // jmp wait
];

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_it_runs_is_under_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("first");
        std::fs::write(&program, first_program().unwrap()).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = |line: &str| {
            let done =
                Command::new(&program).args(["/bin/sh", "-c", line]).env("WORD", "given").output().unwrap();
            (done.status.code(), String::from_utf8(done.stdout).unwrap())
        };
        assert_eq!(run("echo $WORD; exit 7"), (Some(7), "given\n".to_owned()));
        let (_, status) = run("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status");
        assert_eq!(status, "NoNewPrivs:\t1\nSeccomp:\t2\n");
        assert_ne!(run("unshare --user true 2>/dev/null").0, Some(0));
        assert_eq!(Command::new(&program).arg("/no/such/shell").status().unwrap().code(), Some(126));
    }
}
