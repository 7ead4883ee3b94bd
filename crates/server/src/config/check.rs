//! What a configuration may not say; every problem is told at once.

use std::path::{Component, PathBuf};

use neap_control::limits::PAST_RECORDS_MAX;
use neap_core::limits::QUEUE_LENGTH_MAX;

use super::{Config, locations};

impl Config {
    pub(super) fn check(&self) -> Result<(), String> {
        let mut problems = Vec::new();
        if self.lease_ttl_seconds < 5 {
            problems.push("lease_ttl_seconds must be at least 5");
        }
        if self.local.max_nodes == 0 {
            problems.push("local.max_nodes must be at least 1");
        }
        if self.local.eviction.is_some_and(|eviction| eviction.mean == 0) {
            problems.push("local.eviction.mean must be longer than nothing");
        }
        if self.local.emulate_gpus > neap_sandbox::GPUS_MAX {
            problems.push("local.emulate_gpus is at most 256");
        }
        if self.log_bytes_max < 4096 {
            problems.push("log_bytes_max must be at least 4096");
        }
        if self.limits.requests_per_second == 0 || self.limits.burst == Some(0) {
            problems.push("limits.requests_per_second and limits.burst must be at least 1");
        }
        if self.limits.requests_in_flight == 0 {
            problems.push("limits.requests_in_flight must be at least 1");
        }
        if !(1..=QUEUE_LENGTH_MAX).contains(&self.limits.waiting_jobs) {
            problems.push("limits.waiting_jobs is a number from 1 to 2000000");
        }
        if !(1..=PAST_RECORDS_MAX).contains(&self.limits.past_records) {
            problems.push("limits.past_records is a number from 1 to 5000000");
        }
        if self.alerts.evictions == 0 || self.alerts.evictions_within_seconds == 0 {
            problems.push("alerts.evictions and alerts.evictions_within_seconds must be at least 1");
        }
        if self.alerts.provisioning_failures == 0 || self.alerts.queue_delay_seconds == 0 {
            problems.push("alerts.provisioning_failures and alerts.queue_delay_seconds must be at least 1");
        }
        if self.alerts.quota_percent > 100 {
            problems.push("alerts.quota_percent is a percentage up to 100; 0 tells nobody");
        }
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if self.alerts.webhook.as_ref().is_some_and(|url| !is_url(url)) {
            problems.push("alerts.webhook must be an http:// or https:// address");
        }
        if self.alerts.command.first().is_some_and(String::is_empty) {
            problems.push("alerts.command begins with the path of a program");
        }
        if self.environments.map.values().any(|mapped| mapped.conda.is_some() && mapped.pip.is_some()) {
            problems.push("an entry of environments.map has conda or pip, not both");
        }
        if self.environments.archives.iter().any(|folder| !folder.is_absolute()) {
            problems.push("environments.archives must be whole paths");
        }
        if self.locations.as_ref().is_some_and(Vec::is_empty) {
            problems.push("locations must name at least one place");
        }
        let paths = self.inputs.allow.iter().chain(self.inputs.map.values()).chain(&self.outputs.allow);
        let is_whole = |path: &&PathBuf| {
            path.is_absolute()
                && !path.components().any(|part| part == Component::ParentDir)
                && path.parent().is_some()
        };
        if !paths.into_iter().all(|path| is_whole(&path)) {
            problems.push("the paths of inputs.allow, inputs.map and outputs.allow must be absolute, without '..', and not '/'");
        }
        if self.inputs.map.keys().any(|prefix| !prefix.contains("://")) {
            problems.push("inputs.map maps addresses: each key must have a scheme, as in https://");
        }
        let mut problems: Vec<String> = problems.into_iter().map(str::to_owned).collect();
        self.check_sizes(&mut problems);
        locations::check(self.locations.as_deref().unwrap_or_default(), self.charges, &mut problems);
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}
