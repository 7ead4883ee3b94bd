//! The process that drives the engine for one attempt: makes an image be there, or runs a container and passes its
//! output on. It is the command under the attempt's supervisor, so that leases, limits of time and stops hold for it as for
//! any command.
//!
//! A container is no child of ours. Before its command begins, its first process is written down; the supervisor kills
//! that process when it ends the tree, whatever has become of this one. The container's command waits for a line that is
//! sent after that, so that there is no moment in which it runs and nobody could end it.

#![allow(
    clippy::disallowed_types,
    reason = "the engine's API has hash maps in its types; their order means nothing"
)]

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::container::AttachContainerResults;
use bollard::errors::Error as EngineError;
use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountType, ResourcesUlimits,
};
use bollard::query_parameters::{
    AttachContainerOptions, BuildImageOptions, CreateContainerOptions, CreateImageOptions,
    ImportImageOptions, KillContainerOptions, RemoveContainerOptions, TagImageOptions,
};
use bytes::Bytes;
use futures_util::StreamExt;
use neap_sandbox::net::{self, namespace_of};
use neap_sandbox::{Detached, is_alive};
use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::engine::{Engine, EngineKind, with_tag};
use super::limits::{ARCHIVE_PIECE_BYTES, BUILD_MS_MAX, CONTEXT_BYTES_MAX, END_ROUND_MS, UNREADABLE_MAX};
use super::order::{Answer, ImageOrder, Order, OwnNetwork, RunOrder, SharedWith, Step};
use super::shared;
use crate::relay::Serving;

/// How often, and how many times, a container's first process is looked at for its mark.
const MARK_LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(10);
const MARK_LOOKS_MAX: u32 = 500;

/// Where a container sees the program that its first process is started by.
pub(super) const FIRST_PLACE: &str = "/.neap-first";

/// The first process of a container. It begins when told to, passes a polite end on to all processes of the container,
/// and ends with the command; the kernel then ends the others.
const FIRST: &str = r#"read -r go || exit 125
if [ -x /bin/bash ]; then shell=/bin/bash; else shell=/bin/sh; fi
trap 'kill -TERM -1 2>/dev/null' TERM
"$shell" -c "$1" </dev/null &
while :; do
  wait "$!"; code=$?
  kill -0 "$!" 2>/dev/null || exit "$code"
done
"#;

/// Does what the order in `file` says, and leaves the answer. The exit code is the container's.
pub fn drive(file: &Path) -> Result<i64, String> {
    let text = std::fs::read(file).map_err(|e| format!("reading {}: {e}", file.display()))?;
    let order: Order = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    // It holds the job's variables.
    let _ = std::fs::remove_file(file);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("starting the runtime: {e}"))?;
    let answer = runtime.block_on(perform(&order));
    write_private(&order.answer, &answer).map_err(|e| format!("{}: {e}", order.answer.display()))?;
    Ok(match answer {
        Answer::Image { .. } => 0,
        Answer::Ended { code, .. } => code,
        Answer::Absent { .. } | Answer::Failed { .. } | Answer::Lost { .. } => 1,
    })
}

async fn perform(order: &Order) -> Answer {
    let engine = match Engine::connect(order.socket.clone(), EngineKind::Auto, BUILD_MS_MAX / 1000).await {
        Ok(engine) => engine,
        Err(message) => {
            return Answer::Lost { message: format!("the engine at {}: {message}", order.socket.display()) };
        }
    };
    match &order.step {
        Step::Image(image) => bring(&engine, image).await,
        Step::Run(run) => Container::run(&engine, run).await,
    }
}

fn write_private(path: &Path, value: &impl serde::Serialize) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    std::fs::rename(new, path)
}

/// Passes text on to the log.
fn say(text: &[u8]) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more: then the supervisor is ending this process.
    let _ = out.write_all(text).and_then(|()| out.flush());
}

async fn bring(engine: &Engine, order: &ImageOrder) -> Answer {
    let (reference, brought) = match order {
        ImageOrder::Pull { image } => {
            let image = with_tag(image);
            let pulled = pull(&engine.api, &image).await;
            if let Err(message) = pulled {
                return Answer::Absent { message };
            }
            (image, Ok(()))
        }
        ImageOrder::Load { archive, tag } => (tag.clone(), load(&engine.api, archive, tag).await),
        ImageOrder::Build { context, dockerfile, tag } => {
            (tag.clone(), build(&engine.api, context, dockerfile, tag).await)
        }
    };
    let looked = match brought {
        Ok(()) => engine.image(&reference).await,
        Err(message) => Err(message),
    };
    match looked {
        Ok(Some(id)) => Answer::Image { id },
        Ok(None) => {
            Answer::Failed { message: format!("the engine says it made {reference}, and does not have it") }
        }
        Err(message) => Answer::Failed { message },
    }
}

async fn pull(api: &Docker, image: &str) -> Result<(), String> {
    say(format!("[neap] Pulling {image}\n").as_bytes());
    let options = CreateImageOptions { from_image: Some(image.to_owned()), ..CreateImageOptions::default() };
    let mut stream = api.create_image(Some(options), None, None);
    while let Some(step) = stream.next().await {
        let step = step.map_err(|e| format!("image {image} could not be pulled: {}", plain(&e)))?;
        let counted = step.progress_detail.is_some_and(|progress| progress.current.is_some());
        if let Some(status) = step.status.filter(|_| !counted) {
            let id = step.id.map(|id| format!("{id}: ")).unwrap_or_default();
            say(format!("{id}{}\n", status.trim_end()).as_bytes());
        }
    }
    Ok(())
}

async fn load(api: &Docker, archive: &Path, tag: &str) -> Result<(), String> {
    say(format!("[neap] Loading {}\n", archive.display()).as_bytes());
    let failed = |what: &str| format!("the image archive {} cannot be loaded: {what}", archive.display());
    let file = File::open(archive).map_err(|e| failed(&e.to_string()))?;
    let pieces = futures_util::stream::unfold(Some(file), |file| async move {
        let mut file = file?;
        let mut piece = vec![0; ARCHIVE_PIECE_BYTES];
        match file.read(&mut piece) {
            Ok(0) => None,
            Ok(n) => {
                piece.truncate(n);
                Some((Ok(Bytes::from(piece)), Some(file)))
            }
            Err(e) => Some((Err(e), None)),
        }
    });
    let mut stream = api.import_image(ImportImageOptions::default(), bollard::body_try_stream(pieces), None);
    let mut loaded = None;
    while let Some(step) = stream.next().await {
        let step = step.map_err(|e| failed(&plain(&e)))?;
        for line in step.stream.iter().flat_map(|text| text.lines()) {
            say(format!("{line}\n").as_bytes());
            if let Some(name) =
                line.strip_prefix("Loaded image: ").or_else(|| line.strip_prefix("Loaded image ID: "))
            {
                // Podman names several on one line.
                loaded = name.split(',').next().map(|name| name.trim().to_owned());
            }
        }
    }
    let loaded = loaded
        .ok_or_else(|| failed("there is no image in it; save it with `docker save` or `podman save`"))?;
    let (repo, tag) = tag.split_once(':').unwrap_or((tag, "latest"));
    let options = TagImageOptions { repo: Some(repo.to_owned()), tag: Some(tag.to_owned()) };
    api.tag_image(&loaded, Some(options)).await.map_err(|e| failed(&plain(&e)))
}

async fn build(api: &Docker, context: &Path, dockerfile: &str, tag: &str) -> Result<(), String> {
    say(b"[neap] Building the environment's image\n");
    let packed = pack(context).map_err(|e| format!("packing the build context: {e}"))?;
    let options = BuildImageOptions {
        dockerfile: dockerfile.to_owned(),
        t: Some(tag.to_owned()),
        rm: true,
        forcerm: true,
        networkmode: Some("host".to_owned()),
        buildargs: Some(super::installing::build_arguments()),
        ..BuildImageOptions::default()
    };
    let mut stream = api.build_image(options, None, Some(bollard::body_full(packed.into())));
    while let Some(step) = stream.next().await {
        let step = step.map_err(|e| format!("building the image failed: {}", plain(&e)))?;
        if let Some(text) = &step.stream {
            say(text.as_bytes());
        }
        if let Some(message) = step.error_detail.and_then(|error| error.message) {
            return Err(format!("building the image failed: {}", message.trim()));
        }
    }
    Ok(())
}

/// A folder as an archive.
fn pack(folder: &Path) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.follow_symlinks(false);
    archive.append_dir_all(".", folder)?;
    let packed = archive.into_inner()?;
    if packed.len() as u64 > CONTEXT_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has more than {CONTEXT_BYTES_MAX} bytes")));
    }
    Ok(packed)
}

/// What the engine said, without the library's words around it.
pub(super) fn plain(error: &EngineError) -> String {
    match error {
        EngineError::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        EngineError::DockerStreamError { error } => error.trim().to_owned(),
        other => other.to_string(),
    }
}

/// A container that was made.
struct Container<'a> {
    api: &'a Docker,
    order: &'a RunOrder,
    id: String,
}

impl<'a> Container<'a> {
    async fn run(engine: &'a Engine, order: &'a RunOrder) -> Answer {
        // Heard from now on: whoever is ended while the engine makes a container would leave it behind.
        let mut terminate = match signal(SignalKind::terminate()) {
            Ok(terminate) => terminate,
            Err(e) => return Answer::Lost { message: format!("signals cannot be heard: {e}") },
        };
        let options =
            CreateContainerOptions { name: Some(order.name.clone()), ..CreateContainerOptions::default() };
        let mut body = body(order);
        let shared = order.network.as_ref().and_then(|network| network.shared.as_ref());
        // Held until this container has joined, so that a rank that leaves does not remove the network.
        let joining = match shared {
            Some(shared) => match shared::join(engine, order, shared).await {
                Ok(lock) => {
                    if let Some(host) = &mut body.host_config {
                        host.network_mode = Some(format!("container:{}", shared.holder));
                    }
                    // It is the holder's.
                    body.hostname = None;
                    Some(lock)
                }
                Err(message) => return Answer::Lost { message },
            },
            None => None,
        };
        let made = match engine.api.create_container(Some(options), body).await {
            Ok(made) => made,
            Err(e) => {
                drop(joining);
                leave(engine, shared).await;
                return Answer::Failed { message: format!("making the container: {}", plain(&e)) };
            }
        };
        let container = Self { api: &engine.api, order, id: made.id };
        let answer = container.start_and_follow(engine, joining, &mut terminate).await;
        let options = RemoveContainerOptions { force: true, v: true, link: false };
        if let Err(e) = container.api.remove_container(&container.id, Some(options)).await {
            say(format!("[neap] The container was not removed: {}\n", plain(&e)).as_bytes());
        }
        leave(engine, shared).await;
        answer
    }

    async fn start_and_follow(
        &self,
        engine: &Engine,
        joining: Option<File>,
        terminate: &mut Signal,
    ) -> Answer {
        let failed =
            |what: &str, e: &EngineError| Answer::Failed { message: format!("{what}: {}", plain(e)) };
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        let mut attached = match self.api.attach_container(&self.id, Some(options)).await {
            Ok(attached) => attached,
            Err(e) => return failed("reading the container's output", &e),
        };
        if let Err(e) = self.api.start_container(&self.id, None).await {
            return failed("starting the container", &e);
        }
        drop(joining);
        let first = match self.write_down(engine).await {
            Ok(first) => first,
            Err(message) => return Answer::Failed { message },
        };
        let _serving = match self.order.network.as_ref().map(|network| connect(network, first)).transpose() {
            Ok(serving) => serving,
            Err(e) => return Answer::Lost { message: format!("connecting the container's network: {e}") },
        };
        let told = async {
            attached.input.write_all(b"go\n").await?;
            attached.input.flush().await
        };
        if let Err(e) = told.await {
            return Answer::Lost { message: format!("telling the container to begin: {e}") };
        }
        self.follow(attached, terminate).await;
        self.end(terminate).await
    }

    /// Writes down the first process, after making sure that it is a process of this machine and this container.
    async fn write_down(&self, engine: &Engine) -> Result<Detached, String> {
        let state = self.api.inspect_container(&self.id, None).await.map_err(|e| plain(&e))?.state;
        let pid = state
            .and_then(|state| state.pid)
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| *pid > 0)
            .ok_or(
                "the container ended before its command began; is there a shell (/bin/sh) in the image?",
            )?;
        // Until the engine's own program has become the shell, its variables are not the container's.
        let mut start_time = None;
        for _ in 0..MARK_LOOKS_MAX {
            start_time =
                neap_sandbox::start_time(pid).filter(|_| neap_sandbox::carries(pid, &self.order.mark));
            if start_time.is_some() || neap_sandbox::start_time(pid).is_none() {
                break;
            }
            tokio::time::sleep(MARK_LOOK_EVERY).await;
        }
        let start_time = start_time.ok_or_else(|| {
            format!("the processes of {} are not this machine's, so that Neap could not end them; use an engine that runs here", engine.name)
        })?;
        let first = Detached { pid, start_time };
        write_private(&self.order.process, &first)
            .map_err(|e| format!("writing {}: {e}", self.order.process.display()))?;
        Ok(first)
    }

    /// Passes the output on until it ends; a polite end is passed on to the container.
    async fn follow(&self, mut attached: AttachContainerResults, terminate: &mut Signal) {
        loop {
            tokio::select! {
                piece = attached.output.next() => match piece {
                    Some(Ok(piece)) => say(piece.as_ref()),
                    Some(Err(_)) | None => return,
                },
                _ = terminate.recv() => self.terminate().await,
            }
        }
    }

    async fn terminate(&self) {
        let options = KillContainerOptions { signal: "SIGTERM".to_owned() };
        // One that has just ended is what is wanted.
        let _ = self.api.kill_container(&self.id, Some(options)).await;
    }

    /// Waits for the end and says how it was.
    async fn end(&self, terminate: &mut Signal) -> Answer {
        let mut patience = UNREADABLE_MAX;
        loop {
            let running = match self.api.inspect_container(&self.id, None).await {
                Ok(found) => {
                    let state = found.state.unwrap_or_default();
                    if state.running != Some(true) {
                        return Answer::Ended {
                            code: state.exit_code.unwrap_or(0),
                            out_of_memory: state.oom_killed == Some(true),
                        };
                    }
                    true
                }
                // Podman has states on the way to the end that Docker does not.
                Err(EngineError::JsonDataError { .. }) if patience > 0 => false,
                Err(e) => {
                    return Answer::Lost { message: format!("the engine lost the container: {}", plain(&e)) };
                }
            };
            if !running {
                patience -= 1;
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(END_ROUND_MS)) => {}
                _ = terminate.recv() => self.terminate().await,
            }
        }
    }
}

async fn leave(engine: &Engine, shared: Option<&SharedWith>) {
    if let Some(shared) = shared
        && let Err(e) = shared::leave(engine, shared, true).await
    {
        say(format!("[neap] {e}\n").as_bytes());
    }
}

/// Gives a container without a network its way out, and what the agent serves inside. It lasts as long as what comes back.
fn connect(network: &OwnNetwork, first: Detached) -> io::Result<Serving> {
    let namespace = namespace_of(first.pid)?;
    if !is_alive(first) {
        return Err(io::Error::other("the container has ended"));
    }
    if net::is_own(namespace.as_fd())? {
        return Err(io::Error::other("the engine gave the container this machine's network"));
    }
    let listeners = network.relay.listeners();
    let sockets = match &network.place {
        Some(place) if network.shared.is_none() => net::adopt(place, namespace.as_fd(), &listeners)?.1,
        Some(_) | None => net::adopt_without_router(namespace.as_fd(), &listeners)?,
    };
    network.relay.serve(sockets)
}

pub(super) fn body(order: &RunOrder) -> ContainerCreateBody {
    let positive = |n: u64| i64::try_from(n).ok().filter(|n| *n > 0);
    let memory = positive(order.memory_mb.saturating_mul(1024 * 1024));
    let first = order.first.iter().map(|first| (first.clone(), PathBuf::from(FIRST_PLACE), true));
    let begin = order.first.iter().map(|_| FIRST_PLACE).collect::<Vec<_>>();
    let mounts = order.mounts.iter().cloned().chain(first).map(|(from, to, read_only)| Mount {
        typ: Some(MountType::BIND),
        source: Some(from.display().to_string()),
        target: Some(to.display().to_string()),
        read_only: Some(read_only),
        ..Mount::default()
    });
    let ulimits = order.ulimits.iter().map(|(name, soft, hard)| ResourcesUlimits {
        name: Some(name.clone()),
        soft: Some(*soft),
        hard: Some(*hard),
    });
    let gpus = DeviceRequest {
        device_ids: Some(order.gpus.clone()),
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..DeviceRequest::default()
    };
    ContainerCreateBody {
        image: Some(order.image.clone()),
        hostname: order.hostname.clone(),
        entrypoint: Some(
            begin.into_iter().chain(["/bin/sh", "-c", FIRST, "neap"]).map(str::to_owned).collect(),
        ),
        cmd: Some(vec![order.command.clone()]),
        env: Some(order.env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        working_dir: Some(order.cwd.display().to_string()),
        user: order.user.clone(),
        labels: Some(order.labels.iter().cloned().collect::<HashMap<_, _>>()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        host_config: Some(HostConfig {
            mounts: Some(mounts.collect()),
            network_mode: Some(if order.network.is_some() { "none" } else { "host" }.to_owned()),
            ipc_mode: Some("private".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            memory,
            memory_swap: memory,
            nano_cpus: positive(u64::from(order.cpus_milli) * 1_000_000),
            pids_limit: positive(u64::from(order.processes)),
            shm_size: order.shm_bytes.and_then(positive),
            ulimits: Some(ulimits.collect()),
            device_requests: (!order.gpus.is_empty()).then(|| vec![gpus]),
            // The output is in the job's log; a second copy would only fill the disk.
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}
