//! A cluster's managed identity as written and as answered. It is kept, and not in force yet.

use neap_core::{ClusterId, Problem};
use serde_json::{Map, Value, json};

use super::super::{errors::bad, paths};
use crate::app::Installation;

/// Reads `identity`: canonical `type`, user-assigned ids as given. `None` inside means "no identity".
pub(super) fn read(value: &Value, problems: &mut Vec<Problem>) -> Option<Value> {
    let Value::Object(map) = value else {
        problems.push(bad("'identity' must be an object with a 'type'.", "identity"));
        return None;
    };
    let asked = map.get("type").and_then(Value::as_str).unwrap_or("");
    let plain: String =
        asked.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect();
    let (kind, with_users) = match plain.as_str() {
        "none" => return None,
        "systemassigned" => ("SystemAssigned", false),
        "userassigned" => ("UserAssigned", true),
        "systemassigneduserassigned" => ("SystemAssigned,UserAssigned", true),
        _ => {
            problems.push(bad(
                format!("The identity type '{asked}' is not known: SystemAssigned, UserAssigned, SystemAssigned,UserAssigned or None."),
                "identity.type",
            ));
            return None;
        }
    };
    let mut out = Map::new();
    out.insert("type".into(), json!(kind));
    if with_users {
        let ids: Map<String, Value> = match map.get("userAssignedIdentities") {
            Some(Value::Object(ids)) => ids.keys().map(|id| (id.clone(), json!({}))).collect(),
            Some(Value::Array(ids)) => {
                ids.iter().filter_map(Value::as_str).map(|id| (id.to_owned(), json!({}))).collect()
            }
            _ => Map::new(),
        };
        if ids.is_empty() {
            problems.push(bad(
                "A user-assigned identity needs at least one id in 'userAssignedIdentities'.",
                "identity.userAssignedIdentities",
            ));
        }
        out.insert("userAssignedIdentities".into(), Value::Object(ids));
    }
    Some(Value::Object(out))
}

/// Adds the principals, which are always the same for the same cluster.
pub(crate) fn answer(installation: &Installation, cluster: ClusterId, kept: Option<&Value>) -> Value {
    let Some(Value::Object(kept)) = kept else { return Value::Null };
    let mut out = kept.clone();
    let id = cluster.to_string();
    if kept.get("type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("System")) {
        out.insert(
            "principalId".into(),
            json!(paths::derived_guid(&[&installation.id, "cluster-principal", &id])),
        );
        out.insert("tenantId".into(), json!(installation.tenant_id));
    }
    if let Some(Value::Object(users)) = out.get_mut("userAssignedIdentities") {
        for (user, slot) in users.iter_mut() {
            let user = user.to_lowercase();
            *slot = json!({
                "principalId": paths::derived_guid(&[&installation.id, "user-principal", &user]),
                "clientId": paths::derived_guid(&[&installation.id, "user-client", &user]),
            });
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_in_any_case_come_out_canonical() {
        for (asked, expect) in [
            (json!({"type": "Systemassigned"}), Some(json!({"type": "SystemAssigned"}))),
            (json!({"type": "system_assigned"}), Some(json!({"type": "SystemAssigned"}))),
            (json!({"type": "None"}), None),
            (
                json!({"type": "Userassigned", "userAssignedIdentities": {"/subscriptions/<id>/x": {"clientId": "c"}}}),
                Some(
                    json!({"type": "UserAssigned", "userAssignedIdentities": {"/subscriptions/<id>/x": {}}}),
                ),
            ),
        ] {
            let mut problems = Vec::new();
            assert_eq!(read(&asked, &mut problems), expect, "{asked}");
            assert!(problems.is_empty(), "{problems:?}");
        }
        for bad in [json!({"type": "Robot"}), json!({}), json!(3), json!({"type": "UserAssigned"})] {
            let mut problems = Vec::new();
            read(&bad, &mut problems);
            assert_eq!(problems.len(), 1, "{bad}");
        }
    }
}
