//! `status`: the server in a few numbers.

use std::collections::BTreeMap;

use axum::response::Response;
use neap_core::Refusal;
use serde_json::json;

use crate::app::App;
use crate::ask::Ask;
use crate::reply;

pub(crate) fn get(app: &App, ask: &Ask) -> Result<Response, Refusal> {
    let state = app.state();
    let mut nodes: BTreeMap<&'static str, u32> = BTreeMap::new();
    for node in state.nodes.values() {
        *nodes.entry(node.word()).or_default() += 1;
    }
    let running: usize = state.clusters.values().map(|cluster| cluster.active.len()).sum();
    let seq = *app.control.changes().borrow();
    Ok(reply::ok(&json!({
        "version": app.server.version,
        "installation_id": app.installation.id,
        "subscription_id": app.installation.subscription_id,
        "pid": app.server.pid,
        "started": app.server.started.rfc3339(),
        "uptime_ms": app.now().since(app.server.started),
        "url": ask.base,
        "read_only": app.control.ledger_closed(),
        "stopping": state.draining.is_some(),
        "seq": seq,
        "workspaces": state.workspaces.len(),
        "clusters": state.clusters.len(),
        "nodes": nodes,
        "jobs": {"queued": state.jobs.len() - running, "running": running},
        "resident_bytes": resident_bytes(),
        "isolation": app.server.isolation,
        "isolation_missing": app.server.isolation_missing,
    })))
}

/// Memory of this process as the kernel counts it; 0 where it does not say.
fn resident_bytes() -> u64 {
    std::fs::read_to_string("/proc/self/status").ok().and_then(|text| read_resident(&text)).unwrap_or(0)
}

fn read_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_words() {
        assert_eq!(read_resident("Name:\tneap\nVmRSS:\t   10240 kB\n"), Some(10_485_760));
        assert_eq!(read_resident("Name:\tneap\n"), None);
    }
}
