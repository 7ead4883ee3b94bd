//! What a change of a cluster would mean, in words.

use serde_json::Value;

/// A plan in words, one line for each change.
pub fn describe(plan: &Value) -> String {
    let changes = plan["changes"].as_array().cloned().unwrap_or_default();
    if changes.is_empty() {
        return "Nothing would change.".to_owned();
    }
    let mut lines: Vec<String> = changes
        .iter()
        .map(|change| {
            format!(
                "{}: {} -> {}",
                change["field"].as_str().unwrap_or_default(),
                change["from"],
                change["to"]
            )
        })
        .collect();
    lines.push(format!("nodes added at once: {}, let go: {}", plan["nodesAdded"], plan["nodesLetGo"]));
    if plan["roll"].is_object() {
        lines.extend(describe_roll(&plan["roll"]));
    }
    lines.extend(dependents(&plan["dependents"]));
    lines.join("\n")
}

/// Which nodes are replaced, and what that means for quotas and costs.
fn describe_roll(roll: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = |value: &Value| list(value).iter().map(text).collect::<Vec<_>>().join(", ");
    let nodes: Vec<String> = list(&roll["nodes"])
        .iter()
        .map(|node| match named(&node["jobs"]) {
            jobs if jobs.is_empty() => format!("{} ({})", text(&node["node"]), text(&node["state"])),
            jobs => format!("{} (once {jobs} has ended)", text(&node["node"])),
        })
        .collect();
    let mut lines = vec![format!("nodes replaced, one by one: {}", nodes.join(", "))];
    for quota in list(&roll["quotas"]) {
        let limit = quota["limit"].as_u64().map_or_else(String::new, |limit| format!(" of {limit}"));
        lines.push(format!(
            "{} of {}: {} -> {}{limit} cores held",
            text(&quota["name"]),
            text(&quota["of"]),
            quota["held_before"],
            quota["held_after"]
        ));
    }
    let price = |key: &str| text(&roll[key]["node_hour_usd"]);
    lines.push(format!(
        "price of a node, USD an hour: {} -> {}",
        price("price_before"),
        price("price_after")
    ));
    lines
}

/// What hangs on a cluster, one line for each kind.
pub fn dependents(found: &Value) -> Vec<String> {
    let list = |key: &str| found[key].as_array().cloned().unwrap_or_default();
    let names = |key: &str| -> Vec<String> {
        let name =
            |value: &Value| value.as_str().or_else(|| value["name"].as_str()).unwrap_or_default().to_owned();
        list(key).iter().map(name).collect()
    };
    let mut lines = Vec::new();
    let (running, waiting) = (&found["jobs"]["running"], &found["jobs"]["waiting"]);
    if running.as_u64().unwrap_or(0) + waiting.as_u64().unwrap_or(0) > 0 {
        lines.push(format!("jobs on it: {running} running, {waiting} waiting"));
    }
    for (key, words) in [
        ("job_schedules", "schedules that submit jobs to it"),
        ("batch_deployments", "batch deployments on it"),
        ("compute_schedules", "schedules of its minimum and maximum"),
        ("budgets", "budgets on it"),
        ("locks", "locks on it"),
        ("limits", "limits on what somebody may have on it"),
    ] {
        let names = names(key);
        if !names.is_empty() {
            lines.push(format!("{words}: {}", names.join(", ")));
        }
    }
    lines
}
