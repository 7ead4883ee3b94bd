//! A virtual environment of packages on an interpreter of the host: what it is known by, and the commands that make
//! it. It runs nothing itself; the commands run like an attempt does, as an unprivileged user where there is one, since
//! installing a package runs the package's own code.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::limits::VERSION_BYTES_MAX;
use super::packages::Wanted;
use crate::python::Interpreter;
use crate::tree::Tree;

/// Where the requirements lie, below the `work` folder of a build.
pub(crate) const FILES: &str = "environment";
pub(crate) const REQUIREMENTS: &str = "requirements.txt";
pub(crate) const CONDA_FILE: &str = "conda.yml";
/// Where environments are seen by attempts in namespaces of their own.
pub(crate) const PLACE: &str = "/mnt/azureml/environments";
/// The environment itself in its folder of the cache.
const INNER: &str = "env";
/// What a build needs and an environment does not, in the same folder.
pub(crate) const SCRATCH: &str = "scratch";
/// Where a build says which Python it brought, if it brought one.
pub(crate) const VERSION_FILE: &str = "python-version";

/// Who installs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Uv(PathBuf),
    Pip,
    Micromamba(PathBuf),
}

impl Tool {
    /// Its program, where it has one of its own.
    pub(crate) fn program(&self) -> Option<&Path> {
        match self {
            Self::Uv(program) | Self::Micromamba(program) => Some(program),
            Self::Pip => None,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Uv(_) => "uv",
            Self::Pip => "pip",
            Self::Micromamba(_) => "micromamba",
        }
    }
}

/// An environment that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    pub tool: Tool,
    /// The interpreter it stands on; with conda, the one that merely is there.
    pub python: Interpreter,
    /// The requirements file, or the conda file.
    pub text: String,
}

/// An environment that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// In the cache.
    pub folder: String,
    pub tool: String,
    /// None: it has its own.
    pub python: Option<PathBuf>,
    pub version: String,
    pub took_ms: u64,
}

impl Recipe {
    /// `wanted` must have no unknown packages unless the tool is micromamba.
    pub(crate) fn new(tool: Tool, python: Interpreter, wanted: &Wanted, written: &str) -> Self {
        let text = match tool {
            Tool::Micromamba(_) => written.to_owned(),
            // For `pip install` in jobs.
            Tool::Uv(_) | Tool::Pip => {
                let pip = (!wanted.requirements.iter().any(|line| is_pip(line))).then_some("pip");
                let lines = wanted.requirements.iter().map(String::as_str);
                lines.chain(pip).map(|line| format!("{line}\n")).collect()
            }
        };
        Self { tool, python, text }
    }

    /// Environments with the same key are the same.
    pub(crate) fn key(&self, place: &Path) -> String {
        Cache::key(&[
            // The first kind were not sealed.
            "venv-2",
            self.tool.name(),
            &self.python.program.display().to_string(),
            &self.python.version,
            &self.text,
            &place.display().to_string(),
        ])
    }

    pub(crate) fn file_name(&self) -> &'static str {
        match self.tool {
            Tool::Micromamba(_) => CONDA_FILE,
            Tool::Uv(_) | Tool::Pip => REQUIREMENTS,
        }
    }

    /// The commands, for a shell. `folder` is the environment's folder, and in `files` lie the requirements, as the build sees them.
    pub(crate) fn script(&self, folder: &Path, files: &Path) -> String {
        let env = quoted(&folder.join(INNER));
        let file = quoted(&files.join(self.file_name()));
        let python = quoted(&self.python.program);
        let scratch = quoted(&folder.join(SCRATCH));
        let install = match (&self.tool, &self.python.pip_wheel) {
            (Tool::Uv(uv), _) => {
                let uv = quoted(uv);
                format!(
                    "{uv} venv --quiet --no-config --python {python} {env}\n\
                     {uv} pip install --no-progress --compile-bytecode --python {env}/bin/python -r {file}\n"
                )
            }
            (Tool::Pip, Some(wheel)) => format!(
                "{python} -m venv --without-pip {env}\n\
                 {env}/bin/python {}/pip install --progress-bar off -r {file}\n",
                quoted(wheel)
            ),
            (Tool::Pip, None) => format!(
                "{python} -m venv --without-pip {env}\n\
                 {python} -m pip --python {env}/bin/python install --progress-bar off -r {file}\n"
            ),
            (Tool::Micromamba(mamba), _) => format!(
                "{} create --yes --prefix {env} --file {file}\n\
                 {env}/bin/python -c 'import sys; print(\"%d.%d.%d\" % sys.version_info[:3])' > {}\n",
                quoted(mamba),
                quoted(&folder.join(VERSION_FILE))
            ),
        };
        format!("set -e\nmkdir {scratch}\n{install}rm -rf {scratch}\n")
    }
}

impl Made {
    /// The interpreter that jobs start from.
    pub(crate) fn interpreter(&self, folder: &Path) -> Interpreter {
        let program = self.python.clone().unwrap_or_else(|| folder.join(INNER).join("bin/python3"));
        Interpreter { program, version: self.version.clone(), pip_wheel: None }
    }

    pub(crate) fn programs(&self, folder: &Path) -> PathBuf {
        folder.join(INNER).join("bin")
    }

    /// Where its packages are, if the interpreter does not find them by itself.
    pub(crate) fn packages(&self, folder: &Path) -> Option<PathBuf> {
        self.python.as_ref()?;
        let library = format!("lib/python{}/site-packages", self.interpreter(folder).short_version());
        Some(folder.join(INNER).join(library))
    }
}

/// The version that a build reports of the Python it has brought. Code of packages may have written it.
pub(crate) fn read_version(made_in: &Tree) -> Result<String, String> {
    let unreadable = |why: &str| format!("The environment cannot be used: {why} in its file {VERSION_FILE}.");
    let read = made_in.read_at_most(VERSION_FILE, VERSION_BYTES_MAX as u64 + 1);
    let bytes = match read {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(unreadable("there is no plain text")),
        Err(e) => return Err(unreadable(&format!("the version of its Python cannot be read ({e})"))),
    };
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if is_version(&text) {
        Ok(text)
    } else {
        Err(unreadable("there is no version of Python, such as 3.11.2,"))
    }
}

/// `3.11.2`
pub(crate) fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    text.len() <= VERSION_BYTES_MAX
        && parts.len() == 3
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()))
}

fn is_pip(line: &str) -> bool {
    let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    name.eq_ignore_ascii_case("pip")
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::packages;

    fn recipe(tool: Tool, text: &str) -> Recipe {
        Recipe::new(tool, Interpreter::for_tests(), &packages::read(text).unwrap(), text)
    }

    #[test]
    fn the_same_packages_are_the_same_environment() {
        let place = Path::new(PLACE);
        let key = |tool, text: &str| recipe(tool, text).key(place);
        assert_eq!(key(Tool::Pip, "six\n"), key(Tool::Pip, "# mine\n six\n\n"));
        assert_ne!(key(Tool::Pip, "six\n"), key(Tool::Pip, "six==1\n"));
        assert_ne!(key(Tool::Pip, "six\n"), key(Tool::Uv("/bin/uv".into()), "six\n"));
        assert_ne!(recipe(Tool::Pip, "six").key(place), recipe(Tool::Pip, "six").key(Path::new("/x")));
    }

    #[test]
    fn pip_is_always_there() {
        assert_eq!(recipe(Tool::Pip, "six").text, "six\npip\n");
        assert_eq!(recipe(Tool::Pip, "pip==23\npip-tools").text, "pip==23\npip-tools\n");
    }

    #[test]
    fn paths_are_one_word() {
        let script = recipe(Tool::Pip, "six").script(Path::new("/a b/it's"), Path::new("/f"));
        assert!(script.contains("-m venv --without-pip '/a b/it'\\''s/env'\n"), "{script}");
        assert!(script.contains("'/wheels/pip.whl'/pip install"), "{script}");
        assert!(script.starts_with("set -e\n"), "{script}");
    }

    #[test]
    fn only_a_version_is_a_version() {
        for (text, expect) in [
            ("3.11.2", true),
            ("3.8.0", true),
            ("3.11", false),
            ("3..2", false),
            ("", false),
            ("secret", false),
            ("3.11.2\nsecret", false),
            ("../../etc", false),
            ("3.11.22222222222222222222222222222222222222", false),
        ] {
            assert_eq!(is_version(text), expect, "{text:?}");
        }
    }

    #[test]
    fn a_version_is_read_from_a_plain_file() {
        let dir = tempfile::tempdir().unwrap();
        let made_in = Tree::open(dir.path(), None).unwrap();
        let file = dir.path().join(VERSION_FILE);
        assert!(read_version(&made_in).is_err(), "nothing is there");
        std::fs::write(&file, "3.12.1\n").unwrap();
        assert_eq!(read_version(&made_in).unwrap(), "3.12.1");
        std::fs::rename(&file, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &file).unwrap();
        let why = read_version(&made_in).unwrap_err();
        assert!(why.contains(VERSION_FILE), "{why}");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "the secret of somebody").unwrap();
        assert!(!read_version(&made_in).unwrap_err().contains("secret"));
    }

    #[test]
    fn conda_brings_its_own_python() {
        let made = Made {
            folder: "f".into(),
            tool: "micromamba".into(),
            python: None,
            version: "3.8.1".into(),
            took_ms: 1,
        };
        let folder = Path::new("/e/f");
        assert_eq!(made.interpreter(folder).program, Path::new("/e/f/env/bin/python3"));
        assert_eq!(made.packages(folder), None);
        let on_hosts = Made { python: Some("/usr/bin/python3".into()), ..made };
        assert_eq!(on_hosts.packages(folder).unwrap(), Path::new("/e/f/env/lib/python3.8/site-packages"));
    }
}
