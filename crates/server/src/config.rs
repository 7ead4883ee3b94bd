//! `config.yaml` in the data folder: everything has a default, and an unknown key is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neap_core::settings::{ProviderSettings, Settings};
use neap_core::{Capacity, catalogue};
use neap_faces::{EnvironmentRules, MappedEnvironment};
use neap_protocol::Isolation;
use neap_providers::{EngineKind, EngineSettings, Eviction};
use serde::Deserialize;

mod check;
mod disk;
mod limits;
mod locations;
mod outgoing;
mod read;
mod sizes;

pub use disk::{DiskRules, DiskSpace, StorageRules};
pub use limits::Limits;
pub use locations::{ChargeRules, LocationRule};
pub use outgoing::OutgoingConfig;
pub use sizes::{PriceRule, SizeRule};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where clusters and workspaces may be; by default Azure's public regions.
    pub locations: Option<Vec<LocationRule>>,
    /// Sizes beside the catalogue's, and in place of those of the same name.
    pub sizes: Vec<SizeRule>,
    /// Other prices for sizes of the catalogue, in USD an hour.
    pub prices: BTreeMap<String, PriceRule>,
    /// What is paid for beside nodes.
    pub charges: ChargeRules,
    /// The location of the default workspace; absent: `eastus`, or the first of `locations` that do not have it.
    pub default_location: Option<String>,
    /// How long a node may be unheard before its work may run elsewhere.
    pub lease_ttl_seconds: u64,
    /// Between the polite and the final signal when an attempt is stopped.
    pub stop_grace_seconds: u64,
    /// Who is in which team: limits may be set on what a team has running ('neap quota user --team').
    pub teams: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Stdout and stderr of an attempt are kept up to this many bytes: head and tail.
    pub log_bytes_max: u64,
    /// How often checkpoint folders are saved while their jobs run; 0: only when a job is stopped.
    pub checkpoint_interval_seconds: u64,
    pub limits: Limits,
    /// Other names under which clients reach this server, as URLs: tokens may be made for them.
    pub audiences: Vec<String>,
    pub metrics: MetricsRule,
    pub alerts: AlertRules,
    pub local: Local,
    pub storage: StorageRules,
    pub inputs: InputRules,
    pub outputs: OutputRules,
    pub outgoing: OutgoingConfig,
    pub environments: Environments,
}

/// What jobs may read of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InputRules {
    /// Folders that jobs may name (`file:///…`, plain paths, datastores on local folders).
    pub allow: Vec<PathBuf>,
    /// Beginnings of addresses, and the local copies that stand for what lies below them.
    pub map: BTreeMap<String, PathBuf>,
}

/// What jobs may write of this machine, besides the data folder through the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputRules {
    /// Folders that datastores on local folders may be in to be written to.
    pub allow: Vec<PathBuf>,
}

/// What jobs run in.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Environments {
    /// The container engine of the nodes.
    pub engine: EngineKind,
    /// Its socket, where it is not at its usual place.
    pub socket: Option<PathBuf>,
    pub isolation: ContainerRule,
    /// Folders whose image archives jobs may name (`image: file:/…`).
    pub archives: Vec<PathBuf>,
    /// What stands for environments of Azure's registries, by name or reference; `*` stands for anything.
    pub map: BTreeMap<String, Mapped>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerRule {
    /// A job whose container cannot be had runs on the host, and says so.
    #[default]
    HostAllowed,
    /// Every job runs in a container or not at all.
    Container,
}

/// What stands for an environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mapped {
    pub image: Option<String>,
    /// A conda file: its path (from the data folder), or its text.
    pub conda: Option<String>,
    pub pip: Option<Vec<String>>,
}

/// Who may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsRule {
    /// Anyone who reaches the port; otherwise a token is needed.
    pub open: bool,
}

/// When somebody is told, and where.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertRules {
    /// Notices are posted here. It may hold a secret, so it is never shown.
    pub webhook: Option<String>,
    /// A program and its arguments; each notice is text on its standard input.
    pub command: Vec<String>,
    /// The oldest job has waited this long. Also what `health` goes by.
    pub queue_delay_seconds: u64,
    /// There have been more nodes than the minimum for this long.
    pub above_min_seconds: u64,
    /// So many nodes in a row did not start.
    pub provisioning_failures: u32,
    /// So many nodes of a cluster were taken back within so long.
    pub evictions: u32,
    pub evictions_within_seconds: u64,
    /// A job failure is over after this long without another, or when a job completes.
    pub job_failure_quiet_seconds: u64,
    /// As much of a limit on cores or clusters is held, in percent; 0 tells nobody.
    pub quota_percent: u32,
    /// A condition must be over for this long before its alert resolves.
    pub resolve_seconds: u64,
}

impl std::fmt::Debug for AlertRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlertRules").field("webhook", &self.webhook.is_some()).finish_non_exhaustive()
    }
}

impl Default for AlertRules {
    fn default() -> Self {
        Self {
            webhook: None,
            command: Vec::new(),
            queue_delay_seconds: 600,
            above_min_seconds: 24 * 3600,
            provisioning_failures: 3,
            evictions: 5,
            evictions_within_seconds: 600,
            job_failure_quiet_seconds: 3600,
            quota_percent: 80,
            resolve_seconds: 30,
        }
    }
}

impl AlertRules {
    pub fn rules(&self) -> neap_control::alerts::Rules {
        neap_control::alerts::Rules {
            queue_delay_ms: self.queue_delay_seconds.saturating_mul(1000),
            above_min_ms: self.above_min_seconds.saturating_mul(1000),
            provisioning_failures: self.provisioning_failures,
            evictions: self.evictions,
            evictions_within_ms: self.evictions_within_seconds.saturating_mul(1000),
            job_failure_quiet_ms: self.job_failure_quiet_seconds.saturating_mul(1000),
            quota_percent: self.quota_percent,
            resolve_ms: self.resolve_seconds.saturating_mul(1000),
        }
    }
}

/// The local provider.
/// What is said wherever somebody asks how jobs are separated, where the operator has switched that off.
pub const NOT_ISOLATED: &str = "Jobs are not isolated: `local.isolation` is `off` in config.yaml. They run as the user \
    of this server, with nothing between them and this machine.";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Local {
    /// Nodes on this machine, over all clusters.
    pub max_nodes: u32,
    pub capacity: CapacityRule,
    pub isolation: IsolationRule,
    /// Folders of this machine that isolated jobs see, read-only, beside the system's own (`/usr`, `/etc`, `/opt`).
    pub visible_paths: Vec<PathBuf>,
    /// Folders of this machine that every isolated job may write to, as far as their modes allow it: scratch space that
    /// jobs share.
    pub shared_paths: Vec<PathBuf>,
    /// `host:port` that agents dial in place of the server's own: a proxy that a test puts between them.
    pub agent_dial: Option<String>,
    /// So many GPUs are pretended; those of the machine are then not used.
    pub emulate_gpus: u32,
    /// Nodes are only written down, and their agents are played by whoever measures the server.
    pub simulated_agents: bool,
    /// How low-priority nodes are taken back; absent: nobody does it.
    pub eviction: Option<EvictionRule>,
    /// Disk that one attempt may take, in MB; absent: half of what is free when the server starts.
    pub disk_mb_per_job: Option<u64>,
    /// Disk that jobs leave free, in MB; of a small disk at most a sixteenth.
    pub disk_reserve_mb: u64,
}

/// Low-priority nodes are taken back after a random while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvictionRule {
    /// How long one lives on average, as `PT2H`.
    #[serde(deserialize_with = "duration_ms")]
    pub mean: u64,
    /// From the word to the end, as `PT30S`.
    #[serde(deserialize_with = "duration_ms")]
    pub notice: u64,
}

impl Default for EvictionRule {
    fn default() -> Self {
        Self { mean: 0, notice: 30_000 }
    }
}

impl EvictionRule {
    pub fn eviction(self) -> Eviction {
        Eviction { mean_ms: self.mean, notice_ms: self.notice }
    }
}

fn duration_ms<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)
        .map_err(|_| serde::de::Error::custom("must be a duration, as PT30S or PT2H"))?;
    let ms = neap_faces::duration_ms(&text).map_err(serde::de::Error::custom)?;
    u64::try_from(ms).map_err(|_| serde::de::Error::custom(format!("'{text}' is less than nothing")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CapacityRule {
    /// A size is what its name says; nodes may overcommit the machine.
    Nominal,
    /// Real cores and memory are counted.
    Strict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolationRule {
    /// As much as this machine has.
    Full,
    /// A process group and nothing else.
    Off,
}

impl Default for Config {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            locations: None,
            sizes: Vec::new(),
            prices: BTreeMap::new(),
            charges: ChargeRules::default(),
            default_location: None,
            lease_ttl_seconds: settings.lease_ttl_ms / 1000,
            stop_grace_seconds: settings.stop_grace_ms / 1000,
            teams: BTreeMap::new(),
            log_bytes_max: 256 * 1024 * 1024,
            checkpoint_interval_seconds: 60,
            limits: Limits::default(),
            audiences: Vec::new(),
            metrics: MetricsRule::default(),
            alerts: AlertRules::default(),
            local: Local::default(),
            storage: StorageRules::default(),
            inputs: InputRules::default(),
            outputs: OutputRules::default(),
            outgoing: OutgoingConfig::default(),
            environments: Environments::default(),
        }
    }
}

impl Default for Local {
    fn default() -> Self {
        Self {
            max_nodes: 64,
            capacity: CapacityRule::Nominal,
            isolation: IsolationRule::Full,
            visible_paths: Vec::new(),
            shared_paths: Vec::new(),
            agent_dial: None,
            emulate_gpus: 0,
            simulated_agents: false,
            eviction: None,
            disk_mb_per_job: None,
            disk_reserve_mb: 256,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("reading {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path} is not valid:{}", .problems.iter().map(|problem| format!("\n  - {problem}")).collect::<String>())]
    Invalid { path: String, problems: Vec<String> },
}

impl Config {
    /// The file's configuration; no file is the default one.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(ConfigError::Read { path: shown, source }),
        };
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        read::read(&text).map_err(|problems| ConfigError::Invalid { path: shown, problems })
    }

    /// Where clusters and workspaces may be, as the core writes it.
    fn location_names(&self) -> Vec<String> {
        match &self.locations {
            Some(rules) => rules.iter().map(LocationRule::canonical).collect(),
            None => catalogue::regions().map(String::from).collect(),
        }
    }

    /// Where the workspace is that a fresh server makes.
    pub fn default_location(&self) -> String {
        if let Some(location) = &self.default_location {
            return location.clone();
        }
        let names = self.location_names();
        let usual = names.iter().position(|name| name == "eastus").unwrap_or(0);
        names.into_iter().nth(usual).unwrap_or_default()
    }

    /// What jobs may reach of this machine.
    pub fn data_rules(&self) -> neap_faces::DataRules {
        neap_faces::DataRules {
            inputs_allow: self.inputs.allow.clone(),
            outputs_allow: self.outputs.allow.clone(),
            inputs_map: self.inputs.map.clone().into_iter().collect(),
        }
    }

    /// What of it decides something.
    pub fn settings(&self, machine: Capacity) -> Settings {
        let mut settings = Settings {
            lease_ttl_ms: self.lease_ttl_seconds.saturating_mul(1000),
            stop_grace_ms: self.stop_grace_seconds.saturating_mul(1000),
            own: self.own().into(),
            charges: self.charges.charges(),
            provider: ProviderSettings {
                name: "local".into(),
                machine: Some(machine),
                nodes_max: self.local.max_nodes,
                strict: self.local.capacity == CapacityRule::Strict,
            },
            teams: self.teams.clone(),
            waiting_jobs_max: self.limits.waiting_jobs,
            ..Settings::default()
        };
        if let Some(locations) = &self.locations {
            settings.locations = self.location_names().into();
            settings.places = locations::places(locations).into();
        }
        settings
    }

    pub fn engine(&self) -> EngineSettings {
        EngineSettings { kind: self.environments.engine, socket: self.environments.socket.clone() }
    }

    /// What the faces go by. Conda files are read now; `folder` is the data folder.
    pub fn environment_rules(&self, folder: &Path) -> Result<EnvironmentRules, ConfigError> {
        let mut map = Vec::new();
        for (pattern, mapped) in &self.environments.map {
            let packages =
                match (&mapped.conda, &mapped.pip) {
                    (Some(text), _) if text.contains('\n') => Some(text.clone()),
                    (Some(file), _) => {
                        let path = folder.join(file);
                        let read = std::fs::read_to_string(&path);
                        Some(read.map_err(|source| ConfigError::Read {
                            path: path.display().to_string(),
                            source,
                        })?)
                    }
                    (None, Some(lines)) => Some(lines.join("\n")),
                    (None, None) => None,
                };
            map.push(MappedEnvironment { pattern: pattern.clone(), image: mapped.image.clone(), packages });
        }
        map.sort_by_key(|mapped| std::cmp::Reverse(mapped.pattern.len()));
        Ok(EnvironmentRules {
            map,
            archives: self.environments.archives.clone(),
            container_only: self.environments.isolation == ContainerRule::Container,
            engine_sockets: self.engine().sockets(|name| std::env::var(name).ok()),
            // Nodes of this machine have the server's path.
            conda_programs: std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .map(|folder| folder.join("micromamba"))
                .collect(),
        })
    }

    /// What separates jobs here, in words, and sentences about what does not.
    pub fn isolation_of(&self, machine: &neap_sandbox::Capabilities) -> (Vec<String>, Vec<String>) {
        if self.isolation() == Isolation::Off {
            return (Vec::new(), vec![NOT_ISOLATED.to_owned()]);
        }
        let have = machine.have.iter().map(|word| (*word).to_owned()).collect();
        (have, machine.missing.iter().cloned().chain(neap_sandbox::net::hindrances()).collect())
    }

    pub fn isolation(&self) -> Isolation {
        match self.local.isolation {
            IsolationRule::Full => Isolation::Full,
            IsolationRule::Off => Isolation::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use neap_core::MicroUsd;

    use super::*;

    fn load(text: &str) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path)
    }

    #[test]
    fn a_file_changes_what_it_names_and_nothing_else() {
        let config = load("local:\n  max_nodes: 3\n  capacity: strict\n").unwrap();
        assert_eq!((config.local.max_nodes, config.local.capacity), (3, CapacityRule::Strict));
        assert_eq!(config.lease_ttl_seconds, 120);
        assert_eq!(load("# nothing\n").unwrap().local.max_nodes, 64);
        let limited = load("limits: {requests_per_second: 200}\n").unwrap().limits;
        assert_eq!(
            (limited.requests_per_second, limited.burst, limited.requests_in_flight),
            (200, None, 1024)
        );
    }

    #[test]
    fn nodes_are_taken_back_if_asked_for() {
        assert_eq!(load("lease_ttl_seconds: 9\n").unwrap().local.eviction, None);
        let rule = load("local: {eviction: {mean: PT2H, notice: PT45S}}\n").unwrap().local.eviction;
        assert_eq!(
            rule.map(EvictionRule::eviction),
            Some(Eviction { mean_ms: 7_200_000, notice_ms: 45_000 })
        );
        let rule = load("local: {eviction: {mean: PT90S}}\n").unwrap().local.eviction.unwrap();
        assert_eq!((rule.mean, rule.notice), (90_000, 30_000));
        for wrong in ["mean: 2h", "mean: PT0S", "mean: -PT1S", "notice: PT1S", "mean: PT1S, often: 1"] {
            assert!(load(&format!("local: {{eviction: {{{wrong}}}}}\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn own_sizes_and_prices() {
        let text = "sizes:\n- {name: Rack-8x, cores: 64, memory_gb: 512, gpus: 8, price: 4.5, low_priority_price: 1.25, locations: [The Cellar]}\n\
                    - {name: Desk, family: desks, cores: 8, memory_gb: 31.5}\nprices: {Standard_DS3_v2: {dedicated: 0.1}}\nlocations: [thecellar]\n";
        let own = load(text).unwrap().settings(Capacity::default()).own;
        let rack = own.find("rack-8X").unwrap();
        assert_eq!(rack.capacity, Capacity { cpus_milli: 64_000, memory_mb: 524_288, gpus: 8 });
        assert_eq!(
            (rack.dedicated_price, rack.low_priority_price),
            (Some(MicroUsd(4_500_000)), Some(MicroUsd(1_250_000)))
        );
        assert!(rack.is_in("thecellar") && &*rack.family == "Rack-8x");
        let desk = own.find("desk").unwrap();
        assert_eq!(
            (&*desk.family, desk.capacity.memory_mb, desk.low_priority_capable),
            ("desks", 32_256, false)
        );
        assert_eq!(own.find("Standard_DS3_v2").unwrap().dedicated_price, Some(MicroUsd(100_000)));
        let wrong = load("sizes:\n- {name: 'a b', cores: 0, memory_gb: 1, price: -1}\n- {name: c, cores: 1, memory_gb: 1}\n- {name: C, cores: 1, memory_gb: 1}\nprices: {Nope: {}}\n")
            .unwrap_err()
            .to_string();
        for part in [
            "line 2: sizes[0].name: must be 1 to 64 letters",
            "line 2: sizes[0].cores: must be 1 to 100000",
            "line 2: sizes[0].price: must be 0 to 1000000 USD an hour",
            "line 4: sizes[2].name: 'C' is there twice",
            "line 5: prices.Nope: is not in the catalogue",
        ] {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
        assert_eq!(wrong.matches("twice").count(), 1, "{wrong}");
        assert!(load("sizes: [{name: a, memory_gb: 1}]\n").is_err(), "cores must be said");
        let wrong = load("sizes: [{name: a, family: '', cores: 1, memory_gb: 1, locations: [moon]}]\n");
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.contains("sizes[0].family: must be 1 to 64"), "{wrong}");
        assert!(wrong.contains("sizes[0].locations[0]: 'moon' is no location here"), "{wrong}");
    }

    #[test]
    fn locations_with_more_than_a_name() {
        let text = "locations:\n- westus\n- {name: The Cellar, max_nodes: 3, max_cores: 40, price_factor: 1.5, prices: {Desk: {dedicated: 1}}, latency_ms: {West US: 20}}\n\
                    charges: {storage_gb_month: 0.02, transfer_gb: 0.01}\n";
        let settings = load(text).unwrap().settings(Capacity::default());
        assert_eq!(&*settings.locations, ["westus", "thecellar"]);
        let cellar = &settings.places["thecellar"];
        assert_eq!((cellar.nodes_max, cellar.cores_max, cellar.price_ppm), (Some(3), Some(40), 1_500_000));
        assert_eq!(settings.latency_ms("westus", "thecellar"), Some(20));
        assert_eq!(settings.charges.transfer_gb, MicroUsd(10_000));
        assert!(!settings.places.contains_key("westus"));
        let wrong = load("locations:\n- a\n- A\n- {name: b, price_factor: -1, latency_ms: {c: 1}, prices: {X: {dedicated: -1}}}\ncharges: {transfer_gb: -1}\n")
            .unwrap_err()
            .to_string();
        for part in [
            "line 3: locations[1]: 'a' is there twice",
            "line 4: locations[2].price_factor: must be 0 to 1000",
            "locations[2].latency_ms.c: 'c' is no location here",
            "locations[2].prices.X.dedicated: must be 0 to",
            "line 5: charges.transfer_gb: must be 0 to",
        ] {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
        assert!(load("locations: [{name: a, nodes: 1}]\n").is_err(), "what it does not know");
    }

    #[test]
    fn the_default_location_is_one_that_there_is() {
        for (text, expected) in [
            ("lease_ttl_seconds: 9\n", "eastus"),
            ("locations: [westus, eastus]\n", "eastus"),
            ("locations: [cellar, attic]\n", "cellar"),
            ("default_location: West US\n", "West US"),
        ] {
            assert_eq!(load(text).unwrap().default_location(), expected, "{text}");
        }
        let wrong = load("locations: [cellar]\ndefault_location: eastus\n").unwrap_err().to_string();
        assert!(wrong.contains("line 2: default_location: 'eastus' is no location here"), "{wrong}");
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_with_its_line() {
        let text = "\
lease_ttl_seconds: soon
locl: {}
colour: red
local:
  max_nodes: -1
  capacity: loose
  isolation: off
  eviction: {mean: 2h}
limits: {burst: 0, waiting_jobs: many}
teams: {'': [ann]}
sizes:
- big
- {name: Desk, cores: x, memory_gb: 4, locations: [moon]}
- {name: desk, cores: 1, memory_gb: 0}
locations:
- 7
- {name: here, max_nodes: '3', latency_ms: {there: 1}}
alerts: https://x/secret
metrics: {open: perhaps}
";
        let wrong = load(text).unwrap_err().to_string();
        let told: Vec<&str> = wrong.lines().skip(1).map(|line| line.trim_start_matches("  - ")).collect();
        let expected = [
            "line 1: lease_ttl_seconds: must be a whole number, 0 or more",
            "line 2: locl: unknown key; did you mean `local`?",
            "line 3: colour: unknown key; there are locations, sizes, prices, charges, default_location, lease_ttl_seconds, stop_grace_seconds, teams, log_bytes_max, checkpoint_interval_seconds, limits, audiences, metrics, alerts, local, storage, inputs, outputs, outgoing, environments",
            "line 5: local.max_nodes: must be a whole number from 0 to 4294967295",
            "line 6: local.capacity: must be one of nominal, strict",
            "line 8: local.eviction.mean: '2h' is not an ISO 8601 duration such as PT2M or PT1H30M: it does not begin with P",
            "line 9: limits.waiting_jobs: must be a whole number, 0 or more",
            "line 9: limits.burst: must be at least 1",
            "line 10: teams.: a team has a name",
            "line 12: sizes[0]: must be keys with their values",
            "line 13: sizes[1].cores: must be a whole number from 0 to 4294967295",
            "line 14: sizes[2].name: 'desk' is there twice",
            "line 14: sizes[2].memory_gb: must be 0.001 to 1000000",
            "line 16: locations[0]: must be the name of a place, or keys such as `name` and `max_nodes`",
            "line 17: locations[1].max_nodes: must be a whole number from 0 to 4294967295",
            "line 18: alerts: must be keys with their values",
            "line 19: metrics.open: must be true or false",
        ];
        assert_eq!(told, expected, "{wrong}");
    }

    #[test]
    fn what_is_no_configuration_says_so() {
        assert!(load("a: [\n").unwrap_err().to_string().contains("it is not YAML"));
        assert!(load("- a\n").unwrap_err().to_string().contains("must hold keys with their values"));
        assert!(load("local: {max_nodes: 1, max_nodes: 2}\n").unwrap_err().to_string().contains("max_nodes"));
    }

    #[test]
    fn environments_by_their_names() {
        let config = load(
            "environments:\n  engine: podman\n  archives: [/srv]\n  map:\n    'AzureML-*': {pip: [six, numpy]}\n    AzureML-sklearn: {image: 'sk:1', conda: conda.yml}\n",
        )
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert!(config.environment_rules(folder.path()).unwrap_err().to_string().contains("conda.yml"));
        std::fs::write(folder.path().join("conda.yml"), "name: x\n").unwrap();
        let rules = config.environment_rules(folder.path()).unwrap();
        let found: Vec<_> = rules.map.iter().map(|m| (m.pattern.as_str(), m.packages.as_deref())).collect();
        assert_eq!(found, [("AzureML-sklearn", Some("name: x\n")), ("AzureML-*", Some("six\nnumpy"))]);
        assert!(load("environments: {map: {a: {conda: x, pip: []}}}\n").is_err());
        assert!(load("environments: {engine: rkt}\n").is_err());
        assert!(load("environments: {archives: [here]}\n").is_err());
    }

    #[test]
    fn folders_for_jobs_are_absolute_and_not_the_jobs_own() {
        let text = "local:\n  visible_paths: [srv, /tmp/x, /srv/../etc]\n  shared_paths: [/, /scratch]\n";
        let said = load(text).unwrap_err().to_string();
        for part in ["'srv' must be", "'/tmp/x' lies in /tmp", "'/srv/../etc' must be", "'/' must be"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(!said.contains("scratch"), "{said}");
        let config = load("local: {visible_paths: [/srv/data], shared_paths: [/scratch]}\n").unwrap();
        assert_eq!(config.local.shared_paths, [PathBuf::from("/scratch")]);
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        assert!(load("limits: {burst: 0}\n").unwrap_err().to_string().contains("limits.burst"));
        let connections = load(
            "limits: {connections: 10, unauthenticated_connections: 20, idle_seconds: 0}\naudiences: [nowhere, 'https://neap.example.com/x']\n",
        );
        let connections = connections.unwrap_err().to_string();
        for part in [
            "limits.idle_seconds: must be at least 1",
            "limits.unauthenticated_connections: must not be more than limits.connections (10)",
            "line 2: audiences[0]: must be an https:// address",
            "line 2: audiences[1]: must be an https:// address without a path",
        ] {
            assert!(connections.contains(part), "{part}: {connections}");
        }
        let secret = load("alerts: {webhook: 'ftp://x/secret'}\n").unwrap_err().to_string();
        assert!(secret.contains("alerts.webhook") && !secret.contains("secret"), "{secret}");
        let rules = load("alerts: {webhook: 'http://x/secret', queue_delay_seconds: 5}\n").unwrap().alerts;
        assert_eq!((rules.rules().queue_delay_ms, rules.resolve_seconds), (5_000, 30));
        assert!(!format!("{rules:?}").contains("secret"));
        assert!(load("locl: {}\n").unwrap_err().to_string().contains("locl"));
        assert!(
            load("lease_ttl_seconds: 1\nlocal: {max_nodes: 0}\n")
                .unwrap_err()
                .to_string()
                .contains("max_nodes")
        );
    }
}
