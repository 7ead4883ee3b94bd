use std::sync::LazyLock;

use neap_core::documents::JobDocument;
use serde_json::json;

use super::*;
use crate::arm::jobs::data::Datastores;
use crate::arm::paths::sample_workspace;
use crate::elsewhere::DataRules;
use crate::environments::EnvironmentRules;

/// Components by name, version 1.
struct Components(Value, DataRules);

impl Shelf for Components {
    fn asset(&self, kind: &str, name: &str, _: Option<&str>) -> Result<Option<Value>, Refusal> {
        let found = (kind == "component").then(|| self.0.get(name)).flatten();
        Ok(found.map(|spec| json!({"componentSpec": spec})))
    }

    fn newest(&self, _: &str, _: &str) -> Result<Option<String>, Refusal> {
        Ok(None)
    }

    fn job(&self, _: &str) -> Result<Option<JobDocument>, Refusal> {
        Ok(None)
    }

    fn datastores(&self) -> Result<Datastores, Refusal> {
        Ok(Datastores::default())
    }

    fn rules(&self) -> &DataRules {
        &self.1
    }

    fn environments(&self) -> &EnvironmentRules {
        static NONE: LazyLock<EnvironmentRules> = LazyLock::new(EnvironmentRules::default);
        &NONE
    }

    fn containers_only(&self, _: &str) -> Result<bool, Refusal> {
        Ok(false)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "a test reads better without references")]
fn expanded(components: Value, properties: Value) -> Expansion {
    let workspace = sample_workspace();
    let shelf = Components(components, DataRules::default());
    let around = Around { shelf: &shelf, workspace: &workspace, earlier: &|_| Ok(None) };
    expand("pipe", &properties, &around).unwrap()
}

fn body_of<'a>(expansion: &'a Expansion, name: &str) -> &'a Value {
    let step = expansion.steps.iter().find(|step| step.name == name).expect("there is such a step");
    match &step.what {
        StepKind::Job { body, .. } => &body["properties"],
        StepKind::Pipeline { definition, .. } => definition,
    }
}

fn said(expansion: &Expansion) -> Vec<String> {
    expansion.problems.iter().map(|problem| problem.message.clone()).collect()
}

#[test]
fn an_output_is_the_next_steps_input_and_comes_first() {
    let expansion = expanded(
        json!({}),
        json!({
            "inputs": {"n": {"jobInputType": "literal", "value": "5"}},
            "settings": {"default_compute": "azureml:cpu"},
            "jobs": {
                "a_reader": {"type": "command", "command": "cat ${{inputs.i}}",
                    "inputs": {"i": {"job_input_type": "literal", "value": "${{parent.jobs.writer.outputs.o}}"}}},
                "writer": {"type": "command", "command": "echo ${{inputs.x}} > ${{outputs.o}}", "outputs": {"o": null},
                    "inputs": {"x": {"job_input_type": "literal", "value": "n is ${{parent.inputs.n}}"}}},
            },
        }),
    );
    assert_eq!(said(&expansion), Vec::<String>::new());
    let names: Vec<_> = expansion.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["pipe", "pipe_writer", "pipe_a_reader"]);
    assert_eq!(expansion.steps[2].after, BTreeSet::from([1]));
    let place = "azureml://datastores/workspaceblobstore/paths/azureml/pipe_writer/o/";
    assert_eq!(body_of(&expansion, "pipe_writer")["outputs"]["o"]["uri"], place);
    assert_eq!(body_of(&expansion, "pipe_writer")["inputs"]["x"]["value"], "n is 5");
    assert_eq!(
        body_of(&expansion, "pipe_a_reader")["inputs"]["i"],
        json!({"jobInputType": "uri_folder", "uri": place})
    );
    assert_eq!(body_of(&expansion, "pipe_a_reader")["computeId"], "azureml:cpu");
}

#[test]
fn components_bring_types_defaults_and_nested_pipelines() {
    let train = json!({"type": "command", "command": "train ${{inputs.lr}} ${{inputs.data}}", "code": "azureml:/c",
        "environment": "azureml:e:1", "inputs": {"lr": {"type": "number", "default": 0.1}, "data": {"type": "uri_folder"},
        "seed": {"type": "integer", "optional": true}}, "outputs": {"model": {"type": "uri_folder"}}});
    let inner = json!({"type": "pipeline", "inputs": {"d": {"type": "uri_folder"}}, "outputs": {"best": {"type": "uri_folder"}},
        "jobs": {"t": {"type": "command", "componentId": "azureml:train:1",
            "inputs": {"data": {"job_input_type": "literal", "value": "${{parent.inputs.d}}"}},
            "outputs": {"model": {"type": "literal", "value": "${{parent.outputs.best}}"}}}}});
    let expansion = expanded(
        json!({"train": train, "inner": inner}),
        json!({
            "inputs": {"raw": {"jobInputType": "uri_folder", "uri": "azureml://datastores/d/paths/raw/"}},
            "outputs": {"final": {"jobOutputType": "uri_folder", "uri": "azureml://datastores/d/paths/out/"}},
            "jobs": {
                "one": {"type": "pipeline", "componentId": "azureml:inner:1",
                    "inputs": {"d": {"job_input_type": "literal", "value": "${{parent.inputs.raw}}"}},
                    "outputs": {"best": {"type": "literal", "value": "${{parent.outputs.final}}"}}},
                "two": {"type": "command", "command": "x", "resources": {"instance_count": 2},
                    "limits": {"timeout": 60}, "environment_variables": {"A": "1"},
                    "inputs": {"m": {"job_input_type": "literal", "value": "${{parent.jobs.one.outputs.best}}"}}},
            },
        }),
    );
    assert_eq!(said(&expansion), Vec::<String>::new());
    let families: Vec<_> = expansion.steps.iter().map(|step| (step.name.as_str(), step.family)).collect();
    assert_eq!(families, [("pipe", 0), ("pipe_one", 0), ("pipe_one_t", 1), ("pipe_two", 0)]);
    let inner = body_of(&expansion, "pipe_one_t");
    assert_eq!(inner["inputs"]["lr"], json!({"jobInputType": "literal", "value": "0.1"}));
    assert_eq!(inner["inputs"]["data"]["uri"], "azureml://datastores/d/paths/raw/");
    assert_eq!(inner["inputs"].get("seed"), None);
    assert_eq!(inner["outputs"]["model"]["uri"], "azureml://datastores/d/paths/out/", "the owner says where");
    assert_eq!((&inner["codeId"], &inner["environmentId"]), (&json!("/c"), &json!("azureml:e:1")));
    let two = body_of(&expansion, "pipe_two");
    assert_eq!(two["inputs"]["m"]["uri"], "azureml://datastores/d/paths/out/");
    assert_eq!(
        expansion.steps[3].after,
        BTreeSet::from([2]),
        "after the step that makes it, within the other pipeline"
    );
    assert_eq!(two["resources"], json!({"instanceCount": 2}));
    assert_eq!(two["limits"]["timeout"], "PT60S");
}

#[test]
fn a_pipeline_that_is_a_component_has_its_defaults_and_outputs() {
    let inner = json!({"type": "pipeline",
        "inputs": {"d": {"type": "uri_folder"}, "rate": {"type": "number", "default": 0.2}, "seed": {"type": "integer", "optional": true}},
        "outputs": {"best": {"type": "uri_folder"}},
        "jobs": {"t": {"type": "command", "command": "x ${{inputs.rate}} $[[${{inputs.seed}}]]",
            "inputs": {"d": {"value": "${{parent.inputs.d}}"}, "rate": {"value": "${{parent.inputs.rate}}"},
                "seed": {"value": "${{parent.inputs.seed}}"}},
            "outputs": {"m": {"type": "uri_folder", "value": "${{parent.outputs.best}}"}}}}});
    let data = json!({"jobInputType": "uri_folder", "uri": "azureml://datastores/d/paths/raw/"});
    let asked = |inputs: Value| {
        expanded(json!({"inner": inner}), json!({"componentId": "azureml:inner:1", "inputs": inputs}))
    };
    let expansion = asked(json!({"d": data}));
    assert_eq!(said(&expansion), Vec::<String>::new());
    let step = body_of(&expansion, "pipe_t");
    assert_eq!(step["inputs"]["rate"]["value"], "0.2");
    assert_eq!((step["inputs"]["d"]["uri"].clone(), step["inputs"].get("seed")), (data["uri"].clone(), None));
    let wrong = asked(json!({"rate": "fast", "colour": "red"}));
    let told = said(&wrong).join("\n");
    for expect in [
        "The input 'd' of this pipeline has no value and no default.",
        "The input 'rate' must be of type number, and is 'fast'.",
        "The component of this pipeline has no input 'colour'.",
    ] {
        assert!(told.contains(expect), "{expect}\n{told}");
    }
}

#[test]
fn everything_wrong_is_said_at_once() {
    let component = json!({"type": "command", "command": "x", "inputs": {"n": {"type": "integer"}, "d": {"type": "uri_folder"}}});
    let expansion = expanded(
        json!({"c": component}),
        json!({
            "inputs": {"word": {"jobInputType": "literal", "value": "abc"}},
            "outputs": {"never": {"jobOutputType": "uri_folder"}},
            "jobs": {
                "types": {"componentId": "azureml:c:1", "inputs": {
                    "n": {"job_input_type": "literal", "value": "${{parent.inputs.word}}"},
                    "d": {"job_input_type": "literal", "value": "text"},
                    "extra": {"job_input_type": "literal", "value": "1"}}},
                "bare": {"componentId": "azureml:c:1", "inputs": {}},
                "lost": {"type": "command", "command": "x", "inputs": {
                    "a": {"value": "${{parent.inputs.nope}}"}, "b": {"value": "${{parent.jobs.gone.outputs.o}}"},
                    "c": {"value": "${{parent.jobs.types.outputs.o}}"}}},
                "missing": {"componentId": "azureml:none:1"},
                "spark": {"type": "spark"},
                "round": {"type": "command", "command": "x", "inputs": {"i": {"value": "${{parent.jobs.trip.outputs.o}}"}}},
                "trip": {"type": "command", "command": "x", "outputs": {"o": {}},
                    "inputs": {"i": {"value": "${{parent.jobs.round.outputs.o}}"}}},
            },
        }),
    );
    let said = said(&expansion).join("\n");
    for expect in [
        "'n' must be of type integer, and is 'abc'",
        "'d' must be data of type uri_folder, and is the value 'text'",
        "has no input 'extra'",
        "The input 'n' of this step has no value and no default",
        "The input 'd' of this step has no value and no default",
        "an input that the pipeline does not have: 'nope'",
        "a step that is not there: 'gone'",
        "no version '1'",
        "of type 'spark', which is not part of Neap",
        "'round', 'trip' wait for each other in a circle",
        "No step makes the output 'never'",
    ] {
        assert!(said.contains(expect), "'{expect}' is missing in:\n{said}");
    }
}

#[test]
fn the_same_work_has_the_same_name_and_takes_the_earlier_outputs() {
    let workspace = sample_workspace();
    let shelf = Components(json!({}), DataRules::default());
    let pipeline = |command: &str| {
        json!({"jobs": {
            "a": {"type": "command", "command": command, "outputs": {"o": {}}},
            "b": {"type": "command", "command": "y", "inputs": {"i": {"value": "${{parent.jobs.a.outputs.o}}"}}}}})
    };
    let run = |command: &str, known: &[String]| {
        let earlier = |work: &str| {
            let outputs = BTreeMap::from([("o".to_owned(), "azureml://datastores/d/paths/old/".to_owned())]);
            Ok(known.iter().any(|k| k == work).then(|| Earlier { job: "old".into(), outputs }))
        };
        let around = Around { shelf: &shelf, workspace: &workspace, earlier: &earlier };
        let steps = expand("pipe", &pipeline(command), &around).unwrap().steps;
        steps
            .into_iter()
            .filter_map(|step| match step.what {
                StepKind::Job { work, reused, body, .. } => {
                    Some((work.unwrap(), reused, body["properties"]["inputs"]["i"]["uri"].clone()))
                }
                StepKind::Pipeline { .. } => None,
            })
            .collect::<Vec<_>>()
    };
    let first = run("x", &[]);
    let again = run("x", &[first[0].0.clone()]);
    assert_eq!(again[0].0, first[0].0);
    assert_eq!(again[0].1.as_deref(), Some("old"));
    assert_eq!(again[1].0, first[1].0, "what comes after it is the same work too");
    assert_eq!(again[1].2, "azureml://datastores/d/paths/old/");
    assert_ne!(run("z", &[])[1].0, first[1].0, "other work before it makes other work of it");
}
