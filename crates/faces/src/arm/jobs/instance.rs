//! A command job that names a registered component (`componentId`): what the job itself does not say, the component
//! says. What both say, the job decides; inputs are held against what the component declares.

use std::borrow::Cow;

use neap_core::state::Workspace;
use neap_core::{Problem, Refusal};
use serde_json::{Map, Value, json};

use super::pipeline::{check_literal, component_body, find_component, is_literal};
use super::references::Shelf;
use crate::arm::errors::bad;

/// The job's body with its component's parts in place; as it is, for a job without one.
pub(super) fn filled<'a>(
    body: &'a Value,
    workspace: &Workspace,
    shelf: &dyn Shelf,
    problems: &mut Vec<Problem>,
) -> Result<Cow<'a, Value>, Refusal> {
    let asked = &body["properties"];
    let Some(id) = asked["componentId"].as_str().filter(|id| !id.is_empty()) else {
        return Ok(Cow::Borrowed(body));
    };
    let place = "properties.componentId";
    let Some(spec) = find_component(shelf, workspace, id, place, problems)? else {
        return Ok(Cow::Borrowed(body));
    };
    let kind = spec["type"].as_str().unwrap_or("command");
    if kind != "command" {
        problems.push(bad(
            format!("'{id}' is a component of type {kind}; a command job takes one of type command."),
            place,
        ));
        return Ok(Cow::Borrowed(body));
    }
    let mut out = match component_body(&spec)["properties"].take() {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for (key, value) in asked.as_object().into_iter().flatten() {
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        match (key.as_str(), out.get_mut(key)) {
            (_, Some(_)) if empty => {}
            ("environmentVariables" | "resources", Some(Value::Object(under))) => {
                under.extend(value.as_object().cloned().unwrap_or_default());
            }
            _ => drop(out.insert(key.clone(), value.clone())),
        }
    }
    out.insert("inputs".into(), Value::Object(inputs(&spec["inputs"], &asked["inputs"], problems)));
    out.insert("outputs".into(), Value::Object(outputs(&spec["outputs"], &asked["outputs"], problems)));
    let mut whole = body.clone();
    whole["properties"] = Value::Object(out);
    Ok(Cow::Owned(whole))
}

fn inputs(declared: &Value, given: &Value, problems: &mut Vec<Problem>) -> Map<String, Value> {
    let mut out = given.as_object().cloned().unwrap_or_default();
    for name in out.keys().filter(|name| declared.get(name.as_str()).is_none()) {
        problems
            .push(bad(format!("The component has no input '{name}'."), &format!("properties.inputs.{name}")));
    }
    for (name, declared) in declared.as_object().into_iter().flatten() {
        let place = format!("properties.inputs.{name}");
        let kind = declared["type"].as_str().unwrap_or("string");
        match out.get(name) {
            Some(input) if is_literal(kind) => {
                let value = super::ports::literal(&input["value"]);
                check_literal(declared, &value, &place, &format!("The input '{name}'"), problems);
            }
            Some(_) => {}
            None if !declared["default"].is_null() => {
                let default = json!({"jobInputType": "literal", "value": declared["default"]});
                out.insert(name.clone(), default);
            }
            None if declared["optional"] == true || declared["optional"] == "true" => {}
            None => problems.push(bad(
                format!("The component's input '{name}' has no default and is not given."),
                &place,
            )),
        }
    }
    out
}

fn outputs(declared: &Value, given: &Value, problems: &mut Vec<Problem>) -> Map<String, Value> {
    let mut out = given.as_object().cloned().unwrap_or_default();
    for name in out.keys().filter(|name| declared.get(name.as_str()).is_none()) {
        problems.push(bad(
            format!("The component has no output '{name}'."),
            &format!("properties.outputs.{name}"),
        ));
    }
    for (name, declared) in declared.as_object().into_iter().flatten() {
        let kind = declared["type"].as_str().unwrap_or("uri_folder");
        out.entry(name.clone()).or_insert_with(|| json!({"jobOutputType": kind}));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::jobs::references::tests::Fake;
    use crate::arm::paths::sample_workspace;

    fn shelf() -> Fake {
        let spec = json!({"type": "command", "command": "echo ${{inputs.n}} > ${{outputs.o}}/x", "code": "azureml:c:1",
            "environment": "azureml:e:1", "environment_variables": {"A": "1", "B": "1"}, "resources": {"instance_count": 2},
            "inputs": {"n": {"type": "integer", "default": 3, "max": 5}, "d": {"type": "uri_folder"}, "x": {"type": "string", "optional": true}},
            "outputs": {"o": {"type": "uri_folder"}}});
        Fake::with(&[
            ("component", "k", "1", json!({"componentSpec": spec})),
            ("component", "p", "1", json!({"componentSpec": {"type": "pipeline"}})),
        ])
    }

    fn fill(properties: &Value) -> (Value, Vec<String>) {
        let body = json!({"properties": properties});
        let mut problems = Vec::new();
        let filled = filled(&body, &sample_workspace(), &shelf(), &mut problems).unwrap().into_owned();
        (filled["properties"].clone(), problems.iter().map(|p| p.message.to_string()).collect())
    }

    #[test]
    fn what_the_job_does_not_say_the_component_says() {
        let (whole, problems) = fill(
            &json!({"jobType": "Command", "componentId": "azureml:k:1", "command": null, "computeId": "c",
            "environmentVariables": {"B": "2"}, "inputs": {"d": {"jobInputType": "uri_folder", "uri": "u"}}}),
        );
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(whole["command"], "echo ${{inputs.n}} > ${{outputs.o}}/x");
        assert_eq!(
            (&whole["codeId"], &whole["environmentId"]),
            (&json!("azureml:c:1"), &json!("azureml:e:1"))
        );
        assert_eq!(whole["environmentVariables"], json!({"A": "1", "B": "2"}));
        assert_eq!(whole["inputs"]["n"], json!({"jobInputType": "literal", "value": 3}));
        assert_eq!(whole["outputs"], json!({"o": {"jobOutputType": "uri_folder"}}));
        assert_eq!((&whole["resources"]["instanceCount"], &whole["computeId"]), (&json!(2), &json!("c")));
        let again = fill(&whole);
        assert_eq!(again, (whole, vec![]), "filling what is full changes nothing");
    }

    #[test]
    fn every_problem_is_told() {
        let (_, problems) =
            fill(&json!({"componentId": "azureml:k:1", "inputs": {"n": {"value": "9"}, "y": {"value": "1"}},
            "outputs": {"z": {"jobOutputType": "uri_file"}}}));
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert_eq!(fill(&json!({"componentId": "azureml:none:1"})).1.len(), 1);
        assert!(fill(&json!({"componentId": "azureml:p:1"})).1[0].contains("of type pipeline"));
    }
}
