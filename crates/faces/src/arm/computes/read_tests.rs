//! Bodies in, what was read and which problems out.

use neap_core::documents::ClusterDocument;
use neap_core::problem::Code;
use serde_json::{Value, json};

use super::{Asked, Form, read, warnings};

#[allow(clippy::needless_pass_by_value, reason = "cases read better with the literal itself")]
fn put(inner: Value) -> Value {
    json!({"location": "westus", "properties": {"computeType": "AmlCompute", "properties": inner}})
}

fn codes(asked: &Asked) -> Vec<(Code, &str)> {
    asked.problems.iter().map(|p| (p.code, p.target.as_deref().unwrap_or(""))).collect()
}

#[test]
fn what_the_sdk_sends_is_read() {
    let body = json!({"location": "westus", "tags": {"a": "b"}, "identity": {"type": "Systemassigned"},
        "properties": {"computeType": "amlcompute", "description": "d", "disableLocalAuth": false,
            "properties": {"vmSize": "STANDARD_DS3_v2", "vmPriority": "Lowpriority", "osType": "Linux", "enableNodePublicIp": true,
                "scaleSettings": {"maxNodeCount": 4, "minNodeCount": 0, "nodeIdleTimeBeforeScaleDown": "PT2M"},
                "subnet": {"id": "/x/subnets/sn"}, "remoteLoginPortPublicAccess": "Enabled",
                "userAccountCredentials": {"adminUserName": "u", "adminUserPassword": "pw", "adminUserSshPublicKey": "k"}}}});
    let asked = read(&body, None, Form::Put);
    assert_eq!(asked.problems, []);
    assert_eq!(
        (asked.location.as_deref(), asked.size.as_deref(), asked.tier.as_deref()),
        (Some("westus"), Some("STANDARD_DS3_v2"), Some("Lowpriority"))
    );
    assert_eq!((asked.min, asked.max, asked.idle_ms), (Some(0), Some(4), Some(120_000)));
    assert_eq!(asked.password.as_deref(), Some("pw"));
    assert_eq!(asked.document.admin_password_hash, None);
    assert_eq!(warnings(&asked.document).len(), 3);
}

#[test]
fn an_absent_idle_time_is_the_default_in_a_put_and_unchanged_in_a_patch() {
    for (body, form, expect) in [
        (put(json!({"scaleSettings": {"maxNodeCount": 4}})), Form::Put, Some(120_000)),
        (
            put(json!({"scaleSettings": {"maxNodeCount": 4, "nodeIdleTimeBeforeScaleDown": null}})),
            Form::Put,
            Some(120_000),
        ),
        (put(json!({"scaleSettings": {"nodeIdleTimeBeforeScaleDown": "PT0S"}})), Form::Put, Some(0)),
        (put(json!({"scaleSettings": {"nodeIdleTimeBeforeScaleDown": "-PT5S"}})), Form::Put, Some(-5_000)),
        (put(json!({})), Form::Put, None),
        (json!({"properties": {"scaleSettings": {"maxNodeCount": 8}}}), Form::Patch, None),
        (json!({"properties": {"properties": {"scaleSettings": {"maxNodeCount": 8}}}}), Form::Patch, None),
    ] {
        let asked = read(&body, Some(&ClusterDocument::default()), form);
        assert_eq!(asked.idle_ms, expect, "{body}");
        assert_eq!(asked.problems, [], "{body}");
        if form == Form::Patch {
            assert_eq!(asked.max, Some(8), "{body}");
        }
    }
}

#[test]
fn all_shape_problems_come_at_once() {
    let body = json!({"location": 3, "tags": "x", "properties": {"computeType": "AmlCompute", "properties": {
        "vmSize": 1, "scaleSettings": {"minNodeCount": "2", "nodeIdleTimeBeforeScaleDown": "120"},
        "osType": "Windows", "isolatedNetwork": true, "remoteLoginPortPublicAccess": "Maybe"}}});
    let asked = read(&body, None, Form::Put);
    assert_eq!(asked.problems.len(), 8, "{:#?}", asked.problems);
}

#[test]
fn other_types_of_compute_are_refused_with_what_to_use_instead() {
    for kind in ["ComputeInstance", "Kubernetes", "VirtualMachine", "Robot"] {
        let asked = read(
            &json!({"location": "westus", "properties": {"computeType": kind, "properties": {}}}),
            None,
            Form::Put,
        );
        assert_eq!(codes(&asked), [(Code::NotSupported, "properties.computeType")], "{kind}");
    }
    assert_eq!(
        codes(&read(&json!({"properties": {}}), None, Form::Put)),
        [(Code::BadArgument, "properties.computeType")]
    );
}

#[test]
fn what_may_not_change_is_refused_and_the_same_again_is_not() {
    let current = ClusterDocument {
        subnet: Some("/x/subnets/sn".into()),
        public_ip: Some(true),
        remote_login: Some("NotSpecified".into()),
        local_auth_disabled: Some(true),
        ..ClusterDocument::default()
    };
    for (inner, expect) in [
        (
            json!({"subnet": {}, "remoteLoginPortPublicAccess": "Disabled", "enableNodePublicIp": true, "userAccountCredentials": null}),
            None,
        ),
        (json!({"subnet": {"id": "/X/subnets/SN"}, "remoteLoginPortPublicAccess": "NotSpecified"}), None),
        (json!({"subnet": null}), None),
        (json!({"subnet": {"id": "/y"}}), Some("properties.properties.subnet")),
        (json!({"enableNodePublicIp": false}), Some("properties.properties.enableNodePublicIp")),
        (
            json!({"remoteLoginPortPublicAccess": "Enabled"}),
            Some("properties.properties.remoteLoginPortPublicAccess"),
        ),
        (
            json!({"userAccountCredentials": {"adminUserName": "u"}}),
            Some("properties.properties.userAccountCredentials.adminUserName"),
        ),
    ] {
        let asked = read(&put(inner.clone()), Some(&current), Form::Put);
        let expect: Vec<_> =
            expect.into_iter().map(|place| (Code::PropertyChangeNotAllowed, place)).collect();
        assert_eq!(codes(&asked), expect, "{inner}");
    }
    let asked = read(
        &json!({"properties": {"computeType": "AmlCompute", "disableLocalAuth": false, "properties": {}}}),
        Some(&current),
        Form::Put,
    );
    assert_eq!(codes(&asked), [(Code::PropertyChangeNotAllowed, "properties.disableLocalAuth")]);
}

#[test]
fn tags_description_and_identity_may_change_and_absent_ones_stay() {
    let current = ClusterDocument {
        description: Some("d".into()),
        identity: Some(json!({"type": "SystemAssigned"})),
        ..ClusterDocument::default()
    };
    let kept = read(&put(json!({})), Some(&current), Form::Put).document;
    assert_eq!(kept, current);
    let body = json!({"tags": {"a": "1"}, "identity": {"type": "None"}, "properties": {"computeType": "AmlCompute", "description": "", "properties": {}}});
    let changed = read(&body, Some(&current), Form::Put).document;
    assert_eq!((changed.identity, changed.description.as_deref(), changed.tags.len()), (None, Some(""), 1));
}
