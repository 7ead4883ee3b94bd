//! Old events in today's shape. A released version is never changed: when a kind gets a new version, a step here
//! lifts the old body, and the log itself stays as it was written.

use neap_core::event::DecodeError;
use neap_core::{Event, catalogue};
use serde_json::Value;

/// Lifts one kind from one version to a newer one; the ledger goes on from there until today's is reached.
struct Upcaster {
    kind: &'static str,
    from: u16,
    to_kind: &'static str,
    to: u16,
    lift: fn(Value) -> Value,
}

/// In the order they were made.
const UPCASTERS: &[Upcaster] = &[
    Upcaster { kind: "cluster.created", from: 1, to_kind: "cluster.created", to: 2, lift: with_family },
    Upcaster { kind: "job.requeued", from: 1, to_kind: "job.requeued", to: 2, lift: cause_of_flags },
];

/// Quotas count by family, which a cluster had to be looked up for.
fn with_family(mut created: Value) -> Value {
    let size = created["shape"]["size"].as_str().and_then(catalogue::size);
    created["shape"]["family"] = size.map_or("", |size| size.family).into();
    created
}

/// Two flags became one cause.
fn cause_of_flags(mut body: Value) -> Value {
    let cause = match (body["lost"].as_bool(), body["unprepared"].as_bool()) {
        (Some(true), _) => "node_lost",
        (_, Some(true)) => "unprepared",
        _ => "server_stopped",
    };
    if let Some(body) = body.as_object_mut() {
        body.remove("lost");
        body.remove("unprepared");
        body.insert("cause".into(), cause.into());
    }
    body
}

pub(crate) fn decode(kind: &str, version: u16, body: &[u8]) -> Result<Event, DecodeError> {
    decode_with(UPCASTERS, kind, version, body)
}

fn decode_with(upcasters: &[Upcaster], kind: &str, version: u16, body: &[u8]) -> Result<Event, DecodeError> {
    let find = |kind: &str, version: u16| upcasters.iter().find(|u| u.kind == kind && u.from == version);
    let Some(mut step) = find(kind, version) else { return Event::decode(kind, version, body) };
    let mut value: Value =
        serde_json::from_slice(body).map_err(|source| DecodeError::Body { kind: kind.into(), source })?;
    loop {
        value = (step.lift)(value);
        match find(step.to_kind, step.to) {
            Some(next) => step = next,
            None => return Event::decode(step.to_kind, step.to, value.to_string().as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use neap_core::event::NodeSilent;
    use neap_core::{Event, NodeId};

    use super::*;

    /// Two made-up ancestors of `node.silent`: first another name of the kind, then another name of the field.
    const MADE_UP: &[Upcaster] = &[
        Upcaster { kind: "node.quiet", from: 1, to_kind: "node.quiet", to: 2, lift: |v| v["who"].clone() },
        Upcaster {
            kind: "node.quiet",
            from: 2,
            to_kind: "node.silent",
            to: 1,
            lift: |v| serde_json::json!({ "id": v["node"] }),
        },
    ];

    #[test]
    fn an_old_version_is_lifted_step_by_step() {
        let today = Event::from(NodeSilent { id: NodeId(7) });
        for (version, body) in [(1, r#"{"who":{"node":7}}"#), (2, r#"{"node":7}"#)] {
            assert_eq!(decode_with(MADE_UP, "node.quiet", version, body.as_bytes()).unwrap(), today);
        }
        assert_eq!(decode_with(MADE_UP, "node.silent", 1, br#"{"id":7}"#).unwrap(), today);
    }

    #[test]
    fn a_cluster_of_before_quotas_gets_its_family() {
        let body = r#"{"id":1,"workspace":1,"name":"cpu","location":"westus","document":"DOC",
            "shape":{"size":"STANDARD_DS3_V2","nominal":{"cpus_milli":4000,"memory_mb":14336,"gpus":0},"tier":"Dedicated","price":1},
            "scale":{"min":0,"max":1,"idle_ms":1}}"#;
        let document = serde_json::to_value(neap_core::DocHash([0; 32])).unwrap();
        let body = body.replace("\"DOC\"", &document.to_string());
        let Event::ClusterCreated(created) = decode("cluster.created", 1, body.as_bytes()).unwrap() else {
            panic!()
        };
        assert_eq!(&*created.shape.family, "standardDSv2Family");
    }

    #[test]
    fn the_flags_of_a_requeued_job_become_its_cause() {
        use neap_core::event::JobRequeued;
        use neap_core::job::Cause;
        for (lost, unprepared, cause) in [
            (true, false, Cause::NodeLost),
            (false, true, Cause::Unprepared),
            (false, false, Cause::ServerStopped),
        ] {
            let body = format!(
                r#"{{"id":3,"attempt":2,"reason":"it went","lost":{lost},"unprepared":{unprepared}}}"#
            );
            let today = JobRequeued { id: neap_core::JobId(3), attempt: 2, reason: "it went".into(), cause };
            assert_eq!(decode("job.requeued", 1, body.as_bytes()).unwrap(), today.into());
        }
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        let refused = decode_with(MADE_UP, "node.quiet", 3, b"{}");
        assert!(matches!(refused, Err(DecodeError::Unknown { version: 3, .. })), "{refused:?}");
    }

    #[test]
    fn every_step_leads_to_a_known_kind() {
        for step in UPCASTERS {
            let known = Event::KINDS.contains(&(step.to_kind, step.to));
            let lifted = UPCASTERS.iter().any(|next| next.kind == step.to_kind && next.from == step.to);
            assert!(known || lifted, "{} {} leads nowhere", step.kind, step.from);
        }
    }
}
