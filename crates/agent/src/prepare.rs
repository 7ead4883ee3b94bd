//! Before an attempt runs: its folders, code, inputs, Python environment, command and variables.
//!
//! ```text
//! <attempt>/log, log.tail               the spool, never seen by the job
//! <attempt>/tmp                         seen as /tmp
//! <attempt>/work                        seen as /mnt/azureml/cr/j/<job>/
//!           exe/wd                      the working folder, with outputs/ and logs/
//!           cap/data-capability/wd/     INPUT_<name>, OUTPUT_<name>
//!           checkpoint                  kept from one attempt to the next
//!           preemption.json             there when the node is about to be taken back
//!           venv                        python and pip
//!           ca-bundle.pem               the roots that clients in the job trust
//! ```
//!
//! With isolation off the job sees the same folders where they lie. A job without code, inputs and outputs costs no
//! request and no file operation: its folder was ready before it came.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use neap_protocol::{AttemptSpec, Exit, FailureClass, Isolation};
use neap_sandbox::{
    AttemptLimits, Bind, HEAD_FILE, JOBS_PLACE, Launch, NODE_MARK, PROCESSES_MAX, SpoolEnd, View,
};

use crate::checkpoint;
use crate::command::{self, Places};
use crate::data::{self, Brought};
use crate::distributed;
use crate::environment::provide::{Cached, Ground, Provided};
use crate::folder::Folder;
use crate::node::Node;
use crate::python;
use crate::run_variables;
use crate::session::prepare_failed;
use crate::tree::Tree;
use crate::warning;

/// Where an attempt's folders lie, and where the job sees them.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub dir: PathBuf,
    /// All of it, for what the job never sees.
    pub own: Tree,
    /// For those who mount it. The agent itself uses the trees.
    pub work: PathBuf,
    pub work_tree: Tree,
    pub tmp: PathBuf,
    pub tmp_tree: Tree,
    /// `work`, touched as the user whose read-only inputs are: the job can read them, and neither change nor replace them.
    pub keeper: Tree,
    /// `work`, as the job sees it.
    pub seen: PathBuf,
    /// The host's interpreter that the job has.
    interpreter: Option<PathBuf>,
    /// The environment for Python, as the job sees it.
    venv: Option<PathBuf>,
    /// The trusted roots, as the job sees them.
    bundle: Option<PathBuf>,
    pub owner: Option<u32>,
    /// What was there when the job began, of the folders whose changes are stored.
    pub brought: RefCell<Brought>,
    /// What was fetched for the job, for its provenance.
    pub contents: RefCell<BTreeMap<String, String>>,
    /// What is kept of the job for its next attempt.
    pub kept: RefCell<checkpoint::Known>,
    head: OnceCell<Rc<File>>,
    said_bytes: Cell<u64>,
}

impl Layout {
    pub(crate) fn new(folder: &Folder, spec: &AttemptSpec, namespaces: bool, keeper: Option<u32>) -> Self {
        let (dir, owner) = (folder.dir.clone(), folder.owner());
        let (work, tmp) = (dir.join("work"), dir.join("tmp"));
        let isolated = spec.isolation == Isolation::Full;
        let seen =
            if isolated && namespaces { Path::new(JOBS_PLACE).join(&spec.job_name) } else { work.clone() };
        let venv = folder.environment().map(|name| seen.join(name));
        let bundle = folder.bundle().map(|name| seen.join(name));
        let (brought, contents, kept) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self {
            dir,
            own: folder.own.clone(),
            work,
            work_tree: folder.work.clone(),
            tmp,
            tmp_tree: folder.tmp.clone(),
            keeper: folder.work.with_user(owner.and(keeper)),
            seen,
            interpreter: folder.interpreter(),
            venv,
            bundle,
            owner,
            brought,
            contents,
            kept,
            head: OnceCell::new(),
            said_bytes: Cell::new(0),
        }
    }

    /// Adds a line of ours to the log of an attempt that does not run.
    pub(crate) fn say(&self, text: &str) -> io::Result<()> {
        self.say_bytes(text.as_bytes())
    }

    pub(crate) fn say_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let file = match self.head.get() {
            Some(file) => file,
            None => {
                let file = match self.own.create(HEAD_FILE, 0o600) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                        self.own.open_for_writing(HEAD_FILE)?
                    }
                    made => made?,
                };
                self.head.get_or_init(|| Rc::new(file))
            }
        };
        file.write_all_at(bytes, self.said_bytes.get())?;
        self.said_bytes.set(self.said_bytes.get() + bytes.len() as u64);
        Ok(())
    }

    /// Others have written to the log, up to here.
    pub(crate) fn goes_on_after(&self, head_bytes: u64) {
        self.said_bytes.set(head_bytes);
    }

    /// What was written after this was not told to anybody, and is written over.
    pub(crate) fn take_back(&self, head_bytes: u64) {
        self.said_bytes.set(head_bytes);
    }

    /// A container has its own Python, and sees the job's folder at its usual place whatever the machine allows.
    pub(crate) fn see_in_container(&mut self, job_name: &str) {
        let seen = Path::new(JOBS_PLACE).join(job_name);
        let below = self.bundle.as_ref().and_then(|bundle| bundle.strip_prefix(&self.seen).ok());
        self.bundle = below.map(|below| seen.join(below));
        self.seen = seen;
        self.venv = None;
    }

    /// What the log holds as long as it holds only lines of ours.
    pub(crate) fn said(&self) -> SpoolEnd {
        SpoolEnd { head_bytes: self.said_bytes.get(), after_head_bytes: 0 }
    }

    /// Whether the job sees its folders elsewhere than they lie.
    pub(crate) fn is_apart(&self) -> bool {
        self.seen != self.work
    }

    /// Makes folders below `work`, each the job's own.
    pub(crate) fn make(&self, below: &str) -> io::Result<()> {
        if below.starts_with(data::ROOM_TOP) {
            self.make_room()?;
        }
        self.work_tree.make_folders(below, 0o700)
    }

    /// Makes the folder where inputs and outputs lie side by side. Those of another user cannot be replaced by the job.
    pub(crate) fn make_room(&self) -> io::Result<()> {
        if self.keeper.user().is_none() {
            return self.work_tree.make_folders(data::ROOM, 0o700);
        }
        let above = data::ROOM.rsplit_once('/').map_or("", |(above, _)| above);
        self.keeper.make_folders(above, 0o755)?;
        self.keeper.make_folders(data::ROOM, 0o1777)
    }
}

/// The working folder, below `work`.
pub(crate) const WORKING: &str = "exe/wd";

/// Makes everything ready. Lines about what differs from what was asked for go to the head of the log.
pub(crate) async fn prepare(
    node: &Node,
    spec: &AttemptSpec,
    layout: &Layout,
    provided: &Provided,
    slot: u32,
) -> Result<Launch, Exit> {
    let system = |e: io::Error| prepare_failed(FailureClass::System, e.to_string());
    if spec.job_name.is_empty() || spec.job_name.contains(['/', '\0']) || spec.job_name.starts_with('.') {
        return Err(prepare_failed(FailureClass::System, "the job's name cannot name a folder"));
    }
    if let Some(code) = &spec.code {
        let made = ["outputs", "logs"].map(|name| format!("{WORKING}/{name}"));
        for folder in &made {
            // The code may have a file of that name.
            layout.work_tree.remove_folder(folder).map_err(system)?;
        }
        let what = "the job's code";
        let content = data::fetch_named(&node.blobs()?, code, (&layout.work_tree, WORKING), what).await?;
        layout.contents.borrow_mut().insert("provenance.code".into(), content.told());
        for folder in &made {
            if layout.work_tree.stat(folder).is_none() {
                layout.make(folder).map_err(system)?;
            }
        }
    }
    let places = data::bring(node, spec, layout).await?;
    checkpoint::restore(node, spec, layout).await?;
    let command =
        command::fill(&spec.command, &places).map_err(|e| prepare_failed(FailureClass::InputData, e))?;

    let cached = match &provided.ground {
        Ground::Cached(cached) => Some(cached),
        Ground::Host | Ground::Container { .. } => None,
    };
    let in_container = matches!(provided.ground, Ground::Container { .. });
    let isolated = spec.isolation == Isolation::Full;
    let apart = layout.is_apart();
    let tmp_seen = if apart { PathBuf::from("/tmp") } else { layout.tmp.clone() };
    let mut launch = Launch {
        attempt_dir: layout.dir.clone(),
        head_bytes: layout.said().head_bytes,
        command,
        own_program: None,
        env: variables(node, spec, &places, layout, cached, &tmp_seen, in_container),
        cwd: layout.seen.join(WORKING),
        timeout_ms: spec.timeout_ms,
        log_bytes_max: spec.log_bytes_max,
        view: isolated.then(|| View {
            work_dir: layout.work.clone(),
            job_name: spec.job_name.clone(),
            tmp_dir: layout.tmp.clone(),
            hide: node.config.hide_paths.clone(),
            user: layout.owner,
            binds: binds(layout, cached),
            closed_devices: Vec::new(),
            resolver: Some(node.network.relay.resolv_conf().to_owned()),
            hosts: node.network.relay.hosts(),
        }),
        slot,
        limits: limits(node, spec),
        beside: None,
        masked: spec.masked.iter().map(|value| value.reveal().to_owned()).collect(),
    };
    distributed::arrange(spec, layout, &mut launch).map_err(system)?;
    Ok(launch)
}

/// Folders that the job sees beside its own: its environment, and an interpreter that is installed apart from the system.
fn binds(layout: &Layout, cached: Option<&Cached>) -> Vec<Bind> {
    let named = cached.and_then(|cached| cached.made.python.clone());
    let interpreter = named.or_else(|| layout.interpreter.clone());
    let installed = interpreter.as_deref().and_then(python::installation);
    cached.and_then(Cached::bind).into_iter().chain(installed).collect()
}

/// The stricter of what the job may use and what the node has.
pub(crate) fn limits(node: &Node, spec: &AttemptSpec) -> AttemptLimits {
    let least = |asked: u64, have: u64| if asked == 0 { have } else { asked.min(have) };
    AttemptLimits {
        cpus_milli: least(spec.limits.cpus_milli.into(), node.facts.cpus_milli.into()) as u32,
        memory_mb: least(spec.limits.memory_mb, node.facts.memory_mb),
        processes: PROCESSES_MAX,
        file_bytes_max: Some(spec.disk.bytes_max).filter(|most| *most > 0),
    }
}

fn variables(
    node: &Node,
    spec: &AttemptSpec,
    places: &Places,
    layout: &Layout,
    cached: Option<&Cached>,
    tmp: &Path,
    in_container: bool,
) -> Vec<(String, String)> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let mut path = node.path.clone();
    if let Some(cached) = cached {
        path = format!("{}:{path}", cached.made.programs(&cached.seen).display());
    }
    if let Some(venv) = &layout.venv {
        path = format!("{}/bin:{path}", venv.display());
        all.insert("VIRTUAL_ENV".into(), venv.display().to_string());
    }
    let tmp = tmp.display().to_string();
    for (name, value) in [
        ("PATH", path.as_str()),
        ("HOME", &tmp),
        ("TMPDIR", &tmp),
        ("LANG", "C.UTF-8"),
        // The attempt's user has no entry in the host's table; these spare programs the search, and its failure.
        ("USER", "neap"),
        ("LOGNAME", "neap"),
        ("SHELL", "/bin/bash"),
        // Output shows when it is printed, not when a buffer is full.
        ("PYTHONUNBUFFERED", "1"),
    ] {
        all.insert(name.into(), value.into());
    }
    if in_container {
        // The image knows where its programs are.
        for name in ["PATH", "SHELL"] {
            all.remove(name);
        }
    }
    for (kind, places) in [("INPUT", &places.inputs), ("OUTPUT", &places.outputs)] {
        all.extend(places.iter().map(|(name, place)| (format!("AZURE_ML_{kind}_{name}"), place.clone())));
    }
    let found = checkpoint::variables(layout).into_iter().chain([warning::variable(layout)]);
    all.extend(found.map(|(name, value)| (name.to_owned(), value)));
    let bundle = layout.bundle.as_deref();
    all.extend(run_variables::of(spec, bundle).into_iter().map(|(name, value)| (name.to_owned(), value)));
    all.extend(spec.environment_variables.clone());
    if let Ok(mark) = std::env::var(NODE_MARK) {
        all.insert(NODE_MARK.into(), mark);
    }
    all.insert("AZUREML_RUN_ID".into(), spec.job_name.clone());
    all.insert("AZUREML_ARM_PROJECT_NAME".into(), spec.experiment.clone());
    all.into_iter().collect()
}
