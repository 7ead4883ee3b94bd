//! What a configuration may not say; every problem is told at once.

use std::path::{Component, Path};

use neap_control::limits::PAST_RECORDS_MAX;
use neap_core::limits::QUEUE_LENGTH_MAX;

use super::read::Problems;
use super::{Config, locations};

/// The longest time that a setting may name.
const SECONDS_MAX: u64 = 366 * 24 * 3600;

impl Config {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.tell_if(self.lease_ttl_seconds < 5, "lease_ttl_seconds", "must be at least 5");
        for (seconds, key) in [
            (self.lease_ttl_seconds, "lease_ttl_seconds"),
            (self.stop_grace_seconds, "stop_grace_seconds"),
            (self.checkpoint_interval_seconds, "checkpoint_interval_seconds"),
        ] {
            if seconds > SECONDS_MAX {
                problems.tell(key, format!("must be at most {SECONDS_MAX}, a year"));
            }
        }
        problems.tell_if(self.log_bytes_max < 4096, "log_bytes_max", "must be at least 4096");
        self.check_teams(problems);
        self.check_limits(problems);
        self.check_alerts(problems);
        self.check_local(problems);
        let least = "must be at least 1";
        problems.tell_if(self.local.disk_mb_per_job == Some(0), "local.disk_mb_per_job", least);
        problems.tell_if(self.storage.workspace_mb_max == Some(0), "storage.workspace_mb_max", least);
        self.check_paths(problems);
        self.check_job_folders(problems);
        self.outgoing.check(problems);
        self.check_sizes(problems);
        locations::check(self, problems);
    }

    /// Folders that jobs are shown: their own places cannot be among them.
    fn check_job_folders(&self, problems: &mut Problems) {
        const OWN: [&str; 6] = ["/tmp", "/var/tmp", "/proc", "/dev", "/run", "/mnt/azureml"];
        for (key, paths) in [
            ("local.visible_paths", &self.local.visible_paths),
            ("local.shared_paths", &self.local.shared_paths),
        ] {
            for path in paths {
                let shown = path.display();
                let plain =
                    path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
                if !path.is_absolute() || !plain || path.parent().is_none() {
                    problems.tell(
                        key,
                        format!("'{shown}' must be an absolute path of a folder, without '..', and not '/'"),
                    );
                } else if let Some(own) = OWN.iter().find(|own| path.starts_with(own)) {
                    problems
                        .tell(key, format!("'{shown}' lies in {own}, of which each job has one of its own"));
                }
            }
        }
    }

    fn check_teams(&self, problems: &mut Problems) {
        for (team, users) in &self.teams {
            let path = format!("teams.{team}");
            problems.tell_if(team.trim().is_empty(), &path, "a team has a name");
            problems.tell_if(
                users.iter().any(|user| user.trim().is_empty()),
                &path,
                "each of its users has a name",
            );
        }
    }

    fn check_limits(&self, problems: &mut Problems) {
        let limits = self.limits;
        let least = "must be at least 1";
        problems.tell_if(limits.requests_per_second == 0, "limits.requests_per_second", least);
        problems.tell_if(limits.burst == Some(0), "limits.burst", least);
        problems.tell_if(limits.requests_in_flight == 0, "limits.requests_in_flight", least);
        problems.tell_if(limits.body_bytes_in_flight == 0, "limits.body_bytes_in_flight", least);
        for (is_zero, key) in [
            (limits.connections == 0, "connections"),
            (limits.connections_per_address == 0, "connections_per_address"),
            (limits.unauthenticated_connections == 0, "unauthenticated_connections"),
            (limits.unauthenticated_connections_per_address == 0, "unauthenticated_connections_per_address"),
            (limits.unauthenticated_seconds == 0, "unauthenticated_seconds"),
            (limits.unauthenticated_requests_per_second == 0, "unauthenticated_requests_per_second"),
            (limits.unauthenticated_requests_in_flight == 0, "unauthenticated_requests_in_flight"),
            (limits.idle_seconds == 0, "idle_seconds"),
        ] {
            problems.tell_if(is_zero, &format!("limits.{key}"), least);
        }
        if limits.unauthenticated_connections > limits.connections {
            let message = format!("must not be more than limits.connections ({})", limits.connections);
            problems.tell("limits.unauthenticated_connections", message);
        }
        for (at, audience) in self.audiences.iter().enumerate() {
            let host = audience.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
            if !host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@'])) {
                let message = "must be an https:// address without a path, as https://neap.example.com:8443";
                problems.tell(format!("audiences[{at}]"), message);
            }
        }
        if !(1..=QUEUE_LENGTH_MAX).contains(&limits.waiting_jobs) {
            problems.tell("limits.waiting_jobs", format!("must be a number from 1 to {QUEUE_LENGTH_MAX}"));
        }
        if !(1..=PAST_RECORDS_MAX).contains(&limits.past_records) {
            problems.tell("limits.past_records", format!("must be a number from 1 to {PAST_RECORDS_MAX}"));
        }
    }

    fn check_alerts(&self, problems: &mut Problems) {
        let alerts = &self.alerts;
        for (is_zero, key) in [
            (alerts.evictions == 0, "evictions"),
            (alerts.evictions_within_seconds == 0, "evictions_within_seconds"),
            (alerts.provisioning_failures == 0, "provisioning_failures"),
            (alerts.queue_delay_seconds == 0, "queue_delay_seconds"),
        ] {
            problems.tell_if(is_zero, &format!("alerts.{key}"), "must be at least 1");
        }
        problems.tell_if(
            alerts.quota_percent > 100,
            "alerts.quota_percent",
            "is a percentage up to 100; 0 tells nobody",
        );
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        problems.tell_if(
            alerts.webhook.as_ref().is_some_and(|url| !is_url(url)),
            "alerts.webhook",
            "must be an http:// or https:// address",
        );
        problems.tell_if(
            alerts.command.first().is_some_and(String::is_empty),
            "alerts.command",
            "begins with the path of a program",
        );
    }

    fn check_local(&self, problems: &mut Problems) {
        problems.tell_if(self.local.max_nodes == 0, "local.max_nodes", "must be at least 1");
        problems.tell_if(
            self.local.eviction.is_some_and(|eviction| eviction.mean == 0),
            "local.eviction.mean",
            "must be said, and longer than nothing, as PT2H",
        );
        if self.local.emulate_gpus > neap_sandbox::GPUS_MAX {
            problems.tell("local.emulate_gpus", format!("is at most {}", neap_sandbox::GPUS_MAX));
        }
    }

    fn check_paths(&self, problems: &mut Problems) {
        for (name, mapped) in &self.environments.map {
            let path = format!("environments.map.{name}");
            problems.tell_if(
                mapped.conda.is_some() && mapped.pip.is_some(),
                &path,
                "has conda or pip, not both",
            );
        }
        for (at, folder) in self.environments.archives.iter().enumerate() {
            let path = format!("environments.archives[{at}]");
            problems.tell_if(!folder.is_absolute(), &path, "must be a whole path, from '/'");
        }
        let numbered = |key: &'static str, list| {
            let list: &[std::path::PathBuf] = list;
            list.iter().enumerate().map(move |(at, path)| (format!("{key}[{at}]"), path))
        };
        let mapped = self.inputs.map.iter().map(|(prefix, path)| (format!("inputs.map.{prefix}"), path));
        let folders = numbered("inputs.allow", &self.inputs.allow);
        for (place, folder) in folders.chain(numbered("outputs.allow", &self.outputs.allow)).chain(mapped) {
            let message = "must be a whole path, from '/', without '..', and not '/' itself";
            problems.tell_if(!is_whole(folder), &place, message);
        }
        for prefix in self.inputs.map.keys().filter(|prefix| !prefix.contains("://")) {
            problems.tell(format!("inputs.map.{prefix}"), "is no address: it has a scheme, as in https://");
        }
    }
}

fn is_whole(path: &Path) -> bool {
    path.is_absolute()
        && !path.components().any(|part| part == Component::ParentDir)
        && path.parent().is_some()
}
