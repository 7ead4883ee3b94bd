//! The outputs of a pipeline and of its steps: their types, where they will lie, and whose they are.

use std::collections::{BTreeMap, BTreeSet};

use neap_core::Problem;
use serde_json::{Map, Value, json};

use super::bindings::{self, Binding};
use super::inputs::Given;
use super::scope::{Scope, Written};
use crate::arm::errors::bad;

/// An output that a step makes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Made {
    pub kind: String,
    pub uri: String,
    /// The step that makes it.
    pub by: usize,
    /// What stands for its content when work is compared.
    pub identity: Value,
}

impl Made {
    /// As another step takes it: the same place, nothing is copied.
    pub(super) fn as_input(&self) -> Given {
        Given {
            input: json!({"jobInputType": self.kind, "uri": self.uri}),
            after: BTreeSet::from([self.by]),
            identity: self.identity.clone(),
        }
    }
}

/// An output that a pipeline's owner said something about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    declared: Map<String, Value>,
}

/// The outputs of the pipeline that was submitted: those that it is asked for, over those that its component declares.
pub(super) fn of_pipeline(outputs: &Value, component: &Value) -> BTreeMap<String, Wanted> {
    let entries = [component, outputs].into_iter().filter_map(Value::as_object).flatten();
    let declared = |value: &Value| value.as_object().cloned().unwrap_or_default();
    entries.map(|(name, value)| (name.clone(), Wanted { declared: declared(value) })).collect()
}

/// An output of a step, before it is known whether it will be made.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub kind: String,
    pub uri: String,
    /// The user said where.
    pub is_explicit: bool,
    /// The pipeline's name for it, where it is the pipeline's.
    pub parent: Option<String>,
    declared: Map<String, Value>,
}

impl Output {
    /// As a job's body has it.
    pub(super) fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("jobOutputType".into(), json!(self.kind));
        body.insert("uri".into(), json!(self.uri));
        for (from, to) in [
            ("mode", "mode"),
            ("assetName", "assetName"),
            ("asset_name", "assetName"),
            ("name", "assetName"),
            ("assetVersion", "assetVersion"),
            ("asset_version", "assetVersion"),
            ("version", "assetVersion"),
        ] {
            if let Some(value) = self.declared.get(from).filter(|value| value.is_string()) {
                body.insert(to.into(), value.clone());
            }
        }
        Value::Object(body)
    }

    /// As a nested pipeline hands it down.
    pub(super) fn wanted(&self) -> Wanted {
        let mut declared = self.declared.clone();
        declared.remove("value");
        declared.insert("jobOutputType".into(), json!(self.kind));
        if self.is_explicit {
            declared.insert("uri".into(), json!(self.uri));
        }
        Wanted { declared }
    }
}

/// Of a step's outputs those that are the pipeline's, with the pipeline's name for them.
pub(super) fn bound_to_parent(outputs: &BTreeMap<String, Output>) -> BTreeMap<String, String> {
    outputs.iter().filter_map(|(name, output)| Some((name.clone(), output.parent.clone()?))).collect()
}

/// Every output that a step of this name declares or is asked for, and where it will lie.
pub(super) fn of_step(
    scope: &Scope,
    step: &Written<'_>,
    job: &str,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Output> {
    let declared = step.declaration["outputs"].as_object();
    let asked = step.node["outputs"].as_object();
    for (name, _) in asked.into_iter().flatten() {
        if !step.is_inline() && declared.is_none_or(|declared| !declared.contains_key(name)) {
            problems.push(bad(
                format!("The component of this step has no output '{name}'."),
                &step.place_of("outputs", name),
            ));
        }
    }
    let names: BTreeSet<&String> = [declared, asked].into_iter().flatten().flat_map(Map::keys).collect();
    names
        .into_iter()
        .map(|name| {
            let own = asked.and_then(|asked| asked.get(name)).and_then(Value::as_object);
            let own = own.cloned().unwrap_or_default();
            let kind = declared.and_then(|declared| declared.get(name)?["type"].as_str());
            let place = step.place_of("outputs", name);
            let parent = parent(scope, &own, &place, problems);
            (name.clone(), output(scope, job, (name, kind, own), parent))
        })
        .collect()
}

/// The pipeline's output that a step's is bound to.
fn parent(
    scope: &Scope,
    own: &Map<String, Value>,
    place: &str,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let bound = own.get("value")?.as_str()?;
    let Some(Binding::ParentOutput(parent)) = bindings::whole(bound) else { return None };
    if !scope.wanted.contains_key(parent) {
        problems.push(bad(format!("'{bound}' names an output that the pipeline does not have."), place));
        return None;
    }
    Some(parent.to_owned())
}

/// One output: what the pipeline says of it, over which the step's own words go.
fn output(
    scope: &Scope,
    job: &str,
    (name, kind, own): (&str, Option<&str>, Map<String, Value>),
    parent: Option<String>,
) -> Output {
    let inherited = parent.as_ref().and_then(|parent| scope.wanted.get(parent)).cloned().unwrap_or_default();
    let mut declared = inherited.declared;
    declared.extend(own.into_iter().filter(|(key, value)| key != "value" && !value.is_null()));
    let said = |keys: &[&str]| keys.iter().find_map(|key| declared.get(*key)?.as_str());
    let kind =
        kind.or_else(|| said(&["jobOutputType", "job_output_type"])).unwrap_or("uri_folder").to_owned();
    let told = said(&["uri", "path"]).filter(|uri| !uri.is_empty()).map(String::from);
    let datastore = &scope.defaults.datastore;
    let is_explicit = told.is_some();
    let uri = told.unwrap_or_else(|| {
        let folder = format!("azureml://datastores/{datastore}/paths/azureml/{job}/{name}/");
        if kind.eq_ignore_ascii_case("uri_file") { folder + name } else { folder }
    });
    let uri = uri
        .replace("${{name}}", job)
        .replace("${{output_name}}", name)
        .replace("${{default_datastore}}", datastore);
    Output { kind, uri, is_explicit, parent, declared }
}
