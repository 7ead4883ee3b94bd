//! On how many nodes a job runs, and how its processes find each other.

use neap_core::Problem;
use neap_core::documents::Distribution;

use crate::arm::errors::bad;
use crate::fields::Fields;

/// Processes that one node runs at most.
const PROCESSES_PER_NODE_MAX: i64 = 256;

pub(super) fn nodes(resources: &Fields<'_>, problems: &mut Vec<Problem>) -> u32 {
    let Some(count) = resources.integer("instanceCount", problems) else { return 1 };
    u32::try_from(count).ok().filter(|count| *count >= 1).unwrap_or_else(|| {
        problems.push(bad(
            format!("'instanceCount' is {count}; a job runs on at least one node."),
            &resources.place("instanceCount"),
        ));
        1
    })
}

/// `distribution` of a command job; `nodes` is how many it runs on.
pub(super) fn read(fields: &Fields<'_>, nodes: u32, problems: &mut Vec<Problem>) -> Option<Distribution> {
    let distribution = fields.object("distribution", problems);
    distribution.entries().next()?;
    let kind = distribution.text("distributionType", problems).unwrap_or("");
    let mut count = |key: &str, default: i64, least: i64, most: i64| {
        let asked = distribution.integer(key, problems).unwrap_or(default);
        if !(least..=most).contains(&asked) {
            problems.push(bad(
                format!("'{key}' is {asked}; it must be between {least} and {most}."),
                &distribution.place(key),
            ));
        }
        u32::try_from(asked.clamp(least, most)).unwrap_or(1)
    };
    match kind.to_ascii_lowercase().as_str() {
        "pytorch" => Some(Distribution::Pytorch {
            processes_per_node: count("processCountPerInstance", 1, 1, PROCESSES_PER_NODE_MAX),
        }),
        "mpi" => Some(Distribution::Mpi {
            processes_per_node: count("processCountPerInstance", 1, 1, PROCESSES_PER_NODE_MAX),
        }),
        "tensorflow" => {
            let most = i64::from(nodes) * PROCESSES_PER_NODE_MAX;
            let parameter_servers = count("parameterServerCount", 0, 0, most);
            let workers = count("workerCount", i64::from(nodes), 1, most);
            if workers.saturating_add(parameter_servers) < nodes {
                problems.push(bad(
                    format!(
                        "{nodes} nodes are asked for, but only {workers} workers and {parameter_servers} parameter \
                         servers to run on them: lower instanceCount, or raise workerCount."
                    ),
                    &distribution.place("workerCount"),
                ));
            }
            Some(Distribution::Tensorflow { workers, parameter_servers })
        }
        "ray" => {
            let port = |key: &str, problems: &mut Vec<Problem>| {
                let asked = distribution.integer(key, problems)?;
                let port = u16::try_from(asked).ok().filter(|port| *port > 0);
                if port.is_none() {
                    problems.push(bad(
                        format!("'{key}' is {asked}, which is no port."),
                        &distribution.place(key),
                    ));
                }
                port
            };
            Some(Distribution::Ray {
                port: port("port", problems),
                include_dashboard: distribution.flag("includeDashboard", problems).unwrap_or(false),
                dashboard_port: port("dashboardPort", problems),
                head_arguments: distribution.text("headNodeAdditionalArgs", problems).map(String::from),
                worker_arguments: distribution.text("workerNodeAdditionalArgs", problems).map(String::from),
            })
        }
        other => {
            problems.push(bad(
                format!("The distribution '{other}' is not known: PyTorch, TensorFlow, Mpi or Ray."),
                &distribution.place("distributionType"),
            ));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(asked: &Value, nodes: u32) -> Result<Option<Distribution>, Vec<String>> {
        let body = json!({"distribution": asked});
        let mut problems = Vec::new();
        let fields = Fields::of(Some(&body), "properties", &mut problems);
        let read = read(&fields, nodes, &mut problems);
        if problems.is_empty() { Ok(read) } else { Err(problems.into_iter().map(|p| p.message).collect()) }
    }

    #[test]
    fn every_kind() {
        for (asked, expect) in [
            (json!(null), None),
            (json!({}), None),
            (
                json!({"distributionType": "PyTorch", "processCountPerInstance": 2}),
                Some(Distribution::Pytorch { processes_per_node: 2 }),
            ),
            (json!({"distributionType": "Mpi"}), Some(Distribution::Mpi { processes_per_node: 1 })),
            (
                json!({"distributionType": "TensorFlow", "parameterServerCount": 1}),
                Some(Distribution::Tensorflow { workers: 3, parameter_servers: 1 }),
            ),
        ] {
            assert_eq!(check(&asked, 3), Ok(expect), "{asked}");
        }
        for (asked, expect) in [
            (json!({"distributionType": "Horovod"}), "'horovod' is not known"),
            (json!({"distributionType": "Mpi", "processCountPerInstance": 0}), "between 1 and 256"),
            (json!({"distributionType": "Ray", "port": 70000}), "no port"),
            (
                json!({"distributionType": "TensorFlow", "workerCount": 1}),
                "3 nodes are asked for, but only 1 workers",
            ),
        ] {
            let said = check(&asked, 3).unwrap_err();
            assert!(said.len() == 1 && said[0].contains(expect), "{asked}: {said:?}");
        }
    }
}
