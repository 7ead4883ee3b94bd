//! `compute history` and `compute rollback`: the definitions a cluster has had, and going back to one.

use super::change;
use super::describe::describe;
use crate::args::{named, whole};
use crate::client::segment;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Column;
use crate::session::Session;
use clap::Args;
use serde_json::{Value, json};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute history -n cpu-cluster -o table")]
pub struct HistoryArgs {
    /// Name of the cluster
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute rollback -n cpu-cluster --to 3\n  \
                        neap compute rollback -n cpu-cluster --to 3 --yes --change-reference OPS-17")]
pub struct RollbackArgs {
    /// Name of the cluster
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// The revision whose definition is wanted again; where its size, tier, network or SSH is another, nodes are replaced one by one
    #[arg(long, value_name = "REVISION", allow_negative_numbers = true, value_parser = whole::<u64>)]
    to: u64,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

const COLUMNS: &[Column] = &[
    ("Revision", "revision"),
    ("At", "at"),
    ("By", "by"),
    ("Size", "size"),
    ("Tier", "tier"),
    ("Min", "min_instances"),
    ("Max", "max_instances"),
    ("Dedicated", "dedicated_instances"),
    ("Idle", "idle_time_before_scale_down"),
    ("Tags", "tags"),
    ("Changed", "changed"),
    ("Reference", "reference"),
    ("Current", "current"),
];

async fn revisions(name: &str, session: &Session) -> Outcome<Value> {
    let answer =
        session.client.get(&session.own_path(&format!("computes/{}/revisions", segment(name)))).await?;
    Ok(answer["value"].clone())
}

pub async fn history(args: &HistoryArgs, session: &Session) -> Outcome<()> {
    let mut revisions = revisions(&args.name, session).await?;
    say_changes(revisions.as_array_mut().map_or(&mut [], Vec::as_mut_slice));
    session.print(&revisions, COLUMNS)
}

/// Puts into each revision what is different in it from the one before; the newest comes first.
fn say_changes(revisions: &mut [Value]) {
    /// What a revision is, rather than what it defines.
    const ABOUT: [&str; 5] = ["revision", "at", "by", "reference", "current"];
    for at in 1..revisions.len() {
        let (newer, older) = (&revisions[at - 1], &revisions[at]);
        let changed: Vec<&str> = newer
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, value)| !ABOUT.contains(&key.as_str()) && **value != older[key.as_str()])
            .map(|(key, _)| key.as_str())
            .collect();
        revisions[at - 1]["changed"] = changed.join(", ").into();
    }
}

/// Going back is going on: the old definition becomes a new revision.
pub async fn rollback(args: &RollbackArgs, session: &Session) -> Outcome<()> {
    let revisions = revisions(&args.name, session).await?;
    let wanted = revisions.as_array().into_iter().flatten().find(|revision| revision["revision"] == args.to);
    let Some(wanted) = wanted else {
        let message = format!("{} has no revision {}", args.name, args.to);
        return Err(Failure::new(Exit::NotFound, message)
            .hint(format!("'neap compute history -n {}' lists those it has", args.name)));
    };
    let mut properties: Vec<(&str, Value)> = [
        "min_instances",
        "max_instances",
        "dedicated_instances",
        "idle_time_before_scale_down",
        "tags",
        "description",
        "size",
        "enable_node_public_ip",
    ]
    .into_iter()
    .map(|key| (key, wanted[key].clone()))
    .filter(|(key, value)| !value.is_null() || matches!(*key, "tags" | "description"))
    .collect();
    let given = |key: &str| Some(wanted[key].clone()).filter(|value| !value.is_null());
    let low = wanted["tier"] == "LowPriority";
    properties.extend(given("tier").map(|_| ("tier", json!(if low { "low_priority" } else { "dedicated" }))));
    properties.extend(given("subnet").map(|subnet| ("network_settings.subnet", subnet)));
    properties.extend(given("ssh_admin_username").map(|user| ("ssh_settings.admin_username", user)));
    properties.extend(given("ssh_key_value").map(|key| ("ssh_settings.ssh_key_value", key)));
    properties.extend(
        given("ssh_public_access").map(|word| ("ssh_public_access_enabled", json!(word == "Enabled"))),
    );
    let plan = change::plan_update(&args.name, &properties, session).await?;
    let changes = plan["changes"].as_array().cloned().unwrap_or_default();
    if changes.is_empty() {
        session.terminal.note("Nothing would change.");
        return session.print(&json!({"name": args.name, "changes": []}), &[("Name", "name")]);
    }
    if !args.yes {
        session.terminal.note(&describe(&plan));
        session.terminal.confirm(&format!("Roll {} back to revision {}?", args.name, args.to))?;
    }
    change::set_properties(&args.name, &properties, session).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_that_look_alike_say_what_is_different() {
        let mut revisions = [
            json!({"revision": 3, "by": "ann", "max_instances": 2, "tags": {"a": "b"}, "dedicated_instances": 1}),
            json!({"revision": 2, "by": "bob", "max_instances": 2, "tags": {}, "dedicated_instances": 0}),
            json!({"revision": 1, "by": "bob", "max_instances": 4, "tags": {}, "dedicated_instances": 0}),
        ];
        say_changes(&mut revisions);
        let changed = revisions.map(|revision| revision["changed"].clone());
        assert_eq!(changed, [json!("tags, dedicated_instances"), json!("max_instances"), Value::Null]);
    }
}
