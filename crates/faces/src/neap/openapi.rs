//! The description of `/neap/v1` for machines.

use serde_json::{Value, json};

use crate::ask::Ask;

const WORKSPACE: &str = "/neap/v1/subscriptions/{subscription}/resourceGroups/{group}/workspaces/{workspace}";

pub(crate) fn document(ask: &Ask) -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let capacity = json!({"type": "object", "properties": {"cpus": {"type": "number"}, "memory_mb": number, "gpus": number}});
    let mut paths = serde_json::Map::new();
    paths.insert(
        "/neap/v1/status".into(),
        json!({"get": operation("The server in a few numbers.", &[], &json!({"type": "object", "properties": {
            "version": text, "installation_id": text, "pid": number, "uptime_ms": number, "url": text, "read_only": {"type": ["string", "null"]}, "seq": number,
            "workspaces": number, "clusters": number, "nodes": {"type": "object", "additionalProperties": number},
            "jobs": {"type": "object", "properties": {"queued": number, "running": number}}, "resident_bytes": number,
            "isolation": {"type": "array", "items": text}, "isolation_missing": {"type": "array", "items": text}}}))}),
    );
    paths.insert(
        "/neap/v1/shutdown".into(),
        json!({"post": {"summary": "Asks the process to end.", "requestBody": {"content": {"application/json": {"schema": {"type": "object",
            "properties": {"leave_nodes": {"type": "boolean"}, "grace_ms": number}}}}}, "responses": {"202": {"description": "It is ending."}}}}),
    );
    paths.insert(
        format!("{WORKSPACE}/computes/{{compute}}/nodes"),
        json!({"get": operation("A cluster's nodes; with gone=true also those that are gone.", &["compute", "?gone", "?at"], &json!({"type": "object", "properties": {
            "value": {"type": "array", "items": {"type": "object", "properties": {"node_id": text, "state": text, "since": text, "reason": text,
                "job": {"type": ["string", "null"]}, "nominal": capacity, "actual": capacity}}}}}))}),
    );
    paths.insert(
        format!("{WORKSPACE}/computes/{{compute}}/diff"),
        json!({"get": operation("What is different about a cluster between two times; without 'to', until now.", &["compute", "?from", "?to"],
            &json!({"type": "object", "properties": {"cluster": text, "from": text, "to": text, "left_out": number,
                "changes": {"type": "array", "items": {"type": "object", "properties": {"what": text, "from": {}, "to": {}}}}}}))}),
    );
    paths.insert(
        format!("{WORKSPACE}/computes/{{compute}}/nodes/{{node}}/log"),
        json!({"get": plain("A node's boot log.", &["compute", "node"])}),
    );
    paths.insert(
        format!("{WORKSPACE}/computes/{{compute}}/health"),
        json!({"get": operation("One verdict on a cluster, with the signals behind it.", &["compute"], &json!({"type": "object", "properties": {
            "cluster": text, "verdict": {"type": "string", "enum": ["healthy", "degraded", "failing"]}, "healthy": {"type": "boolean"}, "at": text,
            "nodes": {"type": "object", "additionalProperties": number}, "target_nodes": number, "min_nodes": number, "max_nodes": number,
            "jobs": {"type": "object", "properties": {"queued": number, "active": number}},
            "signals": {"type": "array", "items": {"type": "object", "properties": {"signal": text, "verdict": text, "value": {"type": "number"},
                "metric": text, "says": text}}}}}))}),
    );
    for (path, what) in [
        ("computes/{compute}/queue", "Who waits, in which order, and what each owner has used."),
        ("computes/{compute}/explain", "Why a cluster is as it is, and what the first who wait lack."),
        (
            "computes/{compute}/dependents",
            "What hangs on a cluster: jobs, schedules, batch deployments, budgets, locks.",
        ),
        ("allowances", "How much each user or team may have running; PUT sets one."),
    ] {
        paths.insert(
            format!("{WORKSPACE}/{path}"),
            json!({"get": operation(what, &["compute"], &json!({"type": "object"}))}),
        );
    }
    for verb in ["cordon", "uncordon", "drain"] {
        paths.insert(
            format!("{WORKSPACE}/computes/{{compute}}/nodes/{{node}}/{verb}"),
            json!({"post": {"summary": "Keeps new work off a node, lets it on again, or has the node go once its work is done.",
                "responses": {"200": {"description": "As it is now."}}}}),
        );
    }
    for (path, parts, what) in [
        (
            "jobs/{job}/plan",
            ["job", "?duration_s", "?boot_s"].as_slice(),
            "When a job with this body would start and end, what it would cost and whom it would delay; nothing is changed. Components and environments that are not registered come beside it as drafts, [{id, properties}], and paths of the default datastore that nobody has uploaded to yet as uploads.",
        ),
        (
            "computes/{compute}/plan",
            ["compute"].as_slice(),
            "What this definition of a cluster would mean for those who wait; nothing is changed.",
        ),
    ] {
        paths.insert(
            format!("{WORKSPACE}/{path}"),
            json!({"post": operation(what, parts, &json!({"type": "object"}))}),
        );
    }
    let window = json!({"type": "object", "properties": {"name": text, "compute": text, "enabled": {"type": "boolean"}, "open": {"type": "boolean"},
        "start": text, "end": text, "duration": text, "time_zone": text, "not_on": {"type": "array", "items": text},
        "also_on": {"type": "array", "items": text}, "min": number, "max": number, "running": {"type": "string", "enum": ["finish", "stop"]},
        "next_change": {"type": ["object", "null"]}, "spans": {"type": "array", "items": {"type": "object"}}}});
    paths.insert(
        format!("{WORKSPACE}/computes/{{compute}}/schedules"),
        json!({"get": operation("Windows on a cluster's minimum and maximum, and what is in force.", &["compute"],
            &json!({"type": "object", "properties": {"value": {"type": "array", "items": window}, "in_force": {"type": "object"}}}))}),
    );
    paths.insert(
        format!("{WORKSPACE}/computes/{{compute}}/schedules/{{schedule}}"),
        json!({
            "get": operation("One window.", &["compute", "schedule"], &window),
            "put": operation("Puts a window in place.", &["compute", "schedule"], &window),
            "delete": plain("Takes a window away; what is declared is in force at once.", &["compute", "schedule"]),
        }),
    );
    for verb in ["enable", "disable"] {
        paths.insert(
            format!("{WORKSPACE}/computes/{{compute}}/schedules/{{schedule}}/{verb}"),
            json!({"post": operation("Switches a window on or off.", &["compute", "schedule"], &window)}),
        );
    }
    paths.insert(
        format!("{WORKSPACE}/computes/{{compute}}"),
        json!({"put": operation("Changes a cluster as ARM's PUT does, and also its size, tier, SSH and network: nodes are then replaced one by one.",
            &["compute", "?neapDryRun"], &json!({"type": "object"}))}),
    );
    let kept = json!({"type": "array", "items": {"type": "object", "properties": {"rank": number, "attempt": number, "saved": text,
        "changed": {"type": ["string", "null"]}, "ended": {"type": ["string", "null"]}, "files": number, "bytes": number,
        "lost_seconds": {"type": ["number", "null"]}}}});
    paths.insert(
        format!("{WORKSPACE}/computes/{{compute}}/evict"),
        json!({"post": {"summary": "Takes a node back, as an eviction would; with simulate=true says what that would interrupt and does nothing.",
            "requestBody": {"content": {"application/json": {"schema": {"type": "object", "properties": {"node": text,
                "grace_seconds": {"type": "number"}, "simulate": {"type": "boolean"}, "reason": text}}}}},
            "responses": {"200": {"description": "What would happen."}, "202": {"description": "It is being taken back."}}}}),
    );
    paths.insert(
        format!("{WORKSPACE}/jobs/{{job}}/checkpoint"),
        json!({"get": operation("What is kept of a job between its attempts, and what its last attempt began with.", &["job"],
            &json!({"type": "object", "properties": {"job": text, "status": text, "attempt": number, "nodes": {"type": "array", "items": text},
                "started": {"type": ["string", "null"]}, "restored": {"type": ["string", "null"]}, "lost_seconds": {"type": ["number", "null"]},
                "checkpoint": kept}}))}),
    );
    paths.insert(
        format!("{WORKSPACE}/jobs/{{job}}/log"),
        json!({"get": plain("A job's log from an offset; with follow=true until the job is final.", &["job", "?offset", "?follow"])}),
    );
    paths.insert(
        format!("{WORKSPACE}/jobs/{{job}}/explain"),
        json!({"get": operation("Why a job is where it is.", &["job"], &json!({"type": "object", "properties": {"job": text, "status": text, "reasons": {"type": "array", "items": text}}}))}),
    );
    paths.insert(
        format!("{WORKSPACE}/jobs/{{job}}/provenance"),
        json!({"get": operation("What a job was made of and ran on, as it was then.", &["job"], &json!({"type": "object", "properties": {
            "job": text, "status": text, "owner": text, "attempt": number, "times": {"type": "object"}, "component": {"type": ["string", "null"]},
            "code": {"type": ["object", "null"]}, "environment": {"type": "object"}, "inputs": {"type": "object"}, "outputs": {"type": "object"},
            "cluster": {"type": "object"}, "nodes": {"type": "array", "items": text}, "versions": {"type": "object"},
            "members": {"type": "array", "items": text}}}))}),
    );
    paths.insert(
        format!("{WORKSPACE}/jobs/{{job}}/services/{{service}}/link"),
        json!({"post": operation("A link by which a browser reaches a service of a job, once and within a minute.", &["job", "service", "?node"],
            &json!({"type": "object", "properties": {"url": text, "expiresInSeconds": number}}))}),
    );
    let point = json!({"value": {"type": ["number", "string"]}, "step": number, "timestamp": number});
    paths.insert(
        format!("{WORKSPACE}/jobs/{{job}}/metrics"),
        json!({"get": operation("What a job logged: the last value of each metric, and its parameters; with metric=NAME that metric's history, in pages.",
            &["job", "?metric", "?limit", "?token"], &json!({"type": "object", "properties": {"job": text,
                "metrics": {"type": "array", "items": {"type": "object", "properties": point}}, "params": {"type": "object"}, "tags": {"type": "object"},
                "metric": text, "history": {"type": "array", "items": {"type": "object", "properties": point}}, "next": {"type": ["string", "null"]}}}))}),
    );
    let budget = json!({"type": "object", "properties": {"name": text, "on": text, "scope": {"type": "object"}, "amount_usd": text, "period": text,
        "period_start": {"type": ["string", "null"]}, "period_end": {"type": ["string", "null"]}, "spent_usd": text, "reserved_usd": text, "left_usd": text,
        "over_usd": text, "excess_usd": text, "at_cap": text, "thresholds": {"type": "array", "items": number}, "by": text,
        "earlier": {"type": "array", "items": {"type": "object"}}}});
    paths.insert(
        "/neap/v1/budgets".into(),
        json!({"get": operation("Budgets, and how they stand.", &[], &json!({"type": "object", "properties": {"value": {"type": "array", "items": budget}}}))}),
    );
    let named = |mut operation: Value| {
        operation["parameters"] = json!([{"name": "name", "in": "path", "required": true, "schema": text}]);
        operation
    };
    paths.insert(
        "/neap/v1/budgets/{name}".into(),
        json!({
            "get": named(operation("One budget.", &[], &budget)),
            "put": named(operation("Sets a budget, or changes what is given of one that is there.", &[], &budget)),
            "delete": named(plain("Takes a budget away.", &[])),
        }),
    );
    let secret = json!({"type": "object", "properties": {"name": text, "created": text, "modified": text, "modified_by": text}});
    paths.insert(
        format!("{WORKSPACE}/secrets"),
        json!({"get": operation("The secrets of a workspace; never their values.", &["?at"], &json!({"type": "object", "properties": {"value": {"type": "array", "items": secret}}}))}),
    );
    let mut put = operation("Creates a secret, or replaces its value.", &["name"], &secret);
    put["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": {"type": "object", "required": ["value"],
        "properties": {"value": {"type": "string", "writeOnly": true}}}}}});
    paths.insert(
        format!("{WORKSPACE}/secrets/{{name}}"),
        json!({
            "get": operation("When a secret was changed, and by whom; never its value.", &["name"], &secret),
            "put": put,
            "delete": plain("Deletes a secret and its value.", &["name"]),
        }),
    );
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Neap", "version": "1", "description": "What Azure ML's own interface has no words for."},
        "servers": [{"url": ask.base}],
        "security": [{"bearer": []}],
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}},
        "paths": paths,
    })
}

/// Parameters that begin with `?` are in the query, others in the path.
fn parameters(names: &[&str]) -> Vec<Value> {
    let in_path = ["subscription", "group", "workspace"]
        .into_iter()
        .filter(|_| !names.is_empty())
        .chain(names.iter().copied());
    in_path
        .map(|name| match name.strip_prefix('?') {
            Some(name) => {
                json!({"name": name, "in": "query", "required": false, "schema": {"type": "string"}})
            }
            None => json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
        })
        .collect()
}

fn operation(summary: &str, names: &[&str], schema: &Value) -> Value {
    json!({"summary": summary, "parameters": parameters(names),
           "responses": {"200": {"description": "As asked.", "content": {"application/json": {"schema": schema}}}}})
}

fn plain(summary: &str, names: &[&str]) -> Value {
    json!({"summary": summary, "parameters": parameters(names),
           "responses": {"200": {"description": "As asked.", "content": {"text/plain": {"schema": {"type": "string"}}}}}})
}
