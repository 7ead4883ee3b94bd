//! The host's Python, and the light virtual environment every attempt gets on it.
//!
//! The environment sees the host's packages; what a job installs goes into its own folder and away with it. It is
//! written file by file, since `python -m venv` takes a hundred times as long.

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::folder::make_owned;

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

impl Interpreter {
    /// Writes an environment to `at`, for the user who may install into it. It works wherever it is seen. The names of
    /// what could be changed in it come back, `` among them: the folder itself.
    ///
    /// The files are for reading: who wants others must replace them, which shows.
    pub(crate) fn write_environment(&self, at: &Path, owner: Option<u32>) -> io::Result<Vec<String>> {
        let link = self.pip_wheel.as_ref().map(|wheel| format!("{}\n", wheel.display()));
        self.write(at, owner, true, link.as_deref())
    }

    /// The same on top of the packages of another environment, and without the host's own: what a job installs goes
    /// into `at`, what is in `packages` stays as it is.
    pub(crate) fn write_environment_over(
        &self,
        at: &Path,
        owner: Option<u32>,
        packages: &Path,
    ) -> io::Result<()> {
        // Not the folder alone: its own `.pth` files count too.
        let link = format!("import site; site.addsitedir({:?})\n", packages.display().to_string());
        self.write(at, owner, false, Some(&link)).map(drop)
    }

    fn write(
        &self,
        at: &Path,
        owner: Option<u32>,
        with_hosts: bool,
        link: Option<&str>,
    ) -> io::Result<Vec<String>> {
        let home = self.program.parent().unwrap_or(Path::new("/")).display();
        let mut made = Vec::new();
        for name in ["", "bin"] {
            make_owned(&at.join(name), owner)?;
            made.push(name.to_owned());
        }
        let version = &self.version;
        write_fixed(
            &at.join("pyvenv.cfg"),
            0o444,
            &format!("home = {home}\ninclude-system-site-packages = {with_hosts}\nversion = {version}\n"),
        )?;
        write_fixed(&at.join("bin/pip"), 0o555, PIP)?;
        made.extend(["pyvenv.cfg", "bin/pip"].map(str::to_owned));
        symlink(&self.program, at.join("bin/python3"))?;
        symlink("python3", at.join("bin/python"))?;
        let Some(link) = link else { return Ok(made) };
        let library = format!("lib/python{}", self.short_version());
        let packages = format!("{library}/site-packages");
        for name in ["lib", &library, &packages] {
            make_owned(&at.join(name), owner)?;
            made.push(name.to_owned());
        }
        let file = format!("{packages}/neap-packages.pth");
        write_fixed(&at.join(&file), 0o444, link)?;
        made.push(file);
        Ok(made)
    }

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

/// Runs the `python3` beside itself.
const PIP: &str =
    "#!/bin/sh\ncase $0 in */*) exec \"${0%/*}/python3\" -m pip \"$@\" ;; esac\nexec python3 -m pip \"$@\"\n";

fn write_fixed(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
