//! One network for the containers of an attempt that runs on several nodes of this machine.
//!
//! Engines put a container into the network of another one and nowhere else. So the first of them makes a container that
//! does nothing, and holds the network; the last one removes it. A lock decides who is first and last.

#![allow(
    clippy::disallowed_types,
    reason = "the engine's API has hash maps in its types; their order means nothing"
)]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, ListContainersOptions, RemoveContainerOptions};
use neap_sandbox::net::{self, ListenSpec, Place, namespace_of};

use super::driver::{FIRST_PLACE, body, plain};
use super::engine::{Engine, LABEL_HOLDS, LABEL_INSTALLATION, LABEL_NETWORK};
use super::order::{RunOrder, SharedWith};

/// The shell of an image whose machine has no program of ours: a stopped process that the first one waits for.
const WAIT: [&str; 3] = ["/bin/sh", "-c", "/bin/sh -c 'kill -STOP $$' & wait"];

/// Memory and processes of a container that does nothing.
const HOLDER_MEMORY_BYTES: i64 = 32 << 20;
const HOLDER_PROCESSES: i64 = 8;

impl SharedWith {
    pub(crate) fn new(place: Place, installation: &str, attempt: &str) -> Self {
        Self { place, attempt: attempt.to_owned(), holder: format!("neap-{installation}-network-{attempt}") }
    }
}

/// Makes the network be there. As long as the file that comes back is open, nobody removes it.
pub(super) async fn join(engine: &Engine, order: &RunOrder, shared: &SharedWith) -> Result<File, String> {
    let failed = |e: io::Error| format!("joining the network of the job's containers: {e}");
    let lock = shared.place.lock_containers(&shared.attempt, true).map_err(failed)?;
    if first_of(engine, &shared.holder).await.is_some() {
        return Ok(lock);
    }
    remove(engine, shared).await?;
    let options =
        CreateContainerOptions { name: Some(shared.holder.clone()), ..CreateContainerOptions::default() };
    let refused = |e: bollard::errors::Error| {
        format!("making the container that holds the network of the job's containers: {}", plain(&e))
    };
    engine.api.create_container(Some(options), holder(order, shared)).await.map_err(refused)?;
    engine.api.start_container(&shared.holder, None).await.map_err(refused)?;
    let first = first_of(engine, &shared.holder).await.ok_or("the container that holds the network ended")?;
    let namespace = namespace_of(first).map_err(failed)?;
    if net::is_own(namespace.as_fd()).map_err(failed)? {
        return Err("the engine gave the container this machine's network".into());
    }
    let nothing = ListenSpec::default();
    let routed = order.network.as_ref().and_then(|network| network.place.as_ref());
    match routed {
        Some(place) => net::adopt(place, namespace.as_fd(), &nothing).map(|_| ()),
        None => net::adopt_without_router(namespace.as_fd(), &nothing).map(|_| ()),
    }
    .map_err(failed)?;
    Ok(lock)
}

/// Removes the networks of an installation that nobody has any more. What cannot be removed now is tried again next time.
pub(super) async fn sweep(engine: &Engine, installation: &str) {
    let labels = vec![format!("{LABEL_INSTALLATION}={installation}"), LABEL_HOLDS.to_owned()];
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), labels)])),
        ..ListContainersOptions::default()
    };
    for holder in engine.api.list_containers(Some(options)).await.unwrap_or_default() {
        if let Some(attempt) = holder.labels.as_ref().and_then(|labels| labels.get(LABEL_HOLDS)) {
            let shared = SharedWith::new(Place::new(installation), installation, attempt);
            let _ = leave(engine, &shared, false).await;
        }
    }
}

/// Removes the network if nobody has it any more. Without `patient`, it is left alone while somebody joins or leaves.
pub(crate) async fn leave(engine: &Engine, shared: &SharedWith, patient: bool) -> Result<(), String> {
    let _lock = match shared.place.lock_containers(&shared.attempt, patient) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        other => other.map_err(|e| format!("leaving the network of the job's containers: {e}"))?,
    };
    let label = format!("{LABEL_NETWORK}={}", shared.holder);
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), vec![label])])),
        ..ListContainersOptions::default()
    };
    // One in a state that cannot be read is still there.
    let Ok(members) = engine.api.list_containers(Some(options)).await else { return Ok(()) };
    if members.is_empty() { remove(engine, shared).await } else { Ok(()) }
}

async fn remove(engine: &Engine, shared: &SharedWith) -> Result<(), String> {
    let options = RemoveContainerOptions { force: true, v: true, link: false };
    match engine.api.remove_container(&shared.holder, Some(options)).await {
        Ok(()) | Err(bollard::errors::Error::DockerResponseServerError { status_code: 404 | 409, .. }) => {
            Ok(())
        }
        Err(e) => Err(format!("removing the network of the job's containers: {}", plain(&e))),
    }
}

/// The first process of a container that runs.
async fn first_of(engine: &Engine, name: &str) -> Option<u32> {
    let state = engine.api.inspect_container(name, None).await.ok()?.state?;
    state
        .pid
        .filter(|_| state.running == Some(true))
        .and_then(|pid| u32::try_from(pid).ok())
        .filter(|pid| *pid > 0)
}

/// The job's container, less all that makes it the job's.
fn holder(order: &RunOrder, shared: &SharedWith) -> ContainerCreateBody {
    let own = body(order);
    let first = order.first.is_some();
    let begin = if first { vec![FIRST_PLACE.to_owned()] } else { WAIT.map(str::to_owned).into() };
    let host = own.host_config.unwrap_or_default();
    let is_first = |mount: &bollard::models::Mount| mount.target.as_deref() == Some(FIRST_PLACE);
    ContainerCreateBody {
        image: own.image,
        hostname: own.hostname,
        user: own.user,
        // It is no node's, and not one of those that have the network.
        labels: own.labels.map(|mut labels| {
            labels.retain(|name, _| name == LABEL_INSTALLATION);
            labels.insert(LABEL_HOLDS.to_owned(), shared.attempt.clone());
            labels
        }),
        entrypoint: Some(begin),
        cmd: Some(Vec::new()),
        host_config: Some(HostConfig {
            mounts: host.mounts.map(|mounts| mounts.into_iter().filter(is_first).collect()),
            memory: Some(HOLDER_MEMORY_BYTES),
            memory_swap: Some(HOLDER_MEMORY_BYTES),
            pids_limit: Some(HOLDER_PROCESSES),
            nano_cpus: None,
            shm_size: None,
            device_requests: None,
            ..host
        }),
        ..ContainerCreateBody::default()
    }
}
