//! What a benchmark asks of the server: an environment, a cluster, jobs; and how it waits for nodes and jobs.

use super::clock;
use super::installation::Installation;
use super::wire::Wire;
use crate::failure::{Failure, Outcome};
use crate::names;
use neap_spec::Scope;
use serde_json::{Value, json};
use std::time::Duration;

const VERSION: &str = "api-version=2024-10-01";
/// Between two looks at nodes that are awaited.
const POLL: Duration = Duration::from_millis(5);
/// Between two looks at how many jobs are left: a look costs what is being measured.
const LOOK: Duration = Duration::from_millis(20);
/// Nodes that have not come or gone by then never will.
const NODES_PATIENCE: Duration = Duration::from_secs(60);
/// Jobs of which none has ended for this long are stuck.
const STALL: Duration = Duration::from_secs(60);
const LIST_ROWS: u32 = 1_000;

/// Sizes by their cores.
const SIZES: &[(u32, &str)] = &[
    (2, "STANDARD_D2_V3"),
    (4, "STANDARD_D4_V3"),
    (8, "STANDARD_D8_V3"),
    (16, "STANDARD_D16_V3"),
    (32, "STANDARD_D32_V3"),
    (64, "STANDARD_D64_V3"),
];
/// The most jobs that fit side by side on a node of the largest of them.
pub const SIDE_BY_SIDE_MAX: u32 = 64;

/// How many nodes, of what size.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub size: &'static str,
    pub min: u32,
    pub max: u32,
    pub idle_s: u32,
}

impl Shape {
    pub const fn small(min: u32, max: u32, idle_s: u32) -> Self {
        Self { size: SIZES[0].1, min, max, idle_s }
    }
}

/// The smallest size on which `jobs` fit side by side, and the cores that each may ask for so that no more do.
pub fn share(jobs: u32) -> (&'static str, f64) {
    let (cores, size) =
        SIZES.iter().find(|(cores, _)| *cores >= jobs).copied().unwrap_or(SIZES[SIZES.len() - 1]);
    let milli = cores * 1000 / jobs.max(1);
    (size, f64::from(milli) / 1000.0)
}

/// One cluster of the measured server, with the names that this benchmark uses.
#[derive(Debug)]
pub struct Workspace {
    id: String,
    own: String,
    environment: String,
    pub cluster: String,
    /// Job names begin with it, so that no two benchmarks meet.
    prefix: String,
}

impl Workspace {
    /// Works on a cluster of this shape. In a server that stays, the cluster goes afterwards, whatever happened.
    pub fn with_cluster<T>(
        installation: &Installation<'_>,
        shape: Shape,
        work: impl FnOnce(&Self, &mut Wire) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut wire = installation.wire()?;
        let workspace = Self::prepare(installation, &mut wire, shape)?;
        let outcome = work(&workspace, &mut wire);
        if installation.own {
            return outcome;
        }
        let left =
            Wire::open(&installation.address.undisturbed()).and_then(|mut wire| workspace.leave(&mut wire));
        let value = outcome?;
        left.map(|()| value)
    }

    /// Registers the environment and creates the cluster.
    pub fn prepare(installation: &Installation<'_>, wire: &mut Wire, shape: Shape) -> Outcome<Self> {
        let mark = names::uuid()?[..8].to_owned();
        let known = &installation.connection;
        let scope = Scope {
            subscription_id: known.subscription_id.clone(),
            resource_group: known.resource_group.clone(),
            workspace: known.workspace.clone(),
        };
        let workspace = Self {
            id: scope.workspace_id(),
            own: format!(
                "/neap/v1/subscriptions/{}/resourceGroups/{}/workspaces/{}",
                scope.subscription_id, scope.resource_group, scope.workspace
            ),
            environment: format!("{}/environments/neap-bench/versions/1", scope.workspace_id()),
            cluster: format!("bench{mark}"),
            prefix: format!("bench-{mark}"),
        };
        let environment = json!({"properties": {"image": "ubuntu:24.04", "osType": "Linux"}});
        wire.put(&format!("{}?{VERSION}", workspace.environment), &environment)?;
        workspace.create_cluster(wire, &workspace.cluster, shape)?;
        Ok(workspace)
    }

    pub fn create_cluster(&self, wire: &mut Wire, name: &str, shape: Shape) -> Outcome<()> {
        let body = json!({"properties": {"computeType": "AmlCompute", "properties": {
            "vmSize": shape.size,
            "scaleSettings": {
                "minNodeCount": shape.min,
                "maxNodeCount": shape.max,
                "nodeIdleTimeBeforeScaleDown": format!("PT{}S", shape.idle_s),
            },
        }}});
        wire.put(&self.cluster_path(name), &body).map(drop)
    }

    /// The cluster and its nodes go, and what still waits on it. What was done stays in the ledger.
    fn leave(&self, wire: &mut Wire) -> Outcome<()> {
        wire.delete(&self.cluster_path(&self.cluster))
    }

    pub fn cluster_path(&self, name: &str) -> String {
        format!("{}/computes/{name}?{VERSION}", self.id)
    }

    /// The same for every job: the name is in the path. `cpus` is the share of a node; without it, the whole.
    pub fn job_body(&self, command: &str, cpus: Option<f64>) -> Vec<u8> {
        let mut properties = json!({
            "jobType": "Command",
            "experimentName": "neap-bench",
            "command": command,
            "computeId": format!("{}/computes/{}", self.id, self.cluster),
            "environmentId": self.environment,
        });
        if let Some(cpus) = cpus {
            properties["resources"] = json!({"instanceCount": 1, "properties": {"neap": {"cpus": cpus}}});
        }
        json!({"properties": properties}).to_string().into_bytes()
    }

    pub fn job_name(&self, number: u64) -> String {
        format!("{}-{number}", self.prefix)
    }

    pub fn job_path(&self, name: &str) -> String {
        format!("{}/jobs/{name}?{VERSION}", self.id)
    }

    pub fn log_path(&self, name: &str) -> String {
        format!("{}/jobs/{name}/log?follow=true", self.own)
    }

    /// Waits until the cluster has exactly `wanted` nodes and all of them are idle.
    pub fn wait_for_idle_nodes(
        &self,
        installation: &Installation<'_>,
        wire: &mut Wire,
        wanted: u32,
    ) -> Outcome<()> {
        let path = format!("{}/computes/{}/nodes", self.own, self.cluster);
        let begun = clock::now();
        loop {
            installation.bench().interrupt.check()?;
            let answer = wire.get(&path)?;
            let nodes = answer["value"].as_array().map(Vec::as_slice).unwrap_or_default();
            if nodes.len() == wanted as usize && nodes.iter().all(|node| node["state"] == "idle") {
                return Ok(());
            }
            if begun.elapsed() > NODES_PATIENCE {
                let states: Vec<String> =
                    nodes.iter().map(|node| format!("{}: {}", node["state"], node["reason"])).collect();
                return Err(Failure::failed(format!(
                    "{wanted} idle nodes were waited for and there are {}: {}",
                    nodes.len(),
                    states.join("; ")
                )));
            }
            clock::pause(POLL);
        }
    }

    /// Waits until the server has no job to do. It asks for two numbers, not for every job.
    pub fn wait_for_no_jobs(&self, installation: &Installation<'_>, wire: &mut Wire) -> Outcome<()> {
        let (mut before, mut since) = (u64::MAX, clock::now());
        loop {
            installation.bench().interrupt.check()?;
            let status = wire.get("/neap/v1/status")?;
            let count = |key: &str| status["jobs"][key].as_u64().unwrap_or(u64::MAX >> 1);
            let left = count("queued") + count("running");
            if left == 0 {
                return Ok(());
            }
            if left != before {
                (before, since) = (left, clock::now());
            }
            if since.elapsed() > STALL {
                return Err(Failure::failed(format!("{left} jobs are left and none has ended for a minute")));
            }
            clock::pause(LOOK);
        }
    }

    /// Every one of the `jobs` jobs of this benchmark must have completed.
    pub fn check_completed(&self, wire: &mut Wire, jobs: u64) -> Outcome<()> {
        let mut next = Some(format!("{}/jobs?{VERSION}&$top={LIST_ROWS}&listViewType=All", self.id));
        let mut completed = 0;
        while let Some(path) = next.take().filter(|_| completed < jobs) {
            let page = wire.get(&path)?;
            for job in page["value"].as_array().into_iter().flatten() {
                let name = job["name"].as_str().unwrap_or_default();
                if !name.starts_with(&self.prefix) {
                    continue;
                }
                if job["properties"]["status"] != "Completed" {
                    return Err(not_completed(job));
                }
                completed += 1;
            }
            next = page["nextLink"].as_str().filter(|link| !link.is_empty()).map(path_of);
        }
        if completed != jobs {
            return Err(Failure::failed(format!(
                "{jobs} jobs were submitted and {completed} have completed"
            )));
        }
        Ok(())
    }

    pub fn check_job_completed(&self, wire: &mut Wire, name: &str) -> Outcome<()> {
        let job = wire.get(&self.job_path(name))?;
        if job["properties"]["status"] == "Completed" { Ok(()) } else { Err(not_completed(&job)) }
    }
}

fn not_completed(job: &Value) -> Failure {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let properties = &job["properties"];
    let mut failure = Failure::failed(format!(
        "job {} did not complete: it is {}",
        text(&job["name"]),
        text(&properties["status"])
    ));
    failure.details.extend(Some(text(&properties["error"]["message"])).filter(|text| !text.is_empty()));
    failure
}

/// A link without its server: this one is asked whatever name it goes by.
fn path_of(link: &str) -> String {
    let rest = link.split_once("://").map_or(link, |(_, rest)| rest);
    rest.find('/').map_or("/", |slash| &rest[slash..]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{SIDE_BY_SIDE_MAX, SIZES, share};

    #[test]
    fn exactly_so_many_jobs_fit_on_a_node() {
        for jobs in 1..=SIDE_BY_SIDE_MAX {
            let (size, cpus) = share(jobs);
            let cores = SIZES.iter().find(|(_, name)| *name == size).unwrap().0;
            let milli = (cpus * 1000.0).round() as u32;
            assert_eq!(cores * 1000 / milli, jobs, "{jobs} on {size} with {cpus}");
        }
    }

    #[test]
    fn a_link_is_asked_of_the_same_server() {
        assert_eq!(super::path_of("https://h:1/a/b?c=d"), "/a/b?c=d");
        assert_eq!(super::path_of("/a/b"), "/a/b");
    }
}
