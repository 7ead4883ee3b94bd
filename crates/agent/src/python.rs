//! The host's Python interpreters, as they describe themselves.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use neap_sandbox::Bind;

/// An interpreter, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    /// The real program, not a shim or a link in another environment.
    pub program: PathBuf,
    pub version: String,
    /// Where `pip` comes from if the interpreter itself has none (a bundled wheel).
    pub pip_wheel: Option<PathBuf>,
}

const DESCRIBE: &str = "import sys,glob,os
from importlib.util import find_spec
wheel=''
if find_spec('pip') is None:
    places=['/usr/share/python-wheels']
    if find_spec('ensurepip') is not None:
        import ensurepip
        places.insert(0,os.path.join(os.path.dirname(ensurepip.__file__),'_bundled'))
    found=[w for p in places for w in sorted(glob.glob(os.path.join(p,'pip-*.whl')))]
    wheel=found[0] if found else ''
print(os.path.realpath(getattr(sys,'_base_executable',None) or sys.executable))
print('%d.%d.%d'%sys.version_info[:3])
print(wheel)";

/// The first usable `python3` of `path`. With `for_others`, one that an unprivileged user can reach.
pub(crate) async fn find(path: &str, for_others: bool) -> Option<Interpreter> {
    find_named(path, "python3", for_others).await
}

/// The same for `python3.10` and the like.
pub(crate) async fn find_named(path: &str, name: &str, for_others: bool) -> Option<Interpreter> {
    for folder in std::env::split_paths(path).chain(["/usr/local/bin".into(), "/usr/bin".into()]) {
        let candidate = folder.join(name);
        if !candidate.exists() || (for_others && !reachable(&candidate)) {
            continue;
        }
        let asked = tokio::process::Command::new(&candidate)
            .args(["-I", "-c", DESCRIBE])
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .output()
            .await;
        let Ok(answer) = asked.as_ref().map(|output| String::from_utf8_lossy(&output.stdout)) else {
            continue;
        };
        let mut lines = answer.lines();
        let (Some(program), Some(version)) = (lines.next(), lines.next()) else { continue };
        let program = PathBuf::from(program);
        if for_others && !reachable(&program) {
            continue;
        }
        let pip_wheel = lines.next().filter(|line| !line.is_empty()).map(PathBuf::from);
        return Some(Interpreter { program, version: version.to_owned(), pip_wheel });
    }
    None
}

/// The first program of this name on `path`; with `for_others`, one that an unprivileged user can reach.
pub(crate) fn find_program(path: &str, name: &str, for_others: bool) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|program| {
        program.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
            && (!for_others || reachable(program))
    })
}

/// Whether everybody may run this file: by its own mode and that of every folder above. What lies in `/tmp` is not
/// there for attempts, who have one of their own.
fn reachable(program: &Path) -> bool {
    let Ok(real) = program.canonicalize() else { return false };
    if real.starts_with("/tmp") || program.starts_with("/tmp") {
        return false;
    }
    real.ancestors().chain(program.ancestors()).all(|part| {
        part.as_os_str().is_empty()
            || part.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
    })
}

/// The folder that a program is installed in, for isolated attempts: they see what is installed in the system's own
/// folders anyway.
pub(crate) fn installation(program: &Path) -> Option<Bind> {
    let folder = program.parent()?.parent()?;
    let alone = folder.parent().is_some() && !neap_sandbox::is_system_folder(folder);
    alone.then(|| Bind { from: folder.to_owned(), to: folder.to_owned(), read_only: true })
}

/// A program that lies outside of the system's folders, for isolated attempts: the file, and nothing beside it.
pub(crate) fn program_alone(program: &Path) -> Option<Bind> {
    let real = program.canonicalize().ok()?;
    let hidden = !neap_sandbox::is_system_folder(program) || !neap_sandbox::is_system_folder(&real);
    hidden.then(|| Bind { from: real, to: program.to_owned(), read_only: true })
}

impl Interpreter {
    /// `3.11`
    pub(crate) fn short_version(&self) -> String {
        self.version.split('.').take(2).collect::<Vec<_>>().join(".")
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self {
            program: "/usr/bin/python3.99".into(),
            version: "3.99.1".into(),
            pip_wheel: Some("/wheels/pip.whl".into()),
        }
    }
}
