//! On the host: its Python as it is, or a virtual environment with the packages that were asked for, built once and
//! kept in the cache.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use neap_protocol::{Exit, FailureClass, Isolation};
use neap_sandbox::{Bind, Launch, NODE_MARK, View, boot_ms};

use super::super::cache::Build;
use super::super::installing;
use super::super::packages::{self, Wanted};
use super::super::seal;
use super::super::venv::{self, Made, Recipe, Tool};
use super::{Cached, Ground, Orders, Provided, built, environment_failed, system_failed};
use crate::attempt::{Running, Stage};
use crate::folder::Folder;
use crate::light_environment;
use crate::node::Node;
use crate::prepare::{Layout, WORKING};
use crate::python::{self, Interpreter};
use crate::tree::Tree;

impl Running<'_> {
    pub(super) async fn stand_on_host(
        &mut self,
        layout: &Layout,
        python: Option<&Interpreter>,
        packages: Option<&str>,
        mut differences: Vec<String>,
        orders: &mut Orders,
    ) -> Result<Provided, Exit> {
        let Some(text) = packages else {
            self.first_lines(layout, python, "", &differences)?;
            let mut provided = Provided::default();
            if !differences.is_empty() {
                let stands =
                    python.map_or("host without Python".into(), |p| format!("host Python {}", p.version));
                provided.facts.insert("neap.environment".into(), stands);
                provided.facts.insert("neap.environmentDifferences".into(), differences.join("; "));
            }
            return Ok(provided);
        };
        let wanted = packages::read(text).map_err(environment_failed)?;
        let recipe = self.recipe(python, &wanted, text, &mut differences).await?;
        differences.extend(wanted.notes.iter().cloned());
        let with =
            format!(" with its packages in a virtual environment of their own ({})", recipe.tool.name());
        self.first_lines(layout, Some(&recipe.python), &with, &differences)?;
        let (made, built) = self.cached(layout, &recipe, orders).await?;
        let cached = self.seen(made);
        self.layer(layout, &cached).map_err(system_failed("writing the job's Python environment"))?;
        let made = &cached.made;
        let key = made.folder.split('-').next().unwrap_or_default();
        let mut facts = BTreeMap::from([
            (
                "neap.environment".to_owned(),
                format!("virtual environment on Python {} ({})", made.version, made.tool),
            ),
            ("neap.environmentKey".to_owned(), key.to_owned()),
            ("neap.environmentBuild".to_owned(), if built { "built" } else { "found" }.to_owned()),
        ]);
        if !differences.is_empty() {
            facts.insert("neap.environmentDifferences".into(), differences.join("; "));
        }
        Ok(Provided { ground: Ground::Cached(cached), facts })
    }

    fn first_lines(
        &self,
        layout: &Layout,
        python: Option<&Interpreter>,
        with: &str,
        differences: &[String],
    ) -> Result<(), Exit> {
        let mut text = String::new();
        if !differences.is_empty() {
            let host = python.map_or_else(
                || "without any Python".to_owned(),
                |p| format!("on the host's Python {}", p.version),
            );
            text.push_str(&format!("[neap] This job runs {host}{with}: {}.\n", differences.join("; ")));
        } else if python.is_none()
            && (self.spec.command.contains("python") || self.spec.command.contains("pip "))
        {
            text.push_str("[neap] No python3 was found on this node that the job could run.\n");
        }
        self.say_first(layout, &text)
    }

    /// Whether builds and attempts run as another user than this agent.
    fn for_others(&self) -> bool {
        self.spec.isolation == Isolation::Full && self.node.spawner.capabilities().root
    }

    /// Where environments are seen by attempts like this one.
    fn place(&self) -> PathBuf {
        let apart = self.spec.isolation == Isolation::Full && self.node.spawner.capabilities().namespaces();
        if apart { venv::PLACE.into() } else { self.node.cache.place("") }
    }

    fn seen(&self, made: Made) -> Cached {
        let (lies, seen) = (self.node.cache.place(&made.folder), self.place().join(&made.folder));
        Cached { made, lies, seen }
    }

    /// Who installs what on which interpreter.
    async fn recipe(
        &self,
        python: Option<&Interpreter>,
        wanted: &Wanted,
        text: &str,
        differences: &mut Vec<String>,
    ) -> Result<Recipe, Exit> {
        let (path, others) = (self.node.path.as_str(), self.for_others());
        let mamba = wanted.conda.then(|| python::find_program(path, "micromamba", others)).flatten();
        if mamba.is_none() && !wanted.unknown.is_empty() {
            return Err(environment_failed(format!(
                "There is no conda on this node, and these conda packages have no known name on PyPI: {}. Give them as pip packages under their PyPI names, install micromamba on the node, or use an image.",
                wanted.unknown.join(", ")
            )));
        }
        let asked = match wanted.python.as_deref().filter(|_| mamba.is_none()) {
            Some(version) if python.is_none_or(|found| found.short_version() != version) => {
                python::find_named(path, &format!("python{version}"), others).await
            }
            _ => None,
        };
        let stands = asked.as_ref().or(python).ok_or_else(|| {
            environment_failed("No python3 was found on this node to install the environment's packages for.")
        })?;
        if let Some(version) = wanted.python.as_deref().filter(|_| mamba.is_none())
            && stands.short_version() != version
        {
            differences.push(format!("Python {version} was asked for and is not on this node"));
        }
        let tool = match mamba {
            Some(program) => Tool::Micromamba(program),
            None => python::find_program(path, "uv", others).map_or(Tool::Pip, Tool::Uv),
        };
        Ok(Recipe::new(tool, stands.clone(), wanted, text))
    }

    /// The environment of a recipe, and whether this attempt had to build it.
    async fn cached(
        &mut self,
        layout: &Layout,
        recipe: &Recipe,
        orders: &mut Orders,
    ) -> Result<(Made, bool), Exit> {
        let key = recipe.key(&self.place());
        let node = self.node;
        let there = || there(node, &key);
        if let Some(made) = there() {
            return Ok((made, false));
        }
        let began_ms = boot_ms();
        let made = self.made(layout, recipe, &key, orders).await;
        self.built_ms += boot_ms().saturating_sub(began_ms);
        made
    }

    /// One that was not there a moment ago: builds it, or waits for whoever does.
    async fn made(
        &mut self,
        layout: &Layout,
        recipe: &Recipe,
        key: &str,
        orders: &mut Orders,
    ) -> Result<(Made, bool), Exit> {
        let node = self.node;
        let there = || there(node, key);
        let mut build = self.turn(key, layout, true, orders).await?;
        if let Some(made) = there() {
            return Ok((made, false));
        }
        let made = self.build(layout, recipe, &mut build, orders).await;
        match &made {
            Ok(made) => build.ready(made).map_err(system_failed("keeping the environment"))?,
            Err(Exit::PrepareFailed { class: FailureClass::Environment, message }) => {
                build.failed(message).map_err(system_failed("keeping the build's end"))?;
            }
            Err(_) => {}
        }
        made.map(|made| (made, true))
    }

    /// Runs the installer, and with it code of whatever packages the job names. It gets a folder and a user of its own,
    /// and no attempt sees what it has made before that is sealed.
    async fn build(
        &mut self,
        layout: &Layout,
        recipe: &Recipe,
        build: &mut Build,
        orders: &mut Orders,
    ) -> Result<Made, Exit> {
        let failed = system_failed("preparing the build of the environment");
        // Never the user of an attempt, whose folder it must not reach.
        let builder = self.node.new_user(self.spec.isolation)?;
        let ground = self.node.folders.take(builder, None).map_err(&failed)?;
        let made = self.build_on(&ground, layout, recipe, build, orders).await;
        self.node.folders.delete(ground);
        made
    }

    async fn build_on(
        &mut self,
        ground: &Folder,
        layout: &Layout,
        recipe: &Recipe,
        build: &mut Build,
        orders: &mut Orders,
    ) -> Result<Made, Exit> {
        let failed = system_failed("preparing the build of the environment");
        let started_ms = boot_ms();
        let (lies, folder) = build.folder().map_err(&failed)?;
        let made_in = Tree::open(&lies, None).map_err(&failed)?;
        if let Some(builder) = ground.owner() {
            made_in.give("", builder).map_err(&failed)?;
        }
        ground.work.make_folders(venv::FILES, 0o700).map_err(&failed)?;
        let file = format!("{}/{}", venv::FILES, recipe.file_name());
        ground.work.write(&file, 0o644, recipe.text.as_bytes()).map_err(&failed)?;
        let work = ground.dir.join("work");
        let sees = if layout.is_apart() { layout.seen.clone() } else { work.clone() };
        let seen = self.place().join(&folder);
        let isolated = self.spec.isolation == Isolation::Full;
        let scratch = seen.join(venv::SCRATCH);
        let launch = Launch {
            command: recipe.script(&seen, &sees.join(venv::FILES)),
            env: self.build_variables(&scratch),
            cwd: sees.join(WORKING),
            view: isolated.then(|| View {
                work_dir: work,
                job_name: self.spec.job_name.clone(),
                tmp_dir: ground.dir.join("tmp"),
                hide: self.node.config.hide_paths.clone(),
                user: ground.owner(),
                binds: (seen != lies)
                    .then(|| Bind { from: lies.clone(), to: seen.clone(), read_only: false })
                    .into_iter()
                    .chain(python::installation(&recipe.python.program))
                    .chain(recipe.tool.program().and_then(python::program_alone))
                    .collect(),
                closed_devices: self.node.gpus.files(),
                resolver: Some(self.node.network.relay.resolv_conf().to_owned()),
                hosts: self.node.network.relay.hosts(),
            }),
            ..self.launch(layout)
        };
        let record = self
            .supervise(layout, &launch, Stage::Build { build: Some(build), quiet: false }, orders)
            .await?;
        built(&record)?;
        let version = match &recipe.tool {
            Tool::Micromamba(_) => venv::read_version(&made_in).map_err(environment_failed)?,
            Tool::Uv(_) | Tool::Pip => recipe.python.version.clone(),
        };
        if let Some(builder) = ground.owner() {
            let sealed = tokio::task::spawn_blocking(move || seal::seal(&made_in, builder)).await;
            let sealed = sealed.map_err(|e| failed(io::Error::other(e)))?;
            sealed.map_err(|e| environment_failed(format!("The environment cannot be used: {e}.")))?;
        }
        let python = match recipe.tool {
            Tool::Micromamba(_) => None,
            Tool::Uv(_) | Tool::Pip => Some(recipe.python.program.clone()),
        };
        let took_ms = boot_ms().saturating_sub(started_ms);
        Ok(Made { folder, tool: recipe.tool.name().into(), python, version, took_ms })
    }

    fn build_variables(&self, scratch: &Path) -> Vec<(String, String)> {
        let mut all: BTreeMap<String, String> = installing::variables(std::env::vars()).into_iter().collect();
        let scratch = scratch.display().to_string();
        for (name, value) in [
            ("PATH", self.node.path.as_str()),
            ("HOME", &scratch),
            ("TMPDIR", &scratch),
            ("LANG", "C.UTF-8"),
            ("USER", "neap"),
            ("LOGNAME", "neap"),
            ("PYTHONUNBUFFERED", "1"),
            ("PIP_NO_INPUT", "1"),
            ("PIP_NO_CACHE_DIR", "1"),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
            ("UV_CACHE_DIR", &scratch),
            ("UV_LINK_MODE", "copy"),
            // Nothing but packages is fetched.
            ("UV_PYTHON_DOWNLOADS", "never"),
            ("MAMBA_ROOT_PREFIX", &scratch),
        ] {
            all.insert(name.into(), value.into());
        }
        if let Ok(mark) = std::env::var(NODE_MARK) {
            all.insert(NODE_MARK.into(), mark);
        }
        all.into_iter().collect()
    }

    /// The job's own light environment, on top of the cached one. No code of the job has run yet.
    fn layer(&self, layout: &Layout, cached: &Cached) -> io::Result<()> {
        let work = &layout.work_tree;
        work.remove_all(light_environment::FOLDER)?;
        let interpreter = cached.made.interpreter(&cached.seen);
        match cached.made.packages(&cached.seen) {
            Some(packages) => light_environment::write_over(&interpreter, work, &packages),
            None => light_environment::write(&interpreter, work),
        }
        .map(drop)
    }
}

/// A built environment, if it is in the cache.
fn there(node: &Node, key: &str) -> Option<Made> {
    let made = node.cache.record::<Made>(key)?;
    (venv::is_version(&made.version) && node.cache.has(&made.folder)).then_some(made)
}
