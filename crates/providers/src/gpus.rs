//! Which of the machine's GPUs are which local node's.
//!
//! A node's GPUs are written in its own folder before its agent starts, and are free again when the folder is gone or
//! says that nothing of the node runs any more. So no restart of the server can give one GPU to two nodes: what was
//! given is read from the folders each time.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use neap_agent::NodeConfig;
use neap_core::NodeId;
use neap_sandbox::Gpu;

use crate::Error;
use crate::local::read_nodes;

/// In the folder of a node that was fenced and is not removed yet.
const FENCED_FILE: &str = "fenced";

static ASSIGNING: Mutex<()> = Mutex::new(());

/// Held from choosing GPUs until they are written down.
pub(crate) fn assigning() -> MutexGuard<'static, ()> {
    ASSIGNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// GPUs for a node: those that it has, else the first that nobody has.
pub(crate) fn for_node(nodes: &Path, node: NodeId, all: &[Gpu], count: u32) -> Result<Vec<Gpu>, Error> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let (mut own, mut taken) = (Vec::new(), BTreeSet::new());
    for (other, _) in read_nodes(nodes)? {
        let folder = nodes.join(other.to_string());
        // One without a configuration has no agent, and one that was fenced has nothing that runs.
        let Ok(config) = NodeConfig::read(&folder) else { continue };
        // An agent of a release that gave out no single ones may use any of them.
        let unknown = config.gpu_devices.len() < config.gpus as usize;
        let uuids = config.gpu_devices.into_iter().chain(all.iter().filter(|_| unknown).cloned());
        let uuids = uuids.map(|gpu| gpu.uuid);
        if other == node {
            own.extend(uuids);
        } else if !folder.join(FENCED_FILE).exists() {
            taken.extend(uuids);
        }
    }
    choose(all, &own, &taken, count as usize).map_err(|free| Error::Gpus { node, needed: count, free })
}

/// Else how many are free.
fn choose(all: &[Gpu], own: &[String], taken: &BTreeSet<String>, count: usize) -> Result<Vec<Gpu>, usize> {
    let mut free: Vec<&Gpu> = all.iter().filter(|gpu| !taken.contains(&gpu.uuid)).collect();
    free.sort_by_key(|gpu| !own.contains(&gpu.uuid));
    if free.len() < count { Err(free.len()) } else { Ok(free.into_iter().take(count).cloned().collect()) }
}

/// Nothing of the node runs: its GPUs may go to others, whenever its folder is removed.
pub(crate) fn release(folder: &Path) {
    if let Err(error) = std::fs::write(folder.join(FENCED_FILE), "") {
        // They stay the node's until its folder is removed.
        tracing::debug!(%error, folder = %folder.display(), "a fenced node could not be marked");
    }
}

/// The node is made again.
pub(crate) fn hold(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(FENCED_FILE));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(gpus: &[Gpu]) -> Vec<&str> {
        gpus.iter().map(|gpu| gpu.uuid.trim_start_matches("GPU-emulated-")).collect()
    }

    #[test]
    fn its_own_first_then_free_ones_and_never_anothers() {
        let all = neap_sandbox::emulated(4);
        let uuid = |n: u32| format!("GPU-emulated-{n}");
        let taken = BTreeSet::from([uuid(0), uuid(2)]);
        assert_eq!(names(&choose(&all, &[], &taken, 2).unwrap()), ["1", "3"]);
        assert_eq!(names(&choose(&all, &[uuid(3)], &taken, 1).unwrap()), ["3"]);
        assert_eq!(choose(&all, &[], &taken, 3), Err(2));
        // What it had before and another has now is the other's.
        assert_eq!(names(&choose(&all, &[uuid(2)], &taken, 1).unwrap()), ["1"]);
    }

    #[test]
    fn what_was_given_is_in_the_folders() {
        let nodes = tempfile::tempdir().unwrap();
        let all = neap_sandbox::emulated(2);
        let write = |node: u64, gpus: &[Gpu]| {
            let folder = nodes.path().join(node.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            let text = format!(
                r#"{{"node":{node},"installation":"i","server":"s","server_name":"s","ca_pem_path":"/c","join_token":"t",
                "cpus_milli":1,"memory_mb":1,"gpus":1,"work_dir":"/w","gpu_devices":{}}}"#,
                serde_json::to_string(gpus).unwrap()
            );
            std::fs::write(folder.join(neap_agent::NODE_FILE), text).unwrap();
            folder
        };
        let first = for_node(nodes.path(), NodeId(1), &all, 1).unwrap();
        let folder = write(1, &first);
        let second = for_node(nodes.path(), NodeId(2), &all, 1).unwrap();
        assert_eq!((names(&first), names(&second)), (vec!["0"], vec!["1"]));
        write(2, &second);
        assert!(for_node(nodes.path(), NodeId(3), &all, 1).is_err(), "both are given");
        assert_eq!(names(&for_node(nodes.path(), NodeId(1), &all, 1).unwrap()), ["0"], "it keeps its own");
        let old = write(9, &[]);
        assert!(for_node(nodes.path(), NodeId(1), &all, 1).is_err(), "whose GPUs are not known may have any");
        std::fs::remove_dir_all(old).unwrap();
        release(&folder);
        assert_eq!(names(&for_node(nodes.path(), NodeId(3), &all, 1).unwrap()), ["0"]);
        hold(&folder);
        assert!(for_node(nodes.path(), NodeId(3), &all, 1).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names(&for_node(nodes.path(), NodeId(3), &all, 1).unwrap()), ["0"]);
    }
}
