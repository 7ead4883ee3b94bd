//! Brings in place what a job's command runs in, before it starts: builds what is not there yet, or waits for whoever
//! builds it. What runs somebody else's code runs under the attempt's supervisor.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use neap_protocol::{Environment, Exit, FailureClass, Isolation};
use neap_sandbox::{Bind, ExitRecord, Launch, NODE_MARK, Outcome, View, boot_ms};
use tokio::sync::mpsc::UnboundedReceiver;

use super::cache::{Build, Cache, Turn};
use super::choose::{Choice, choose, on_host};
use super::engine::{Engine, with_tag};
use super::installing;
use super::limits::{BUILD_MS_MAX, IMAGE_ABSENT_MS};
use super::order::{Answer, ImageOrder, Order as EngineOrder, Step};
use super::packages::{self, Wanted};
use super::venv::{self, Made, Recipe, Tool};
use crate::attempt::{Order, Running, Stage};
use crate::folder::make_owned;
use crate::prepare::{self, Layout};
use crate::python::{self, Interpreter};
use crate::session::prepare_failed;
use crate::{data, distributed};

/// What an attempt stands on.
#[derive(Debug, Default)]
pub(crate) struct Provided {
    pub ground: Ground,
    /// For the job's properties.
    pub facts: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
pub(crate) enum Ground {
    /// The light environment in the attempt's folder, and the host's packages.
    #[default]
    Host,
    Cached(Cached),
    Container {
        engine: Box<Engine>,
        image: String,
    },
}

/// A cached environment as an attempt sees it.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub made: Made,
    /// Where it lies, and where it is seen.
    pub lies: PathBuf,
    pub seen: PathBuf,
}

impl Cached {
    /// For attempts that do not see it where it lies.
    pub(crate) fn bind(&self) -> Option<Bind> {
        (self.lies != self.seen).then(|| Bind {
            from: self.lies.clone(),
            to: self.seen.clone(),
            read_only: true,
        })
    }
}

/// Why an image is not there.
enum NoImage {
    /// It can neither be found nor pulled.
    Absent(String),
    Exit(Exit),
}

impl From<Exit> for NoImage {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

fn environment_failed(message: impl Into<String>) -> Exit {
    prepare_failed(FailureClass::Environment, message)
}

fn system_failed(doing: &str) -> impl Fn(io::Error) -> Exit + '_ {
    move |e| prepare_failed(FailureClass::System, format!("{doing}: {e}"))
}

type Orders = UnboundedReceiver<Order>;

impl Running<'_> {
    /// Makes everything ready. The first lines of the log say what differs from what was asked for.
    pub(crate) async fn provide(
        &mut self,
        layout: &mut Layout,
        python: Option<&Interpreter>,
        orders: &mut Orders,
    ) -> Result<Provided, Exit> {
        let (environment, terms) = (&self.spec.environment, &self.spec.container);
        let with_image = matches!(environment, Environment::Image { .. } | Environment::Build { .. });
        let engine = if !with_image && !terms.required {
            Err(String::new())
        } else if distributed::needs_launcher(self.spec) {
            // What stands before the processes is this program, which an image does not have.
            Err("jobs of several processes on a node do not run in containers yet".into())
        } else {
            self.node.engine().await
        };
        let mut choice = choose(environment, terms, engine.as_ref().map(|_| ()).map_err(String::as_str));
        if let (Choice::Container, Ok(engine)) = (&choice, engine) {
            match self.image(&engine, layout, orders).await {
                Ok(provided) => return Ok(provided),
                Err(NoImage::Absent(why)) if !terms.required => choice = on_host(environment, terms, &why),
                Err(NoImage::Absent(why)) => {
                    return Err(environment_failed(format!(
                        "The job asks for isolation: container, which is never weakened, and {why}."
                    )));
                }
                Err(NoImage::Exit(exit)) => return Err(exit),
            }
        }
        match choice {
            Choice::Host { packages, differences } => {
                self.host(layout, python, packages.as_deref(), differences, orders).await
            }
            Choice::Refused(why) => Err(environment_failed(why)),
            Choice::Container => Err(environment_failed("the container engine went away")),
        }
    }

    // --- on the host ---------------------------------------------------------------------------------------------

    async fn host(
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
        self.say_with_preamble(layout, &text)
    }

    fn say_with_preamble(&self, layout: &Layout, first: &str) -> Result<(), Exit> {
        let mut text = first.to_owned();
        for line in &self.spec.preamble {
            text.push_str(line);
            text.push('\n');
        }
        if text.is_empty() {
            return Ok(());
        }
        layout.say(&text).map_err(system_failed("writing the log"))
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
        let there = || node.cache.record::<Made>(&key).filter(|made| node.cache.place(&made.folder).is_dir());
        if let Some(made) = there() {
            return Ok((made, false));
        }
        let mut build = self.turn(&key, layout, true, orders).await?;
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

    /// Waits for the right to build, and passes on what another's build says meanwhile.
    async fn turn(
        &mut self,
        key: &str,
        layout: &Layout,
        aloud: bool,
        orders: &mut Orders,
    ) -> Result<Build, Exit> {
        let cache = self.node.cache.clone();
        let hear = |bytes: &[u8]| {
            if aloud && layout.say_bytes(bytes).is_ok() {
                self.log_grew(layout);
            }
        };
        let turn = tokio::select! {
            biased;
            turn = cache.turn(key, hear) => turn,
            order = orders.recv() => {
                self.discarded = order == Some(Order::Discard);
                return Err(Exit::Stopped);
            }
        };
        match turn.map_err(system_failed("waiting for the environment"))? {
            Turn::Ours(build) => Ok(build),
            Turn::Failed(message) => Err(environment_failed(message)),
        }
    }

    async fn build(
        &mut self,
        layout: &Layout,
        recipe: &Recipe,
        build: &mut Build,
        orders: &mut Orders,
    ) -> Result<Made, Exit> {
        let failed = system_failed("preparing the build of the environment");
        let started_ms = boot_ms();
        let (lies, folder) = build.folder().map_err(&failed)?;
        let owner = layout.owner;
        if let Some(owner) = owner {
            std::os::unix::fs::chown(&lies, Some(owner), Some(owner)).map_err(&failed)?;
        }
        let files = layout.work.join(venv::FILES);
        make_owned(&files, owner).map_err(&failed)?;
        let file = files.join(recipe.file_name());
        std::fs::write(&file, &recipe.text).map_err(&failed)?;
        let seen = self.place().join(&folder);
        let isolated = self.spec.isolation == Isolation::Full;
        let scratch = seen.join(venv::SCRATCH);
        let launch = Launch {
            command: recipe.script(&seen, &layout.seen.join(venv::FILES)),
            env: self.build_variables(&scratch),
            cwd: layout.seen.join("exe/wd"),
            view: isolated.then(|| View {
                work_dir: layout.work.clone(),
                job_name: self.spec.job_name.clone(),
                tmp_dir: layout.dir.join("tmp"),
                hide: self.node.config.hide_paths.clone(),
                user: owner,
                users: None,
                binds: if seen == lies {
                    Vec::new()
                } else {
                    vec![Bind { from: lies.clone(), to: seen, read_only: false }]
                },
            }),
            ..self.launch(layout)
        };
        let record = self
            .supervise(layout, &launch, Stage::Build { build: Some(build), quiet: false }, orders)
            .await?;
        built(&record)?;
        let _ = std::fs::remove_dir_all(&files);
        let version = std::fs::read_to_string(lies.join(venv::VERSION_FILE))
            .map_or_else(|_| recipe.python.version.clone(), |text| text.trim().to_owned());
        if owner.is_some() {
            let given = tokio::task::spawn_blocking(move || give_to_root(&lies)).await;
            given.map_err(|e| failed(io::Error::other(e)))?.map_err(failed)?;
        }
        let python = match recipe.tool {
            Tool::Micromamba(_) => None,
            Tool::Uv(_) | Tool::Pip => Some(recipe.python.program.clone()),
        };
        let took_ms = boot_ms().saturating_sub(started_ms);
        Ok(Made { folder, tool: recipe.tool.name().into(), python, version, took_ms })
    }

    /// What all launches of an attempt have in common.
    fn launch(&self, layout: &Layout) -> Launch {
        Launch {
            attempt_dir: layout.dir.clone(),
            head_bytes: layout.said().head_bytes,
            command: String::new(),
            env: Vec::new(),
            cwd: layout.dir.clone(),
            timeout_ms: Some(BUILD_MS_MAX),
            log_bytes_max: self.spec.log_bytes_max,
            view: None,
            slot: self.slot,
            limits: prepare::limits(self.node, self.spec),
            beside: None,
            own_program: None,
        }
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

    /// The job's own light environment, on top of the cached one.
    fn layer(&self, layout: &Layout, cached: &Cached) -> io::Result<()> {
        let at = layout.work.join("venv");
        match std::fs::remove_dir_all(&at) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let interpreter = cached.made.interpreter(&cached.seen);
        match cached.made.packages(&cached.seen) {
            Some(packages) => interpreter.write_environment_over(&at, layout.owner, &packages),
            None => interpreter.write_environment(&at, layout.owner).map(drop),
        }
    }

    // --- in a container --------------------------------------------------------------------------------------------

    /// The image of the environment, made where it is not there yet.
    async fn image(
        &mut self,
        engine: &Engine,
        layout: &mut Layout,
        orders: &mut Orders,
    ) -> Result<Provided, NoImage> {
        let mut built = false;
        let (name, id) = match self.spec.environment.clone() {
            Environment::Image { image, packages } => {
                let (base, mut id) = self.base(engine, &image, layout, &mut built, orders).await?;
                let mut reference = base.clone();
                if let Some(text) = packages {
                    (reference, id) =
                        self.derived(engine, (&base, &id), &text, layout, &mut built, orders).await?;
                }
                (reference, id)
            }
            Environment::Build { context, dockerfile } => {
                let folder = layout.dir.join("context");
                std::fs::create_dir_all(&folder).map_err(system_failed("making a folder"))?;
                data::fetch_named(&self.node.blobs()?, &context, &folder, None, "the build context").await?;
                let digest = digest_of(&folder).map_err(system_failed("reading the build context"))?;
                let key = Cache::key(&["build-1", &digest, &dockerfile]);
                let tag = format!("neap-env:{key}");
                let order = ImageOrder::Build { context: folder, dockerfile, tag: tag.clone() };
                let id = self.bring(engine, &tag, &key, order, layout, &mut built, orders).await?;
                (tag, id)
            }
            Environment::Nothing | Environment::Packages { .. } => {
                return Err(environment_failed("the environment has no image").into());
            }
        };
        self.say_with_preamble(
            layout,
            &format!("[neap] This job runs in a container of {} ({name}, {}).\n", engine.name, short(&id)),
        )?;
        let facts = BTreeMap::from([
            ("neap.isolation".to_owned(), format!("container ({}), user, supervisor", engine.name)),
            ("neap.environment".to_owned(), format!("{} image {name}", engine.name)),
            ("neap.environmentDigest".to_owned(), id.clone()),
            ("neap.environmentBuild".to_owned(), if built { "built" } else { "found" }.to_owned()),
        ]);
        layout.see_in_container(&self.spec.job_name);
        Ok(Provided { ground: Ground::Container { engine: Box::new(engine.clone()), image: id }, facts })
    }

    /// An image by name, by digest, or from an archive.
    async fn base(
        &mut self,
        engine: &Engine,
        image: &str,
        layout: &Layout,
        built: &mut bool,
        orders: &mut Orders,
    ) -> Result<(String, String), NoImage> {
        if let Some(archive) = image.strip_prefix("file:") {
            let archive = PathBuf::from(archive);
            let found = archive.metadata().map_err(|e| {
                NoImage::Absent(format!("the image archive {} cannot be read ({e})", archive.display()))
            })?;
            let changed = format!("{:?} {}", found.modified().ok(), found.len());
            let key = Cache::key(&["archive-1", &archive.display().to_string(), &changed]);
            let tag = format!("neap-image:{key}");
            let order = ImageOrder::Load { archive, tag: tag.clone() };
            let id = self.bring(engine, &tag, &key, order, layout, built, orders).await?;
            return Ok((tag, id));
        }
        let name = with_tag(image);
        if let Some(why) = self.node.absent_image(&name) {
            return Err(NoImage::Absent(why));
        }
        let key = Cache::key(&["pull-1", &name]);
        let order = ImageOrder::Pull { image: name.clone() };
        let id = self.bring(engine, &name, &key, order, layout, built, orders).await;
        if let Err(NoImage::Absent(why)) = &id {
            self.node.remember_absent(&name, why, boot_ms() + IMAGE_ABSENT_MS);
        }
        Ok((name, id?))
    }

    /// An image with packages on top.
    async fn derived(
        &mut self,
        engine: &Engine,
        (base, base_id): (&str, &str),
        text: &str,
        layout: &Layout,
        built: &mut bool,
        orders: &mut Orders,
    ) -> Result<(String, String), NoImage> {
        let wanted = packages::read(text).map_err(environment_failed)?;
        let key = Cache::key(&["derived-1", base_id, text]);
        let tag = format!("neap-env:{key}");
        let context = layout.dir.join("context");
        installing::write(&context, &installing::derived(base, &wanted, text))
            .map_err(system_failed("writing the build context"))?;
        let dockerfile = installing::DOCKERFILE.to_owned();
        let order = ImageOrder::Build { context, dockerfile, tag: tag.clone() };
        let id = self.bring(engine, &tag, &key, order, layout, built, orders).await?;
        Ok((tag, id))
    }

    /// Makes an image be there, once for all who ask.
    #[expect(clippy::too_many_arguments, reason = "three of them are the attempt's own, and borrowed apart")]
    async fn bring(
        &mut self,
        engine: &Engine,
        reference: &str,
        key: &str,
        order: ImageOrder,
        layout: &Layout,
        built: &mut bool,
        orders: &mut Orders,
    ) -> Result<String, NoImage> {
        let ask = |e: String| prepare_failed(FailureClass::System, e);
        if let Some(id) = engine.image(reference).await.map_err(ask)? {
            return Ok(id);
        }
        let pulls = matches!(order, ImageOrder::Pull { .. });
        // What was said of a pull that failed is taken back: the first line says why the host is used.
        let quiet = pulls && !self.spec.container.required;
        let turn = self.turn(key, layout, !quiet, orders).await;
        let mut build = match turn {
            Err(Exit::PrepareFailed { class: FailureClass::Environment, message }) if pulls => {
                return Err(NoImage::Absent(message));
            }
            other => other?,
        };
        if let Some(id) = engine.image(reference).await.map_err(ask)? {
            return Ok(id);
        }
        let before = layout.said().head_bytes;
        let stage = Stage::Build { build: Some(&mut build), quiet };
        let answer = self.ask_engine(engine, Step::Image(order), layout, stage, orders).await?;
        let (message, absent) = match answer {
            Answer::Image { id } => {
                *built = true;
                return Ok(id);
            }
            Answer::Absent { message } => (message, true),
            Answer::Failed { message } => (message, false),
            Answer::Lost { message } => return Err(ask(message).into()),
            Answer::Ended { .. } => return Err(ask("the engine's driver did something else".into()).into()),
        };
        build.failed(&message).map_err(system_failed("keeping the build's end"))?;
        if absent {
            if quiet {
                layout.take_back(before);
            }
            return Err(NoImage::Absent(message));
        }
        Err(environment_failed(message).into())
    }

    /// Lets a process of its own do something with the engine, and reads its answer.
    async fn ask_engine(
        &mut self,
        engine: &Engine,
        step: Step,
        layout: &Layout,
        stage: Stage<'_>,
        orders: &mut Orders,
    ) -> Result<Answer, Exit> {
        let files = EngineFiles::new(&layout.dir);
        let order = EngineOrder { socket: engine.socket.clone(), step, answer: files.answer.clone() };
        files.write(&order).map_err(system_failed("writing to the attempt's folder"))?;
        let launch = Launch {
            own_program: Some(files.program()),
            env: driver_variables(&self.node.path),
            ..self.launch(layout)
        };
        let record = self.supervise(layout, &launch, stage, orders).await?;
        match &record.outcome {
            Outcome::Exited { .. } => files.read().ok_or_else(|| {
                prepare_failed(
                    FailureClass::System,
                    "the process that drives the engine ended without an answer",
                )
            }),
            _ => Err(built(&record).err().unwrap_or(Exit::Stopped)),
        }
    }
}

/// The files by which an agent and the engine's driver speak, in the attempt's folder.
pub(crate) struct EngineFiles {
    pub order: PathBuf,
    pub answer: PathBuf,
    pub process: PathBuf,
}

impl EngineFiles {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            order: dir.join("container.json"),
            answer: dir.join("container.answer.json"),
            process: dir.join("container.process.json"),
        }
    }

    pub(crate) fn write(&self, order: &EngineOrder) -> io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        for old in [&self.answer, &self.process] {
            match std::fs::remove_file(old) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.order)?;
        file.write_all(&serde_json::to_vec(order)?)
    }

    pub(crate) fn read(&self) -> Option<Answer> {
        serde_json::from_slice(&std::fs::read(&self.answer).ok()?).ok()
    }

    /// What this very program is to be run with.
    pub(crate) fn program(&self) -> Vec<String> {
        vec!["container".to_owned(), self.order.display().to_string()]
    }
}

pub(crate) fn driver_variables(path: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = installing::variables(std::env::vars());
    all.push(("PATH".into(), path.into()));
    if let Ok(mark) = std::env::var(NODE_MARK) {
        all.push((NODE_MARK.into(), mark));
    }
    all
}

/// Whether a build came to a good end.
fn built(record: &ExitRecord) -> Result<(), Exit> {
    let failed = |how: String| {
        Err(environment_failed(format!(
            "The environment could not be built: {how}. What the build said is in the job's log."
        )))
    };
    match &record.outcome {
        Outcome::Exited { code: 0 } => Ok(()),
        Outcome::Exited { code } => failed(format!("the installer ended with exit code {code}")),
        Outcome::Signaled { signal } => failed(format!("the installer was ended by signal {signal}")),
        Outcome::OutOfMemory { limit_mb } => failed(format!("it needed more than {limit_mb} MB of memory")),
        Outcome::TimedOut => failed(format!("it took more than {} minutes", BUILD_MS_MAX / 60_000)),
        Outcome::Stopped => Err(Exit::Stopped),
        Outcome::LeaseLost | Outcome::AgentLost => Err(Exit::LeaseLost),
        Outcome::NotStarted { step, message } => Err(prepare_failed(
            FailureClass::System,
            format!("the sandbox for the build could not be made: {step}: {message}"),
        )),
    }
}

/// From now on nobody but root changes it.
fn give_to_root(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_to_root(&entry.path())?;
        } else {
            std::os::unix::fs::lchown(entry.path(), Some(0), Some(0))?;
        }
    }
    std::os::unix::fs::lchown(path, Some(0), Some(0))
}

/// A digest of the names and contents of all files below a folder.
fn digest_of(folder: &Path) -> io::Result<String> {
    let mut parts = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
                parts.push((name, Cache::digest([std::fs::read(&path)?.as_slice()].into_iter())));
            }
        }
    }
    parts.sort();
    let flat: Vec<&str> = parts.iter().flat_map(|(name, digest)| [name.as_str(), digest.as_str()]).collect();
    Ok(Cache::key(&flat))
}

fn short(id: &str) -> &str {
    id.get(..19).unwrap_or(id)
}
