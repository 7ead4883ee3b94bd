//! Alerts to a webhook, to a program, and to the log. It reads the published state and the events since it last looked, gives them to the machine
//! in `neap_control::alerts`, writes what the machine remembers to its file, and delivers what is owed, oldest first.
//!
//! It decides nothing and holds nobody up: a receiver that is away is tried again, less and less often.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use neap_control::alerts::{
    Alerts, BudgetReading, ClusterReading, Notice, NoticeStatus, QuotaReading, Reading, Rules,
};
use neap_control::instruments::Counter;
use neap_control::{Handle, clock};
use neap_core::budget;
use neap_core::cluster::Cluster;
use neap_core::documents::ClusterDocument;
use neap_core::health::Figures;
use neap_core::job::Outcome;
use neap_core::quota::{self, Pool};
use neap_core::visible;
use neap_core::{ClusterId, DocHash, Event, Millis, State};
use neap_ledger::Reader;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::outgoing;

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);
/// Events read at once.
const EVENTS: u32 = 1_000;
/// How long the program of `alerts.command` may take.
const COMMAND_MAX: Duration = Duration::from_secs(30);
const BACKOFF_MS_MIN: u64 = 1_000;
const BACKOFF_MS_MAX: u64 = 300_000;

/// What it is made of.
#[derive(Debug)]
pub struct Webhook {
    pub url: Option<String>,
    /// A program that is given each notice as text on its standard input, with its arguments: a mailer, say.
    pub command: Vec<String>,
    pub rules: Rules,
    pub client: reqwest::Client,
    pub handle: Handle,
    /// What has fired and what is owed, over restarts.
    pub file: PathBuf,
    /// Where the server is found, for people who read the alert.
    pub server_url: String,
}

struct Running {
    webhook: Webhook,
    alerts: Alerts,
    owners: BTreeMap<DocHash, Option<String>>,
    failures: u32,
    next_try: Millis,
    /// Of the notice that is being delivered: the receiver of the webhook has it.
    posted: Option<u64>,
}

impl Webhook {
    pub async fn run(self) {
        let alerts = self.remembered();
        let mut running = Running {
            webhook: self,
            alerts,
            owners: BTreeMap::new(),
            failures: 0,
            next_try: Millis(0),
            posted: None,
        };
        loop {
            running.look().await;
            running.deliver().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Without anybody to tell, thresholds of budgets still come into the log.
    fn tells_somebody(&self) -> bool {
        self.url.is_some() || !self.command.is_empty()
    }

    /// From the file. A first start begins with what happens from now on.
    fn remembered(&self) -> Alerts {
        let fresh = || Alerts::from_here(*self.handle.changes().borrow());
        match std::fs::read(&self.file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(%error, "what was told of alerts cannot be read; they may be told again");
                fresh()
            }),
            Err(_) => fresh(),
        }
    }
}

struct EndedJob {
    cluster: ClusterId,
    name: String,
    outcome: Outcome,
    at: Millis,
}

struct TakenNode {
    cluster: ClusterId,
    reason: String,
    at: Millis,
}

/// What the next events tell that alerts are about, and the last event that was looked at.
struct Told {
    jobs: Vec<EndedJob>,
    taken: Vec<TakenNode>,
    last: u64,
}

fn told_after(reader: &Reader, after: u64) -> Result<Told, neap_ledger::Error> {
    let events = reader.events(after, EVENTS)?;
    let (mut jobs, mut taken) = (Vec::new(), Vec::new());
    for record in events.iter().filter(|record| record.kind == "node.preempted") {
        if let Ok(Event::NodePreempted(e)) = Event::decode(&record.kind, record.version, &record.body)
            && let Some(row) = reader.node(e.id)?
        {
            taken.push(TakenNode { cluster: row.cluster, reason: e.reason.to_string(), at: record.at });
        }
    }
    for record in events.iter().filter(|record| record.kind == "job.ended") {
        if let Ok(Event::JobEnded(e)) = Event::decode(&record.kind, record.version, &record.body)
            && let Some(row) = reader.job_by_id(e.id)?
        {
            let (cluster, at) = (row.cluster, record.at);
            jobs.push(EndedJob { cluster, name: row.name, outcome: e.outcome, at });
        }
    }
    Ok(Told { jobs, taken, last: events.last().map_or(after, |record| record.seq) })
}

impl Running {
    async fn look(&mut self) {
        let state = self.webhook.handle.state();
        if self.webhook.tells_somebody() {
            self.read_events(&state).await;
        } else if state.budgets.is_empty() && self.alerts.firing().next().is_none() {
            return;
        }
        let reading = self.read(&state);
        let dropped_before = self.alerts.dropped;
        let changed = self.alerts.evaluate(self.webhook.rules, &reading);
        let metrics = self.webhook.handle.metrics();
        if let Some(dropped) = metrics.alert_notices.of(&"dropped", Counter::default) {
            dropped.add(self.alerts.dropped - dropped_before);
        }
        metrics.alerts_firing.set(self.alerts.firing().count() as u64);
        if changed {
            self.remember();
        }
    }

    /// Ended jobs and nodes that were taken back, from the log itself: none is missed, whatever happened in between.
    async fn read_events(&mut self, state: &State) {
        let head = *self.webhook.handle.changes().borrow();
        let mut ended = false;
        while self.alerts.seen_seq < head {
            let (reader, after) = (self.webhook.handle.reader().clone(), self.alerts.seen_seq);
            let read = tokio::task::spawn_blocking(move || told_after(&reader, after)).await;
            let Ok(Ok(Told { jobs, taken, last })) = read else {
                tracing::warn!("the log could not be read for alerts; it is tried again");
                break;
            };
            for job in jobs.iter().filter(|job| state.clusters.contains_key(&job.cluster)) {
                self.alerts.job_ended(job.cluster, &job.name, &job.outcome, job.at);
                ended = true;
            }
            for node in taken.iter().filter(|node| state.clusters.contains_key(&node.cluster)) {
                self.alerts.node_preempted(node.cluster, &node.reason, node.at);
                ended = true;
            }
            if last <= self.alerts.seen_seq {
                break;
            }
            self.alerts.seen_seq = last;
        }
        if ended {
            self.remember();
        }
    }

    fn read(&mut self, state: &State) -> Reading {
        let now = self.webhook.handle.now();
        let owners: BTreeMap<DocHash, Option<String>> =
            state.clusters.values().map(|c| (c.document, self.owner(&c.document))).collect();
        let clusters = state.clusters.values().filter(|c| !c.is_deleting()).map(|cluster| ClusterReading {
            id: cluster.id,
            workspace: state
                .workspaces
                .get(&cluster.workspace)
                .map_or_else(String::new, |w| w.name.to_string()),
            name: cluster.name.to_string(),
            owner: owners.get(&cluster.document).cloned().flatten(),
            figures: Figures::of(state, cluster, now),
            last_boot_reason: cluster.boot.last_reason.as_ref().map(ToString::to_string),
        });
        let clusters: Vec<_> = clusters.filter(|_| self.webhook.tells_somebody()).collect();
        let spent = budget::spent_so_far(state, now);
        let budgets = state.budgets.values().map(|budget| BudgetReading {
            id: budget.id,
            name: budget.name.to_string(),
            on: budget.scope.words(state),
            amount: budget.amount,
            spent: spent.get(&budget.id).copied().unwrap_or_default(),
            thresholds: budget.thresholds.clone(),
        });
        let budgets = budgets.collect();
        let quotas = if self.webhook.tells_somebody() { quotas(state, &owners) } else { Vec::new() };
        // What no cluster refers to any more is forgotten.
        self.owners = owners;
        let violations = self.webhook.handle.metrics().invariant_violations.all();
        Reading {
            now,
            clusters,
            budgets,
            quotas,
            ledger_closed: self.webhook.handle.ledger_closed(),
            violations: violations.iter().map(|(_, gauge)| gauge.get()).sum(),
        }
    }

    /// The `owner` tag, without regard to case. Documents never change, so each is read once.
    fn owner(&mut self, document: &DocHash) -> Option<String> {
        if let Some(known) = self.owners.get(document) {
            return known.clone();
        }
        let body = self.webhook.handle.reader().document(document).ok().flatten();
        let parsed = body.and_then(|body| serde_json::from_slice::<ClusterDocument>(&body).ok());
        let owner = parsed.and_then(|document| {
            document
                .tags
                .into_iter()
                .find(|(key, _)| key.eq_ignore_ascii_case("owner"))
                .map(|(_, value)| value)
        });
        self.owners.insert(*document, owner.clone());
        owner
    }

    async fn deliver(&mut self) {
        while let Some(notice) = self.alerts.next_notice().cloned() {
            if clock::steady() < self.next_try {
                return;
            }
            let sent = self.tell(&notice).await;
            let metrics = self.webhook.handle.metrics();
            match sent {
                Ok(()) => {
                    metrics.alert_notices.inc(&"delivered");
                    self.failures = 0;
                    self.alerts.delivered(notice.number);
                    self.remember();
                }
                Err(problem) => {
                    metrics.alert_notices.inc(&"failed");
                    let wait_ms = (BACKOFF_MS_MIN << self.failures.min(10)).min(BACKOFF_MS_MAX);
                    self.failures = self.failures.saturating_add(1);
                    self.next_try = clock::steady().plus(wait_ms);
                    let alert = notice.labels.get("alertname");
                    tracing::warn!(problem, alert, wait_ms, "an alert was not delivered; it is tried again");
                    return;
                }
            }
        }
    }

    /// To everybody who is to know. Whoever has it already is not told again when another could not be.
    async fn tell(&mut self, notice: &Notice) -> Result<(), String> {
        if let Some(url) = self.webhook.url.clone()
            && self.posted != Some(notice.number)
        {
            self.post(&url, notice).await?;
            self.posted = Some(notice.number);
        }
        if !self.webhook.command.is_empty() {
            run(&self.webhook.command, &plain(notice, &self.webhook.server_url)).await?;
        }
        let label = |name: &str| notice.labels.get(name).cloned().unwrap_or_default();
        let summary = notice.annotations.get("summary").cloned().unwrap_or_default();
        match notice.status {
            NoticeStatus::Firing => tracing::warn!(alert = label("alertname"), summary, "an alert fires"),
            NoticeStatus::Resolved => tracing::info!(alert = label("alertname"), summary, "an alert is over"),
        }
        Ok(())
    }

    async fn post(&self, url: &str, notice: &Notice) -> Result<(), String> {
        let body = body(notice, &self.webhook.server_url);
        let request = self.webhook.client.post(url).json(&body);
        let status = request.send().await.map_err(outgoing::why)?.status();
        if status.is_success() { Ok(()) } else { Err(format!("the receiver answered {status}")) }
    }

    /// A disk that is full must not keep the alert about it from being told.
    fn remember(&self) {
        let written = serde_json::to_vec(&self.alerts).map_err(std::io::Error::other).and_then(|text| {
            neap_identity::write_private(&self.webhook.file, &text).map_err(std::io::Error::other)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "what was told of alerts cannot be kept; it may be told again after a restart");
        }
    }
}

/// Names and tags are of users: in a notice they stay within their line, and no terminal acts on them.
fn in_lines(notice: &Notice) -> Notice {
    let lines = |texts: &BTreeMap<String, String>| {
        let line = |text: &str| visible::line(text).into_owned();
        texts.iter().map(|(key, value)| (line(key), line(value))).collect()
    };
    Notice { labels: lines(&notice.labels), annotations: lines(&notice.annotations), ..notice.clone() }
}

/// What a person reads: a subject and what there is to say.
fn plain(notice: &Notice, server_url: &str) -> String {
    let label = |name: &str| notice.labels.get(name).cloned().unwrap_or_default();
    let notice = &in_lines(notice);
    let status = match notice.status {
        NoticeStatus::Firing => "firing",
        NoticeStatus::Resolved => "resolved",
    };
    let mut text = format!("Subject: [{status}] {}\n\n", label("alertname"));
    text.push_str(notice.annotations.get("summary").map_or("", String::as_str));
    text.push_str("\n\n");
    for (name, value) in &notice.labels {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text.push_str(&format!("since: {}\nserver: {server_url}\n", notice.starts_at.rfc3339()));
    text
}

/// Runs a program with a text on its standard input. What it prints goes nowhere.
async fn run(command: &[String], text: &str) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let ran = async {
        let mut child = tokio::process::Command::new(program)
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes()).await?;
        }
        child.wait().await
    };
    match tokio::time::timeout(COMMAND_MAX, ran).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("alerts.command ended with {status}")),
        Ok(Err(error)) => Err(format!("alerts.command could not be run: {error}")),
        Err(_) => Err(format!("alerts.command took longer than {} s", COMMAND_MAX.as_secs())),
    }
}

/// The body that Alertmanager sends to webhooks, with one alert in it.
fn body(notice: &Notice, server_url: &str) -> Value {
    let notice = &in_lines(notice);
    let status = match notice.status {
        NoticeStatus::Firing => "firing",
        NoticeStatus::Resolved => "resolved",
    };
    let alertname = notice.labels.get("alertname").cloned().unwrap_or_default();
    let never = "0001-01-01T00:00:00Z".to_owned();
    let fingerprint = fingerprint(notice);
    json!({
        "version": "4",
        "groupKey": format!("neap/{fingerprint}"),
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "neap",
        "groupLabels": {"alertname": alertname},
        "commonLabels": notice.labels,
        "commonAnnotations": notice.annotations,
        "externalURL": server_url,
        "alerts": [{
            "status": status,
            "labels": notice.labels,
            "annotations": notice.annotations,
            "startsAt": notice.starts_at.rfc3339(),
            "endsAt": notice.ends_at.map_or(never, Millis::rfc3339),
            "generatorURL": server_url,
            "fingerprint": fingerprint,
        }],
    })
}

/// The same labels have the same one: FNV-1a over them, in order.
fn fingerprint(notice: &Notice) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for (key, value) in &notice.labels {
        for byte in key.bytes().chain([0xff]).chain(value.bytes()).chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// Every limit on a sum, with who holds the most of it.
fn quotas(state: &State, owners: &BTreeMap<DocHash, Option<String>>) -> Vec<QuotaReading> {
    let sums = state.quotas.iter().filter(|(key, _)| key.pool != Pool::NodesPerCluster);
    sums.map(|(key, limit)| {
        let held = |cluster: &Arc<Cluster>| quota::held_of(state, cluster).get(key).copied();
        let on = state.clusters.values().filter_map(|cluster| Some((held(cluster)?, cluster)));
        let most = on.max_by_key(|(held, cluster)| (*held, std::cmp::Reverse(cluster.id)));
        let most = most.map(|(_, cluster)| cluster);
        QuotaReading {
            name: key.pool.azure_name(),
            location: key.location.to_string(),
            of: quota::holder_words(state, &key.holder),
            limit: *limit,
            held: state.quota_usage.get(key).map_or(0, |usage| usage.held),
            holder: most.map(|cluster| cluster.name.to_string()),
            owner: most.and_then(|cluster| owners.get(&cluster.document).cloned().flatten()),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(status: NoticeStatus, owner: &str) -> Notice {
        let labels = [("alertname", "NeapQueueDelay"), ("cluster", "cpu"), ("owner", owner)];
        Notice {
            number: 1,
            status,
            labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            annotations: BTreeMap::from([("summary".to_owned(), "3 jobs wait.".to_owned())]),
            starts_at: Millis(0),
            ends_at: (status == NoticeStatus::Resolved).then_some(Millis(1_000)),
        }
    }

    #[test]
    fn a_notice_as_alertmanager_would_send_it() {
        let firing = body(&notice(NoticeStatus::Firing, "ada"), "https://h:1");
        assert_eq!(firing["alerts"][0]["labels"]["owner"], "ada");
        assert_eq!(firing["alerts"][0]["endsAt"], "0001-01-01T00:00:00Z");
        let resolved = body(&notice(NoticeStatus::Resolved, "ada"), "https://h:1");
        assert_eq!((&resolved["version"], &resolved["status"]), (&json!("4"), &json!("resolved")));
        assert_eq!(resolved["alerts"][0]["endsAt"], "1970-01-01T00:00:01.000Z");
        assert_eq!(firing["alerts"][0]["fingerprint"], resolved["alerts"][0]["fingerprint"]);
        let other = body(&notice(NoticeStatus::Firing, "bob"), "https://h:1");
        assert_ne!(firing["alerts"][0]["fingerprint"], other["alerts"][0]["fingerprint"]);
    }

    #[test]
    fn a_tag_of_a_user_adds_no_line_to_a_mail() {
        let hostile = notice(NoticeStatus::Firing, "ada\nBcc: all@example.com\n\u{1b}]0;x\u{7}");
        let text = plain(&hostile, "https://h:1");
        assert!(text.contains("owner: ada\\nBcc: all@example.com\\n\\u001b]0;x\\u0007\n"), "{text}");
        let sent = body(&hostile, "https://h:1").to_string();
        assert!(!sent.contains("\\nBcc") || sent.contains("\\\\nBcc"), "{sent}");
    }
}
