//! One attempt, from its folder to its last upload: prepare, launch, listen to its supervisor, finalize.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::rc::Rc;

use neap_protocol::{AttemptRef, AttemptSpec, Exit, FailureClass, Isolation, StopWhy};
use neap_sandbox::AttemptNetwork;
use neap_sandbox::net::SharedNetwork;
use neap_sandbox::{Event, ExitRecord, Launch, Outcome, SLOTS_MAX, SpoolEnd, SpoolReader, Used, boot_ms};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::blobs::Moved;
use crate::boot_log;
use crate::checkpoint::{self, Keeping, Kept};
use crate::container;
use crate::disk::{Excess, Watch};
use crate::environment::cache::Build;
use crate::environment::order::Answer;
use crate::environment::provide::{Ground, Provided};
use crate::folder::Folder;
use crate::gpus::{self, Held, Meter};
use crate::network::{self, Door, Inside};
use crate::node::{Node, Slot};
use crate::prepare::{self, Layout, limits};
use crate::python::Interpreter;
use crate::services::{self, Desk};
use crate::session::{Input, prepare_failed};
use crate::{distributed, driver::Happening, finalize, warning};

/// What the log of an attempt on several nodes begins with where they share the machine's network.
const MACHINES_NETWORK: &str = "[neap] This job runs on several nodes and has the network of this machine: only a server \
    that runs as root can give its nodes a network of their own.\n";

/// What the driver tells a running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Stop {
        grace_ms: u64,
        why: StopWhy,
    },
    /// Nobody wants it any more: end it, store nothing, give everything back.
    Discard,
}

/// Runs an attempt to its end, and says so exactly once unless it was discarded.
pub(crate) async fn run(
    node: Rc<Node>,
    attempt: AttemptRef,
    spec: Box<AttemptSpec>,
    (spool, desk): (Rc<OnceCell<SpoolReader>>, Rc<OnceCell<Rc<Desk>>>),
    mut orders: UnboundedReceiver<Order>,
    say: UnboundedSender<Happening>,
) {
    let mut running = Running {
        node: &node,
        attempt,
        spec: &spec,
        say: &say,
        spool: &spool,
        desk: &desk,
        folder: None,
        slot: 0,
        discarded: false,
        stopped: None,
        excess: None,
        pulled_ms: 0,
        built_ms: 0,
    };
    let moved = Rc::new(Moved::default());
    moved.file_bytes_max.set(spec.disk.bytes_max);
    let (exit, end) = match Slot::take(&node) {
        Some(slot) => {
            running.slot = slot.number;
            moved.clone().during(running.run(&mut orders)).await
        }
        None => {
            let full = format!("the node already runs {SLOTS_MAX} attempts");
            (prepare_failed(FailureClass::System, full), SpoolEnd::default())
        }
    };
    if node.gpus.len() > 0 {
        let _ = say.send(Happening::Session(Input::Gpus { gpus: node.gpus.states() }));
    }
    if !running.discarded && !matches!(orders.try_recv(), Ok(Order::Discard)) {
        let facts = moved.facts();
        if spec.count_bytes && !facts.is_empty() {
            let _ = say.send(Happening::Session(Input::Measured { attempt, facts }));
        }
        neap_crash::point("outputs-stored-before-report");
        let _ = say.send(Happening::Ended { attempt, exit, end });
        // The folder stays until log and reports are acknowledged.
        loop {
            match orders.recv().await {
                Some(Order::Discard) => break,
                Some(Order::Stop { .. }) => {}
                None => return,
            }
        }
        neap_crash::point("end-acknowledged-before-cleaning");
    }
    if let Some(folder) = running.folder.take() {
        node.folders.give_back(folder);
    }
    // Closed before it is said: that is how a later attempt of the same name is told apart.
    drop(orders);
    let _ = say.send(Happening::Gone { attempt });
}

/// As long as it is there, the attempt's services are looked at and can be reached.
struct Minding {
    desk: Rc<Desk>,
    looking: tokio::task::JoinHandle<()>,
}

impl Minding {
    fn begin(desk: Rc<Desk>, say: &UnboundedSender<Happening>) -> Self {
        let looking = tokio::task::spawn_local(services::mind(desk.clone(), say.clone()));
        Self { desk, looking }
    }
}

impl Drop for Minding {
    fn drop(&mut self) {
        self.looking.abort();
        self.desk.close();
    }
}

pub(crate) struct Running<'n> {
    pub node: &'n Node,
    attempt: AttemptRef,
    pub spec: &'n AttemptSpec,
    say: &'n UnboundedSender<Happening>,
    spool: &'n OnceCell<SpoolReader>,
    desk: &'n OnceCell<Rc<Desk>>,
    folder: Option<Folder>,
    pub slot: u32,
    pub discarded: bool,
    /// It was told to stop, for this.
    stopped: Option<StopWhy>,
    /// It was stopped for the disk that it took.
    excess: Option<Excess>,
    /// How long its image was pulled, and its environment built or waited for.
    pub pulled_ms: u64,
    pub built_ms: u64,
}

/// What a launch is for.
#[derive(Debug)]
pub(crate) enum Stage<'b> {
    /// The environment. Its output is the beginning of the job's log; who waits for the same build gets it too. A quiet
    /// one's output may still be taken back.
    Build {
        build: Option<&'b mut Build>,
        quiet: bool,
    },
    Run(&'b BTreeMap<String, String>),
}

impl<'n> Running<'n> {
    async fn run(&mut self, orders: &mut UnboundedReceiver<Order>) -> (Exit, SpoolEnd) {
        let python = self.node.python(self.spec.isolation).await;
        if let Err(exit) = self.can_be_isolated() {
            return (exit, SpoolEnd::default());
        }
        let user = match self.node.new_user(self.spec.isolation) {
            Ok(user) => user,
            Err(exit) => return (exit, SpoolEnd::default()),
        };
        let folder = match self.node.folders.take(user, python.clone()) {
            Ok(folder) => self.folder.insert(folder),
            Err(e) => return (prepare_failed(FailureClass::System, e.to_string()), SpoolEnd::default()),
        };
        let _ = self.spool.set(SpoolReader::new(&folder.dir, self.spec.log_bytes_max));
        let namespaces = self.node.spawner.capabilities().namespaces();
        let mut layout = Layout::new(folder, self.spec, namespaces, self.node.keeper());
        let gpus = match self.gpus(&layout, orders).await {
            Ok(gpus) => gpus,
            Err(exit) => return self.not_run(&layout, exit),
        };
        let mut provided = match self.provide(&mut layout, python.as_ref(), orders).await {
            Ok(provided) => provided,
            Err(exit) => return self.not_run(&layout, exit),
        };
        let prepared = tokio::select! {
            biased;
            prepared = prepare::prepare(self.node, self.spec, &layout, &provided, self.slot) => prepared,
            order = orders.recv() => {
                self.discarded = order == Some(Order::Discard);
                Err(Exit::Stopped)
            }
        };
        provided.facts.extend(self.provenance(&layout, &provided, python.as_ref()));
        for (key, ms) in [("neap.prepare.pull_ms", self.pulled_ms), ("neap.prepare.build_ms", self.built_ms)]
        {
            if ms > 0 {
                provided.facts.insert(key.into(), ms.to_string());
            }
        }
        provided.facts.extend(gpus.facts(namespaces && self.spec.isolation == Isolation::Full));
        let prepared = prepared.map(|mut launch| {
            gpus.equip(&mut launch);
            if let Some(view) = launch.view.as_mut()
                && self.has_several_nodes()
                && self.node.network.place.is_none()
            {
                view.resolver = std::fs::read_to_string("/etc/resolv.conf").ok();
                view.hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
                let _ = layout.say(MACHINES_NETWORK);
                launch.head_bytes = layout.said().head_bytes;
            }
            launch
        });
        let prepared = match prepared {
            Ok(mut launch) => match self.attend(&layout, &provided, &mut launch) {
                Ok(()) => self.contain(&layout, &provided, launch, &gpus),
                Err(exit) => Err(exit),
            },
            Err(exit) => Err(exit),
        };
        let keeping = Keeping::new(self.node, self.attempt.attempt, self.spec, &layout);
        let launched = match prepared {
            Ok(launch) => {
                let desk = self.desk.get().cloned();
                let minding = desk.map(|desk| Minding::begin(desk, self.say));
                keeping.begins();
                let launched = tokio::select! {
                    biased;
                    launched = self.measured(&gpus, &layout, &launch, &provided.facts, orders) => launched,
                    never = keeping.periodically() => match never {},
                };
                drop(minding);
                launched
            }
            Err(exit) => Err(exit),
        };
        let contained = self.contained(&layout, &provided).await;
        drop(gpus);
        if self.node.gpus.len() > 0 {
            self.tell(Input::Gpus { gpus: self.node.gpus.states() });
        }
        match launched {
            Ok(record) => {
                neap_crash::point("exit-recorded-before-outputs");
                self.finalize(&layout, record, contained, &keeping).await
            }
            Err(exit) => self.not_run(&layout, exit),
        }
    }

    /// A job that should be isolated does not run where that cannot be done: nothing is promised and not kept.
    fn can_be_isolated(&self) -> Result<(), Exit> {
        let capabilities = self.node.spawner.capabilities();
        if self.spec.isolation == Isolation::Off || capabilities.namespaces() {
            return Ok(());
        }
        Err(prepare_failed(FailureClass::Environment, capabilities.missing.join(" ")))
    }

    /// The GPUs that are the attempt's for as long as it runs.
    async fn gpus(
        &mut self,
        layout: &Layout,
        orders: &mut UnboundedReceiver<Order>,
    ) -> Result<Held<'n>, Exit> {
        let count = self.spec.limits.gpus.min(self.node.gpus.len());
        let patience = std::time::Duration::from_millis(gpus::WAIT_MS);
        let held = tokio::select! {
            biased;
            held = tokio::time::timeout(patience, self.node.gpus.take(self.attempt, count)) => held,
            order = orders.recv() => {
                self.discarded = order == Some(Order::Discard);
                return Err(Exit::Stopped);
            }
        };
        let held = held.map_err(|_| {
            prepare_failed(FailureClass::System, "other attempts on the node have not let go of its GPUs")
        })?;
        if let Some(line) = held.first_line() {
            layout
                .say(&line)
                .map_err(|e| prepare_failed(FailureClass::System, format!("writing the log: {e}")))?;
        }
        Ok(held)
    }

    /// Runs the command, and looks at its GPUs meanwhile. What they were used for is told when it is over.
    async fn measured(
        &mut self,
        gpus: &Held<'_>,
        layout: &Layout,
        launch: &Launch,
        facts: &BTreeMap<String, String>,
        orders: &mut UnboundedReceiver<Order>,
    ) -> Result<ExitRecord, Exit> {
        let meter = RefCell::new(Meter::new(boot_ms()));
        let say = self.say;
        let launched = tokio::select! {
            biased;
            launched = self.supervise(layout, launch, Stage::Run(facts), orders) => launched,
            never = gpus.measure(&meter, say) => match never {},
        };
        let mut facts = gpus.summary(&meter.borrow());
        // What runs in a container is counted where the engine has it.
        let used = launched.as_ref().ok().and_then(|record| record.used);
        if let Some(used) = used.filter(|_| launch.own_program.is_none()) {
            facts.extend(usage(used));
        }
        if !facts.is_empty() {
            self.tell(Input::Measured { attempt: self.attempt, facts });
        }
        launched
    }

    fn not_run(&self, layout: &Layout, exit: Exit) -> (Exit, SpoolEnd) {
        if let Some(excess) = &self.excess {
            let _ = layout.say(&excess.line());
            return (excess.exit(), layout.said());
        }
        if let Exit::PrepareFailed { message, .. } = &exit {
            boot_log::line(&format!("attempt {}: {message}", self.attempt));
            // The same words are in the report.
            let _ = layout.say(&format!("[neap] {message}\n"));
        }
        (exit, layout.said())
    }

    /// Has the attempt's services started before its command, where it has any.
    fn attend(&self, layout: &Layout, provided: &Provided, launch: &mut Launch) -> Result<(), Exit> {
        let in_container = matches!(provided.ground, Ground::Container { .. });
        let desk = services::arrange(self.attempt, self.spec, layout, launch, in_container)
            .map_err(|e| prepare_failed(FailureClass::System, format!("preparing the services: {e}")))?;
        if let Some(desk) = desk {
            let _ = self.desk.set(Rc::new(desk));
        }
        Ok(())
    }

    /// The launch of a container, where there is one: the process that drives the engine.
    fn contain(
        &self,
        layout: &Layout,
        provided: &Provided,
        mut launch: Launch,
        gpus: &Held<'_>,
    ) -> Result<Launch, Exit> {
        let Ground::Container { engine, image } = &provided.ground else { return Ok(launch) };
        let preparing = |e| prepare_failed(FailureClass::System, format!("preparing the container: {e}"));
        let attempt = (self.attempt, self.spec);
        container::prepare(self.node, attempt, layout, engine, &mut launch).map_err(preparing)?;
        let mut order = container::order(self.node, attempt, layout, (engine, image), &launch);
        order.gpus = gpus.for_container();
        container::launch(self.node, layout, engine, order, launch).map_err(preparing)
    }

    /// After a container: how it ended, if it was one. Nothing of it is left.
    async fn contained(&self, layout: &Layout, provided: &Provided) -> Option<Option<Answer>> {
        let Ground::Container { engine, .. } = &provided.ground else { return None };
        let answer = container::answer(layout);
        if !matches!(answer, Some(Answer::Ended { .. } | Answer::Failed { .. })) {
            // Its driver was killed: the processes are gone with it, the engine still has the rest.
            neap_sandbox::end_process(&container::process_file(layout));
            if let Err(e) = engine.remove(&container::labels(self.node, Some(self.attempt)), |_| false).await
            {
                boot_log::line(&format!("attempt {}: {e}", self.attempt));
            }
        }
        Some(answer)
    }

    /// So much of the log is there now, before the command runs.
    pub(crate) fn log_grew(&self, layout: &Layout) {
        self.tell(Input::LogGrew { attempt: self.attempt, bytes: layout.said().head_bytes });
    }

    fn tell(&self, input: Input) {
        let _ = self.say.send(Happening::Session(input));
    }

    /// Launches, and passes on what the supervisor says until the attempt has ended.
    pub(crate) async fn supervise(
        &mut self,
        layout: &Layout,
        launch: &Launch,
        mut stage: Stage<'_>,
        orders: &mut UnboundedReceiver<Order>,
    ) -> Result<ExitRecord, Exit> {
        let mut passed_on = launch.head_bytes;
        let system = |e: String| prepare_failed(FailureClass::System, e);
        let shared = self.shared_network(launch).map_err(&system)?;
        let network = match &shared {
            Some(shared) => AttemptNetwork::Joined(shared.as_fd()),
            None if self.has_several_nodes() && self.node.network.place.is_none() => AttemptNetwork::Machine,
            None => AttemptNetwork::Own,
        };
        let handle = self.node.spawner.launch(launch, &network).map_err(|e| system(e.to_string()))?;
        let mut inside = Inside::default();
        let (door, mut wishes) = Door::new();
        // Only root can enter the network of a container; others reach what containers of theirs publish.
        let of_container = launch.beside.is_some() && rustix::process::geteuid().is_root();
        let apart = launch.view.is_some() && !matches!(network, AttemptNetwork::Machine);
        let with_door = (apart || of_container) && matches!(stage, Stage::Run(_));
        if let Some(desk) = self.desk.get().filter(|_| with_door) {
            desk.set_door(door);
        }
        #[expect(
            deprecated,
            reason = "its successor is unsafe; the descriptor is owned by the value and never changes"
        )]
        let mut handle =
            AsyncFd::with_interest(handle, Interest::READABLE).map_err(|e| system(e.to_string()))?;
        let watch = Watch::new(self.node, self.attempt, self.spec, layout);
        let excess = watch.excess();
        tokio::pin!(excess);
        loop {
            tokio::select! {
                biased;
                ready = handle.readable_mut() => {
                    let mut ready = ready.map_err(|e| system(e.to_string()))?;
                    let heard = ready.get_inner_mut().events().map_err(|e| system(e.to_string()))?;
                    ready.clear_ready();
                    if !heard.events.is_empty() && launch.view.is_some() {
                        // The next attempt's, made while this one runs.
                        self.node.spawner.prepare().map_err(|e| system(e.to_string()))?;
                    }
                    for event in heard.events {
                        match event {
                            Event::Started => {
                                if let Stage::Run(facts) = &stage {
                                    neap_crash::point("attempt-started-before-report");
                                    let mut properties = self.properties(launch);
                                    properties.extend((*facts).clone());
                                    self.tell(Input::Started { attempt: self.attempt, properties });
                                }
                            }
                            Event::Listening { sockets } => {
                                let sockets = ready.get_inner_mut().take_sockets(sockets);
                                inside.serve(&self.node.network.relay, sockets).map_err(|e| system(e.to_string()))?;
                            }
                            Event::Connected { error } => {
                                let socket = ready.get_inner_mut().take_sockets(usize::from(error.is_none())).pop();
                                inside.answer(error, socket);
                            }
                            Event::Log { head_bytes } => self.said(&mut stage, &mut passed_on, head_bytes),
                            Event::Ended(record) => {
                                if let Stage::Build { .. } = &stage {
                                    self.said(&mut stage, &mut passed_on, record.spool.head_bytes);
                                    layout.goes_on_after(record.spool.head_bytes);
                                }
                                return Ok(record);
                            }
                        }
                    }
                    if heard.closed {
                        let _ = self.node.spawner.sweep(handle.get_ref());
                        return Err(system("its supervisor was killed from outside, and the attempt with it".into()));
                    }
                }
                Some(wish) = wishes.recv() => match &launch.beside {
                    Some(process) => network::enter(process, wish),
                    None => inside.ask(handle.get_ref(), wish),
                },
                order = orders.recv() => {
                    // A supervisor that is gone is noticed by reading.
                    let _ = match order {
                        Some(Order::Stop { grace_ms, why: StopWhy::Preempt }) => {
                            self.warn(layout, grace_ms);
                            handle.get_ref().stop_patiently(grace_ms)
                        }
                        Some(Order::Stop { grace_ms, why }) => {
                            self.stopped = Some(why);
                            handle.get_ref().stop(grace_ms)
                        }
                        Some(Order::Discard) | None => {
                            self.discarded = true;
                            handle.get_ref().stop(0)
                        }
                    };
                }
                excess = &mut excess, if self.excess.is_none() => {
                    boot_log::line(&format!("attempt {}: {}", self.attempt, excess.line().trim()));
                    self.excess = Some(excess);
                    let _ = handle.get_ref().stop(0);
                }
            }
        }
    }

    fn has_several_nodes(&self) -> bool {
        self.spec.ranks.as_ref().is_some_and(|ranks| ranks.addresses.len() > 1)
    }

    /// The network namespace of an attempt on several nodes, which they share.
    fn shared_network(&self, launch: &Launch) -> Result<Option<SharedNetwork>, String> {
        let wanted = self.has_several_nodes() && launch.view.is_some();
        let Some(place) = self.node.network.place.as_ref().filter(|_| wanted) else { return Ok(None) };
        let AttemptRef { job, attempt, .. } = self.attempt;
        let joined = network::join(place, &format!("{job}-{attempt}"));
        joined.map(Some).map_err(|e| format!("joining the network of the job's nodes: {e}"))
    }

    /// Its node is taken back: the job can see that before it is asked to end.
    fn warn(&mut self, layout: &Layout, grace_ms: u64) {
        self.stopped = Some(StopWhy::Preempt);
        boot_log::line(&format!("attempt {}: its node is taken back in {grace_ms} ms", self.attempt));
        let now_ms = u64::try_from(boot_log::now_ns() / 1_000_000).unwrap_or(0);
        if let Err(e) = warning::warn(layout, now_ms, grace_ms) {
            boot_log::line(&format!("attempt {}: the warning could not be written: {e}", self.attempt));
        }
    }

    /// Passes on that the log has so many bytes now; and those of a build to whoever waits for it.
    fn said(&self, stage: &mut Stage<'_>, passed_on: &mut u64, head_bytes: u64) {
        if let Stage::Build { build: Some(build), .. } = stage
            && let Some(spool) = self.spool.get()
        {
            let fresh = usize::try_from(head_bytes.saturating_sub(*passed_on)).unwrap_or(usize::MAX);
            if let Ok(bytes) = spool.read(*passed_on, fresh, None) {
                build.log(&bytes);
                *passed_on += bytes.len() as u64;
            }
        }
        if !matches!(stage, Stage::Build { quiet: true, .. }) {
            self.tell(Input::LogGrew { attempt: self.attempt, bytes: head_bytes });
        }
    }

    fn properties(&self, launch: &Launch) -> BTreeMap<String, String> {
        let capabilities = self.node.spawner.capabilities();
        let isolation = match self.spec.isolation {
            Isolation::Full => capabilities.have.join(", "),
            Isolation::Off => "off".to_owned(),
        };
        let mut properties = BTreeMap::from([("neap.isolation".to_owned(), isolation)]);
        if self.spec.isolation == Isolation::Full && capabilities.cgroup.is_some() {
            let limits = launch.limits;
            let text = format!(
                "{}.{:03} cores, {} MB",
                limits.cpus_milli / 1000,
                limits.cpus_milli % 1000,
                limits.memory_mb
            );
            properties.insert("neap.limits".to_owned(), text);
        }
        properties
    }

    /// What ran it, and what of code and inputs it was given.
    fn provenance(
        &self,
        layout: &Layout,
        provided: &Provided,
        python: Option<&Interpreter>,
    ) -> BTreeMap<String, String> {
        let mut facts = layout.contents.take();
        facts.insert("provenance.agent".into(), self.node.facts.agent_version.clone());
        let python = match &provided.ground {
            Ground::Host => python.map(|python| python.version.clone()),
            Ground::Cached(cached) => Some(cached.made.version.clone()),
            // The image's own.
            Ground::Container { .. } => None,
        };
        facts.extend(python.map(|version| ("provenance.python".to_owned(), version)));
        facts
    }

    /// Whether another attempt may go on where this one ended.
    fn goes_on(&self, exit: &Exit) -> bool {
        match exit {
            Exit::Stopped => self.stopped.is_some_and(StopWhy::goes_on),
            Exit::Code { .. } | Exit::Signal { .. } | Exit::OutOfMemory { .. } | Exit::Process { .. } => {
                self.spec.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.after_failure)
            }
            Exit::Success
            | Exit::Timeout
            | Exit::LeaseLost
            | Exit::PrepareFailed { .. }
            | Exit::FinalizeFailed { .. }
            | Exit::DiskQuota { .. }
            | Exit::DiskShort { .. } => false,
        }
    }

    /// Ends the log with the reason. Lines of ours have no rank: where the log is of several the report alone says it.
    fn exceeded(&self, layout: &Layout, end: SpoolEnd, line: &str, exit: Exit) -> (Exit, SpoolEnd) {
        if end.after_head_bytes > 0 || distributed::log_source(self.spec).is_some() {
            return (exit, end);
        }
        layout.goes_on_after(end.head_bytes);
        let _ = layout.say(line);
        (exit, layout.said())
    }

    async fn finalize(
        &mut self,
        layout: &Layout,
        record: ExitRecord,
        contained: Option<Option<Answer>>,
        keeping: &Keeping<'_>,
    ) -> (Exit, SpoolEnd) {
        let mut end = match &record.outcome {
            Outcome::NotStarted { step, message } => {
                let _ = layout.say(&format!("[neap] {step}: {message}\n"));
                layout.said()
            }
            _ => record.spool,
        };
        let in_container = contained.is_some();
        let exit = match (record.outcome, contained) {
            (Outcome::Exited { .. } | Outcome::Signaled { .. }, Some(answer)) => {
                container::exit_of(answer, limits(self.node, self.spec).memory_mb)
            }
            (outcome, _) => distributed::closer(self.spec, layout, exit_of(outcome)),
        };
        if let Exit::PrepareFailed { message, .. } = &exit
            && in_container
            && end.after_head_bytes == 0
        {
            layout.goes_on_after(end.head_bytes);
            let _ = layout.say(&format!("[neap] {message}\n"));
            end = layout.said();
        }
        if self.discarded || matches!(exit, Exit::LeaseLost | Exit::PrepareFailed { .. }) {
            return (exit, end);
        }
        if self.excess.is_none()
            && matches!(exit, Exit::Code { .. } | Exit::Signal { .. } | Exit::Process { .. })
        {
            self.excess = Watch::new(self.node, self.attempt, self.spec, layout).at_end().await;
        }
        if let Some(excess) = &self.excess {
            return self.exceeded(layout, end, &excess.line(), excess.exit());
        }
        let mut told = false;
        let mut tell_once = || {
            if !std::mem::replace(&mut told, true) {
                self.tell(Input::Finalizing { attempt: self.attempt });
            }
        };
        if self.goes_on(&exit) {
            tell_once();
            let kept = keeping.at_end().await;
            // Lines of our own have no rank: where the log is of several they would be somebody else's.
            if end.after_head_bytes == 0 && distributed::log_source(self.spec).is_none() {
                layout.goes_on_after(end.head_bytes);
                let _ = layout.say(&interrupted(self.stopped, &kept));
                end = layout.said();
            }
            if let Err(message) = kept {
                boot_log::line(&format!("attempt {}: checkpoint: {message}", self.attempt));
            }
        }
        let stored = match finalize::find(self.spec, layout, exit == Exit::Success) {
            Ok(stores) if stores.is_empty() => Ok(()),
            Ok(stores) => match finalize::check_lengths(self.spec, layout, &stores) {
                Ok(()) => {
                    tell_once();
                    finalize::store(self.node, layout, stores).await
                }
                Err(message) => {
                    let line = format!("[neap] {message}\n");
                    let exit = if exit == Exit::Success { Exit::DiskQuota { message } } else { exit };
                    return self.exceeded(layout, end, &line, exit);
                }
            },
            Err(message) => Err(message),
        };
        match stored {
            Ok(()) => (exit, end),
            Err(message) => {
                boot_log::line(&format!("attempt {}: outputs: {message}", self.attempt));
                (if exit == Exit::Success { Exit::FinalizeFailed { message } } else { exit }, end)
            }
        }
    }
}

/// What an attempt used of its node, as the log keeps it.
fn usage(used: Used) -> [(String, String); 3] {
    let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
    [
        ("neap.run.seconds".to_owned(), seconds(used.ran_ms)),
        ("neap.cpu.seconds".to_owned(), seconds(used.cpu_ms)),
        ("neap.memory.peak_mb".to_owned(), used.memory_peak_mb.to_string()),
    ]
}

/// What the log says at the end of an attempt that another one follows.
fn interrupted(why: Option<StopWhy>, kept: &Result<Option<Kept>, String>) -> String {
    let why = match why {
        Some(StopWhy::Preempt) => "Its node is taken back, and the attempt was interrupted.",
        Some(StopWhy::Requeue | StopWhy::End) | None => "The attempt ended early.",
    };
    match kept {
        Ok(Some(Kept { files, bytes })) => format!(
            "[neap] {why} Its checkpoint folder and outputs are saved for another: {} and {}.\n",
            checkpoint::count(*files as u64, "file"),
            checkpoint::count(*bytes, "byte"),
        ),
        Ok(None) => format!("[neap] {why}\n"),
        Err(e) => format!("[neap] {why} Its checkpoint folder and outputs could not be saved: {e}\n"),
    }
}

fn exit_of(outcome: Outcome) -> Exit {
    match outcome {
        Outcome::Exited { code: 0 } => Exit::Success,
        Outcome::Exited { code } => Exit::Code { code },
        Outcome::Signaled { signal } => Exit::Signal { signal },
        Outcome::OutOfMemory { limit_mb } => Exit::OutOfMemory { limit_mb },
        Outcome::TimedOut => Exit::Timeout,
        Outcome::Stopped => Exit::Stopped,
        Outcome::LeaseLost | Outcome::AgentLost => Exit::LeaseLost,
        Outcome::NotStarted { step, message } => {
            prepare_failed(FailureClass::System, format!("the sandbox could not be made: {step}: {message}"))
        }
    }
}
