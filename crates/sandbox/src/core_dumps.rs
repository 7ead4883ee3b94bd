//! No core dumps: the memory of server, agent and supervisor holds secrets, and a dump would write them to a disk.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Too little for a file. The kernel also takes it as "do not even start the program in `core_pattern`", which it does
/// not do for 0.
const CORE_BYTES: u64 = 1;

/// Forbids core dumps for this process and for all that it starts.
pub fn forbid_core_dumps() {
    // A process may always lower its limits.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(CORE_BYTES), maximum: Some(CORE_BYTES) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_the_limit_too() {
        forbid_core_dumps();
        let limits = std::process::Command::new("cat").arg("/proc/self/limits").output().unwrap().stdout;
        let limits = String::from_utf8(limits).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["1", "1"], "{core}");
    }
}
