//! Who the processes of a job are: how many, on which node, and what each is told in its variables. Pure.

use std::path::PathBuf;

use neap_protocol::{Distribution, Ranks};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What the launcher of one node must know. It travels in a variable that the job's own processes do not get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub ranks: Ranks,
    pub distribution: Option<Distribution>,
    /// A folder of the launcher's own, as the job sees it.
    pub run_dir: PathBuf,
    /// The working folder, as the job sees it.
    pub cwd: PathBuf,
    /// Nodes on one machine speak over its loopback interface.
    pub loopback: bool,
    /// The node's processes have a `/tmp` and shared memory of their own.
    pub apart: bool,
}

/// One process that is started on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub rank: u32,
    pub local_rank: u32,
    /// It serves the others and does not end by itself.
    pub serves: bool,
}

/// Of the attempt's ports, by their place: where processes of user code meet, where launchers do, Ray's two, and
/// from here on one for each TensorFlow task of the node.
const LINK: u16 = 1;
const RAY: u16 = 2;
const RAY_DASHBOARD: u16 = 3;
const TASKS: u16 = 4;

impl Plan {
    pub(crate) fn nodes(&self) -> u32 {
        u32::try_from(self.ranks.addresses.len()).unwrap_or(u32::MAX).max(1)
    }

    pub(crate) fn head(&self) -> &str {
        self.address(0)
    }

    pub(crate) fn address(&self, node: u32) -> &str {
        self.ranks.addresses.get(node as usize).map_or("127.0.0.1", String::as_str)
    }

    pub(crate) fn is_head(&self) -> bool {
        self.ranks.rank == 0
    }

    pub(crate) fn link_port(&self) -> u16 {
        self.ranks.port + LINK
    }

    pub(crate) fn ray_port(&self, asked: Option<u16>) -> u16 {
        asked.unwrap_or(self.ranks.port + RAY)
    }

    pub(crate) fn ray_dashboard_port(&self, asked: Option<u16>) -> u16 {
        asked.unwrap_or(self.ranks.port + RAY_DASHBOARD)
    }

    fn per_node(&self) -> u32 {
        match self.distribution {
            Some(Distribution::Pytorch { processes_per_node } | Distribution::Mpi { processes_per_node }) => {
                processes_per_node
            }
            Some(Distribution::Tensorflow { .. } | Distribution::Ray { .. }) | None => 1,
        }
    }

    /// How many processes there are on all nodes.
    pub(crate) fn world(&self) -> u32 {
        match self.distribution {
            Some(Distribution::Tensorflow { workers, parameter_servers }) => workers + parameter_servers,
            Some(Distribution::Pytorch { .. } | Distribution::Mpi { .. } | Distribution::Ray { .. })
            | None => self.nodes() * self.per_node(),
        }
    }

    /// The rank that speaks for the node in its log.
    pub(crate) fn first_rank(&self) -> u32 {
        self.ranks.rank * self.per_node()
    }

    /// What is started here, where each process runs the command.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let here = self.ranks.rank;
        match self.distribution {
            // In turn over the nodes, the workers first.
            Some(Distribution::Tensorflow { workers, .. }) => (here..self.world())
                .step_by(self.nodes() as usize)
                .zip(0..)
                .map(|(rank, local_rank)| Process { rank, local_rank, serves: rank >= workers })
                .collect(),
            Some(Distribution::Pytorch { .. } | Distribution::Mpi { .. } | Distribution::Ray { .. })
            | None => (0..self.per_node())
                .map(|local_rank| Process { rank: self.first_rank() + local_rank, local_rank, serves: false })
                .collect(),
        }
    }

    /// Whether there is more to do on this node than to run the command once.
    pub(crate) fn needs_launcher(&self) -> bool {
        match self.distribution {
            None => false,
            Some(Distribution::Pytorch { processes_per_node }) => processes_per_node > 1,
            Some(Distribution::Tensorflow { parameter_servers, .. }) => {
                parameter_servers > 0 || self.processes().len() != 1
            }
            Some(Distribution::Mpi { .. } | Distribution::Ray { .. }) => true,
        }
    }

    /// What every process of the node is told, in Azure's names.
    pub(crate) fn node_variables(&self) -> Vec<(String, String)> {
        let (head, port) = (self.head(), self.ranks.port);
        let mut all = vec![
            ("MASTER_ADDR", head.to_owned()),
            ("MASTER_PORT", port.to_string()),
            ("WORLD_SIZE", self.world().to_string()),
            ("NODE_RANK", self.ranks.rank.to_string()),
            ("LOCAL_WORLD_SIZE", self.processes().len().to_string()),
            ("AZUREML_NODE_COUNT", self.nodes().to_string()),
            ("AZ_BATCH_MASTER_NODE", format!("{head}:{port}")),
            ("AZ_BATCHAI_MPI_MASTER_NODE", head.to_owned()),
            ("AZ_BATCH_HOST_LIST", self.ranks.addresses.join(",")),
        ];
        if let Some(Distribution::Ray { port, .. }) = self.distribution {
            all.push(("RAY_ADDRESS", format!("{head}:{}", self.ray_port(port))));
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Which interface to speak over; a job may know better.
    pub(crate) fn interface_variables(&self) -> Vec<(String, String)> {
        let names = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"];
        names.iter().filter(|_| self.loopback).map(|name| ((*name).to_owned(), "lo".to_owned())).collect()
    }

    /// What tells one process from the others.
    pub(crate) fn process_variables(&self, process: Process) -> Vec<(String, String)> {
        let mut all = vec![
            ("RANK".to_owned(), process.rank.to_string()),
            ("LOCAL_RANK".to_owned(), process.local_rank.to_string()),
        ];
        if let Some(Distribution::Tensorflow { workers, parameter_servers }) = self.distribution {
            all.push(("TF_CONFIG".to_owned(), self.tf_config(process.rank, workers, parameter_servers)));
        }
        all
    }

    fn tf_config(&self, rank: u32, workers: u32, servers: u32) -> String {
        let place = |rank: u32| {
            let (node, local) = (rank % self.nodes(), rank / self.nodes());
            let port = u32::from(self.ranks.port + TASKS) + local;
            format!("{}:{port}", self.address(node))
        };
        let mut cluster = json!({"worker": (0..workers).map(place).collect::<Vec<_>>()});
        if servers > 0 {
            cluster["ps"] = (workers..workers + servers).map(place).collect();
        }
        let task = if rank < workers {
            json!({"type": "worker", "index": rank})
        } else {
            json!({"type": "ps", "index": rank - workers})
        };
        json!({"cluster": cluster, "task": task, "environment": "cloud"}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rank: u32, nodes: u32, distribution: Option<Distribution>) -> Plan {
        Plan {
            ranks: Ranks {
                rank,
                nodes: (1..=u64::from(nodes)).collect(),
                addresses: (1..=nodes).map(|node| format!("127.64.0.{node}")).collect(),
                port: 12_000,
                secret: neap_protocol::Secret::new("s"),
            },
            distribution,
            run_dir: "/tmp/.neap".into(),
            cwd: "/wd".into(),
            loopback: true,
            apart: true,
        }
    }

    fn check(plan: &Plan, launcher: bool, world: u32, ranks: &[u32]) {
        assert_eq!((plan.needs_launcher(), plan.world()), (launcher, world), "{plan:?}");
        assert_eq!(
            plan.processes().iter().map(|process| process.rank).collect::<Vec<_>>(),
            ranks,
            "{plan:?}"
        );
    }

    #[test]
    fn every_process_has_a_rank() {
        let torch = |processes_per_node| Some(Distribution::Pytorch { processes_per_node });
        let tensorflow =
            |workers, parameter_servers| Some(Distribution::Tensorflow { workers, parameter_servers });
        check(&plan(1, 2, None), false, 2, &[1]);
        check(&plan(1, 2, torch(1)), false, 2, &[1]);
        check(&plan(1, 2, torch(2)), true, 4, &[2, 3]);
        check(&plan(0, 1, torch(3)), true, 3, &[0, 1, 2]);
        check(&plan(1, 2, tensorflow(2, 0)), false, 2, &[1]);
        check(&plan(0, 2, tensorflow(3, 0)), true, 3, &[0, 2]);
        check(&plan(1, 2, tensorflow(1, 1)), true, 2, &[1]);
        check(&plan(0, 2, tensorflow(2, 1)), true, 3, &[0, 2]);
    }

    #[test]
    fn variables_are_azures() {
        let told = plan(1, 2, Some(Distribution::Pytorch { processes_per_node: 2 }));
        let text = |pairs: Vec<(String, String)>| {
            pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            text(told.node_variables()),
            "MASTER_ADDR=127.64.0.1 MASTER_PORT=12000 WORLD_SIZE=4 NODE_RANK=1 LOCAL_WORLD_SIZE=2 \
             AZUREML_NODE_COUNT=2 AZ_BATCH_MASTER_NODE=127.64.0.1:12000 AZ_BATCHAI_MPI_MASTER_NODE=127.64.0.1 \
             AZ_BATCH_HOST_LIST=127.64.0.1,127.64.0.2"
        );
        assert_eq!(text(told.process_variables(told.processes()[1])), "RANK=3 LOCAL_RANK=1");
    }

    #[test]
    fn tf_config() {
        let told = plan(0, 2, Some(Distribution::Tensorflow { workers: 2, parameter_servers: 1 }));
        let read = |process: Process| -> serde_json::Value {
            let all = told.process_variables(process);
            let (_, text) = all.iter().find(|(name, _)| name == "TF_CONFIG").unwrap();
            serde_json::from_str(text).unwrap()
        };
        let cluster = json!({"worker": ["127.64.0.1:12004", "127.64.0.2:12004"], "ps": ["127.64.0.1:12005"]});
        let [worker, server] = told.processes()[..] else { panic!("{told:?}") };
        assert_eq!(
            read(worker),
            json!({"cluster": cluster, "task": {"type": "worker", "index": 0}, "environment": "cloud"})
        );
        assert_eq!(
            read(server),
            json!({"cluster": cluster, "task": {"type": "ps", "index": 0}, "environment": "cloud"})
        );
    }
}
