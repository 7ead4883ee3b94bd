//! The host's Python, and the light virtual environment every attempt gets on it.
//!
//! The environment sees the host's packages; what a job installs goes into its own folder and away with it. It
//! is written file by file, since `python -m venv` takes a hundred times as long.

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// An interpreter, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    /// The real program, not a shim or a link in another environment.
    pub program: PathBuf,
    pub version: String,
    /// Where `pip` comes from if the interpreter itself has none (a bundled wheel).
    pip_wheel: Option<PathBuf>,
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
    for folder in std::env::split_paths(path).chain(["/usr/local/bin".into(), "/usr/bin".into()]) {
        let candidate = folder.join("python3");
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

/// Whether everybody may run this file: by its own mode and that of every folder above.
fn reachable(program: &Path) -> bool {
    let Ok(real) = program.canonicalize() else { return false };
    real.ancestors().chain(program.ancestors()).all(|part| {
        part.as_os_str().is_empty()
            || part.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
    })
}

impl Interpreter {
    /// Writes an environment to `at`, which attempts see as `seen_at`, for the user who may install into it.
    pub(crate) fn write_environment(&self, at: &Path, seen_at: &Path, owner: Option<u32>) -> io::Result<()> {
        let bin = at.join("bin");
        std::fs::create_dir_all(&bin)?;
        let home = self.program.parent().unwrap_or(Path::new("/")).display();
        std::fs::write(
            at.join("pyvenv.cfg"),
            format!("home = {home}\ninclude-system-site-packages = true\nversion = {}\n", self.version),
        )?;
        symlink(&self.program, bin.join("python3"))?;
        symlink("python3", bin.join("python"))?;
        let pip = bin.join("pip");
        std::fs::write(&pip, format!("#!/bin/sh\nexec {}/bin/python3 -m pip \"$@\"\n", seen_at.display()))?;
        std::fs::set_permissions(&pip, std::fs::Permissions::from_mode(0o755))?;
        if let Some(owner) = owner {
            std::os::unix::fs::chown(at, Some(owner), Some(owner))?;
            std::os::unix::fs::chown(&bin, Some(owner), Some(owner))?;
        }
        let Some(wheel) = &self.pip_wheel else { return Ok(()) };
        let short: Vec<&str> = self.version.split('.').take(2).collect();
        let mut packages = at.to_owned();
        for name in ["lib", &format!("python{}", short.join(".")), "site-packages"] {
            packages.push(name);
            std::fs::create_dir_all(&packages)?;
            if let Some(owner) = owner {
                std::os::unix::fs::chown(&packages, Some(owner), Some(owner))?;
            }
        }
        std::fs::write(packages.join("neap-pip.pth"), format!("{}\n", wheel.display()))
    }
}
