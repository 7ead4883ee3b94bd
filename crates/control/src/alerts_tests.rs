//! Each alert through its life: it fires once, holds, resolves once, and survives a restart.

use super::*;
use neap_core::health::NodeCount;
use neap_core::job::Class;

const RULES: Rules = Rules {
    queue_delay_ms: 10_000,
    above_min_ms: 60_000,
    provisioning_failures: 3,
    evictions: 3,
    evictions_within_ms: 60_000,
    job_failure_quiet_ms: 100_000,
    quota_percent: 80,
    resolve_ms: 5_000,
};

fn cluster(change: impl FnOnce(&mut Figures)) -> ClusterReading {
    let mut figures = Figures::default();
    change(&mut figures);
    ClusterReading {
        id: ClusterId(1),
        workspace: "default".into(),
        name: "cpu".into(),
        owner: Some("ada@example.com".into()),
        figures,
        last_boot_reason: Some("no room".into()),
    }
}

fn at(now: u64, cluster: ClusterReading) -> Reading {
    Reading { now: Millis(now), clusters: vec![cluster], ..Reading::default() }
}

/// What was told since the last time, as words.
fn told(alerts: &mut Alerts) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(notice) = alerts.next_notice().cloned() {
        out.push(format!("{:?} {}", notice.status, notice.labels["alertname"]));
        alerts.delivered(notice.number);
    }
    out
}

fn through_its_life(name: &str, ill: impl Fn(&mut Figures) + Copy) {
    let mut alerts = Alerts::default();
    assert!(!alerts.evaluate(RULES, &at(0, cluster(|_| ()))), "all is well");
    for now in [1_000, 61_000, 62_000] {
        alerts.evaluate(RULES, &at(now, cluster(ill)));
    }
    assert_eq!(told(&mut alerts), [format!("Firing {name}")]);
    alerts.evaluate(RULES, &at(63_000, cluster(|_| ())));
    alerts.evaluate(RULES, &at(67_999, cluster(|_| ())));
    assert_eq!(told(&mut alerts), [""; 0], "it may come back");
    alerts.evaluate(RULES, &at(68_000, cluster(|_| ())));
    alerts.evaluate(RULES, &at(69_000, cluster(|_| ())));
    assert_eq!(told(&mut alerts), [format!("Resolved {name}")]);
}

#[test]
fn each_condition_fires_once_and_resolves_once() {
    through_its_life("NeapQueueDelay", |f| (f.queued, f.oldest_wait_ms) = (1, 10_000));
    through_its_life("NeapUnusableNodes", |f| {
        f.nodes.insert("unusable", NodeCount { nodes: 1, ..NodeCount::default() });
    });
    through_its_life("NeapProvisioningFailed", |f| f.boot_failures = 3);
    through_its_life("NeapAboveMinimum", |f| (f.live, f.min) = (2, 1));
}

#[test]
fn the_owner_is_named_and_a_fingerprint_has_what_it_needs() {
    let mut alerts = Alerts::default();
    alerts.evaluate(RULES, &at(1, cluster(|f| f.boot_failures = 4)));
    let notice = alerts.next_notice().unwrap();
    let labels: Vec<_> = notice.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        labels,
        [
            "alertname=NeapProvisioningFailed",
            "cluster=cpu",
            "owner=ada@example.com",
            "severity=warning",
            "workspace=default"
        ]
    );
    assert_eq!(notice.annotations["summary"], "4 nodes in a row did not start. The last: no room.");
}

#[test]
fn a_failed_job_is_told_once_until_one_completes_or_it_is_quiet() {
    let well = || cluster(|_| ());
    let failed = Outcome::failed(Class::UserCode, "UserError", "exit code 3.", "Read its log.");
    let mut alerts = Alerts::default();
    for now in 1..4 {
        alerts.job_ended(ClusterId(1), "train", &failed, Millis(now));
        alerts.evaluate(RULES, &at(now, well()));
    }
    let summary = alerts.next_notice().unwrap().annotations["summary"].clone();
    assert_eq!(summary, "Job 'train' failed (user code): exit code 3. Read its log.");
    assert_eq!(told(&mut alerts), ["Firing NeapJobFailure"]);
    alerts.job_ended(ClusterId(1), "again", &Outcome::completed(), Millis(10));
    alerts.evaluate(RULES, &at(10, well()));
    alerts.evaluate(RULES, &at(5_010, well()));
    assert_eq!(told(&mut alerts), ["Resolved NeapJobFailure"]);
    alerts.job_ended(ClusterId(1), "train", &failed, Millis(6_000));
    alerts.evaluate(RULES, &at(6_000, well()));
    alerts.evaluate(RULES, &at(106_000, well()));
    alerts.evaluate(RULES, &at(111_000, well()));
    assert_eq!(told(&mut alerts), ["Firing NeapJobFailure", "Resolved NeapJobFailure"]);
}

#[test]
fn a_restart_fires_nothing_twice_and_delivers_what_is_owed() {
    let ill = || cluster(|f| f.boot_failures = 3);
    let mut alerts = Alerts::default();
    alerts.evaluate(RULES, &at(1, ill()));
    let restart =
        |alerts: &Alerts| -> Alerts { serde_json::from_slice(&serde_json::to_vec(alerts).unwrap()).unwrap() };
    let mut alerts = restart(&alerts);
    assert!(!alerts.evaluate(RULES, &at(2, ill())));
    assert_eq!(told(&mut alerts), ["Firing NeapProvisioningFailed"], "it had not been delivered");
    let mut alerts = restart(&alerts);
    alerts.evaluate(RULES, &at(3, ill()));
    assert_eq!(told(&mut alerts), [""; 0], "it had been");
}

#[test]
fn a_deleted_clusters_alerts_resolve_at_once() {
    let mut alerts = Alerts::default();
    alerts.evaluate(RULES, &at(1, cluster(|f| f.boot_failures = 3)));
    alerts.evaluate(RULES, &Reading { now: Millis(2), ..Reading::default() });
    assert_eq!(told(&mut alerts), ["Firing NeapProvisioningFailed", "Resolved NeapProvisioningFailed"]);
    assert_eq!(alerts.firing().count(), 0);
}

#[test]
fn the_server_has_alerts_of_its_own() {
    let mut alerts = Alerts::default();
    let reading =
        Reading { ledger_closed: Some("the disk is full".into()), violations: 2, ..Reading::default() };
    alerts.evaluate(RULES, &reading);
    assert_eq!(told(&mut alerts), ["Firing NeapLedgerClosed", "Firing NeapInvariantViolated"]);
}

#[test]
fn a_storm_of_evictions_fires_once_names_the_owner_and_resolves_when_it_is_over() {
    let mut alerts = Alerts::default();
    let well = |now: u64| at(now, cluster(|_| ()));
    for now in [1_000, 2_000] {
        alerts.node_preempted(ClusterId(1), "the provider needs it", Millis(now));
        alerts.evaluate(RULES, &well(now));
    }
    assert_eq!(told(&mut alerts), [""; 0], "two are no storm");
    // It survives a restart, and so does what was counted.
    let kept = serde_json::to_string(&alerts).expect("it can be kept");
    let mut alerts: Alerts = serde_json::from_str(&kept).expect("it is what was kept");
    for now in [60_000, 60_500, 60_700] {
        alerts.node_preempted(ClusterId(1), "dedicated work on compute 'gpu' needs the room", Millis(now));
        alerts.evaluate(RULES, &well(now));
    }
    let notice = alerts.next_notice().expect("it is told").clone();
    assert_eq!(notice.labels["owner"], "ada@example.com");
    let summary = &notice.annotations["summary"];
    assert!(
        summary.starts_with("3 nodes were taken back within 60 s; the last: dedicated work on"),
        "{summary}"
    );
    assert_eq!(told(&mut alerts), ["Firing NeapEvictionStorm"]);
    alerts.evaluate(RULES, &well(61_000));
    // The first of the three was at 2,000, and is past.
    alerts.evaluate(RULES, &well(120_600));
    alerts.evaluate(RULES, &well(125_600));
    assert_eq!(told(&mut alerts), ["Resolved NeapEvictionStorm"]);
}

#[test]
fn the_outbox_is_bounded() {
    let mut alerts = Alerts::default();
    let rules = Rules { resolve_ms: 0, ..RULES };
    for now in 0..limits::NOTICES_MAX as u64 + 10 {
        alerts.evaluate(rules, &at(now, cluster(|f| f.boot_failures = if now % 2 == 0 { 3 } else { 0 })));
    }
    assert_eq!((alerts.outbox.len(), alerts.dropped), (limits::NOTICES_MAX, 10));
    assert_eq!(alerts.next_notice().map(|n| n.number), Some(10));
}

#[test]
fn each_threshold_of_a_budget_fires_once_and_resolves_with_new_money_or_without_the_budget() {
    let budget = |spent: u64| BudgetReading {
        id: neap_core::BudgetId(3),
        name: "vision".into(),
        on: "workspace 'ws'".into(),
        amount: MicroUsd(10_000_000),
        spent: MicroUsd(spent),
        thresholds: vec![50, 100],
    };
    let at =
        |now: u64, budgets: Vec<BudgetReading>| Reading { now: Millis(now), budgets, ..Reading::default() };
    let mut alerts = Alerts::default();
    alerts.evaluate(RULES, &at(1, vec![budget(4_999_999)]));
    assert_eq!(told(&mut alerts), [""; 0]);
    alerts.evaluate(RULES, &at(2, vec![budget(5_000_000)]));
    let notice = alerts.next_notice().expect("it is told").clone();
    assert_eq!((&*notice.labels["budget"], &*notice.labels["threshold"]), ("vision", "50"));
    let summary = "Budget 'vision' on workspace 'ws': $5.00 of $10.00 is spent, 50 % or more.";
    assert_eq!(notice.annotations["summary"], summary);
    alerts.evaluate(RULES, &at(3, vec![budget(10_000_000)]));
    assert_eq!(told(&mut alerts), ["Firing NeapBudgetThreshold"; 2], "one for each threshold");
    alerts.evaluate(RULES, &at(10, vec![budget(5_000_000)]));
    alerts.evaluate(RULES, &at(6_000, vec![budget(5_000_000)]));
    assert_eq!(told(&mut alerts), ["Resolved NeapBudgetThreshold"]);
    alerts.evaluate(RULES, &at(6_001, vec![]));
    assert_eq!(told(&mut alerts), ["Resolved NeapBudgetThreshold"], "it is gone, and its alerts at once");
}

#[test]
fn a_limit_that_is_nearly_held_fires_once_and_resolves_when_it_is_raised_or_taken_away() {
    let quota = |held: u64, limit: u64| QuotaReading {
        name: "Total Cluster Dedicated Regional vCPUs".into(),
        location: "westus".into(),
        of: "workspace 'ws'".into(),
        limit,
        held,
        holder: Some("cpu".into()),
        owner: Some("ada@example.com".into()),
    };
    let at = |now: u64, quotas: Vec<QuotaReading>| Reading { now: Millis(now), quotas, ..Reading::default() };
    let mut alerts = Alerts::default();
    alerts.evaluate(RULES, &at(1, vec![quota(15, 20), quota(0, 0)]));
    assert_eq!(told(&mut alerts), [""; 0], "below 80 %, and a limit of nothing is no news");
    alerts.evaluate(RULES, &at(2, vec![quota(16, 20)]));
    let notice = alerts.next_notice().expect("it is told").clone();
    assert_eq!(
        notice.annotations["summary"],
        "Total Cluster Dedicated Regional vCPUs in westus: 16 of 20 of workspace 'ws' are held, most by 'cpu', 80 % or more. 'neap quota request' asks for more."
    );
    assert_eq!((&*notice.labels["owner"], &*notice.labels["location"]), ("ada@example.com", "westus"));
    alerts.evaluate(RULES, &at(3, vec![quota(20, 20)]));
    assert_eq!(told(&mut alerts), ["Firing NeapQuotaNearLimit"], "once");
    alerts.evaluate(RULES, &at(10, vec![quota(20, 40)]));
    alerts.evaluate(RULES, &at(6_000, vec![quota(20, 40)]));
    assert_eq!(told(&mut alerts), ["Resolved NeapQuotaNearLimit"]);
    alerts.evaluate(RULES, &at(6_001, vec![quota(40, 40)]));
    alerts.evaluate(RULES, &at(6_002, vec![]));
    assert_eq!(told(&mut alerts), ["Firing NeapQuotaNearLimit", "Resolved NeapQuotaNearLimit"]);
    let off = Rules { quota_percent: 0, ..RULES };
    alerts.evaluate(off, &at(7_000, vec![quota(40, 40)]));
    assert_eq!(told(&mut alerts), [""; 0]);
}
