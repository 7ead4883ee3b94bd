//! The light virtual environment that every attempt gets on an interpreter.
//!
//! It sees the interpreter's packages; what a job installs goes into its own folder and away with it. It is written
//! file by file, since `python -m venv` takes a hundred times as long.

use std::io;
use std::path::Path;

use crate::python::Interpreter;
use crate::tree::Tree;

/// What it is called in an attempt's `work` folder.
pub(crate) const FOLDER: &str = "venv";

/// Writes an environment that sees the packages of the interpreter itself. It works wherever it is seen. The folders in
/// it come back, which belong to the user who may install into it; the files are for reading, and whoever wants
/// others replaces them.
pub(crate) fn write(python: &Interpreter, work: &Tree) -> io::Result<Vec<String>> {
    let link = python.pip_wheel.as_ref().map(|wheel| format!("{}\n", wheel.display()));
    write_with(python, work, true, link.as_deref())
}

/// The same on top of the packages of another environment, and without the host's own: what a job installs goes into the
/// attempt's folder, what is in `packages` stays as it is.
pub(crate) fn write_over(python: &Interpreter, work: &Tree, packages: &Path) -> io::Result<Vec<String>> {
    // Not the folder alone: its own `.pth` files count too.
    let link = format!("import site; site.addsitedir({:?})\n", packages.display().to_string());
    write_with(python, work, false, Some(&link))
}

fn write_with(
    python: &Interpreter,
    work: &Tree,
    with_hosts: bool,
    link: Option<&str>,
) -> io::Result<Vec<String>> {
    let home = python.program.parent().unwrap_or(Path::new("/")).display();
    let mut folders: Vec<String> = vec![FOLDER.into(), format!("{FOLDER}/bin")];
    let library = format!("{FOLDER}/lib/python{}", python.short_version());
    let packages = format!("{library}/site-packages");
    if link.is_some() {
        folders.extend([format!("{FOLDER}/lib"), library, packages.clone()]);
    }
    for folder in &folders {
        work.make_folders(folder, 0o700)?;
    }
    let version = &python.version;
    let config = format!("home = {home}\ninclude-system-site-packages = {with_hosts}\nversion = {version}\n");
    work.write(&format!("{FOLDER}/pyvenv.cfg"), 0o444, config.as_bytes())?;
    work.write(&format!("{FOLDER}/bin/pip"), 0o555, PIP.as_bytes())?;
    work.make_link(&python.program.display().to_string(), &format!("{FOLDER}/bin/python3"))?;
    work.make_link("python3", &format!("{FOLDER}/bin/python"))?;
    if let Some(link) = link {
        work.write(&format!("{packages}/neap-packages.pth"), 0o444, link.as_bytes())?;
    }
    Ok(folders)
}

/// Runs the `python3` beside itself.
const PIP: &str =
    "#!/bin/sh\ncase $0 in */*) exec \"${0%/*}/python3\" -m pip \"$@\" ;; esac\nexec python3 -m pip \"$@\"\n";
