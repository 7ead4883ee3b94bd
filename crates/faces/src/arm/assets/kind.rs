//! The kinds of assets: what each is called, what a version of it must have, and what of one may change.

use neap_core::{Code, Problem};
use serde_json::{Map, Value, json};

use crate::arm::errors;
use crate::fields::Fields;

/// One kind of asset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// In paths.
    pub plural: &'static str,
    /// In the ledger.
    pub word: &'static str,
    /// What of a version may change.
    changeable: &'static [&'static str],
    pub(super) check: fn(&Fields<'_>, &mut Vec<Problem>),
}

pub(crate) const ENVIRONMENTS: Kind = Kind {
    plural: "environments",
    word: "environment",
    changeable: &["description", "tags", "properties", "isArchived", "stage"],
    check: check_environment,
};
pub(crate) const DATA: Kind = Kind {
    plural: "data",
    word: "data",
    changeable: &["description", "tags", "properties", "isArchived", "stage"],
    check: check_data,
};

pub(crate) const COMPONENTS: Kind = Kind {
    plural: "components",
    word: "component",
    changeable: &["description", "tags", "properties", "isArchived", "stage"],
    check: check_component,
};

pub(crate) const MODELS: Kind = Kind {
    plural: "models",
    word: "model",
    changeable: &["description", "tags", "properties", "isArchived", "stage", "flavors"],
    check: check_model,
};

impl Kind {
    /// What the ledger calls the container of a name, which has one version.
    pub(super) fn container_word(self) -> String {
        format!("{}-container", self.word)
    }
}

pub(super) fn answered_properties(kind: Kind, asked: Option<&Value>) -> Value {
    let mut out: Map<String, Value> = asked
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, v)| !v.is_null())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for key in ["tags", "properties"] {
        out.entry(key).or_insert_with(|| json!({}));
    }
    for key in ["isAnonymous", "isArchived"] {
        out.entry(key).or_insert_with(|| json!(false));
    }
    if kind.word == "environment" {
        out.insert("environmentType".into(), json!("UserCreated"));
        out.entry("osType").or_insert_with(|| json!("Linux"));
    }
    if kind.word == "model" {
        // Clients walk through it without looking.
        out.entry("flavors").or_insert_with(|| json!({}));
        out.entry("modelType").or_insert_with(|| json!("custom_model"));
    }
    out.insert("provisioningState".into(), json!("Succeeded"));
    Value::Object(out)
}

/// What differs of that which a version is.
pub(super) fn differing(kind: Kind, kept: &Value, asked: &Value) -> Vec<String> {
    let keys = [kept, asked].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
    let mut out: Vec<String> = keys
        .filter(|key| !kind.changeable.contains(&key.as_str()) && kept[key.as_str()] != asked[key.as_str()])
        .cloned()
        .collect();
    out.sort();
    out.dedup();
    out
}

fn check_component(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    let spec = fields.object("componentSpec", problems);
    let kind = spec.text("type", problems).unwrap_or("");
    match kind {
        "command" | "pipeline" | "parallel" | "sweep" => {}
        "" => problems
            .push(errors::bad("A component needs a 'componentSpec' with its 'type'.", &spec.place("type"))),
        other => problems.push(errors::bad(
            format!("A component of type '{other}' is not known: command, pipeline, parallel or sweep."),
            &spec.place("type"),
        )),
    }
}

fn check_environment(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    let image = fields.text("image", problems);
    let conda = fields.text("condaFile", problems);
    let build = fields.object("build", problems);
    if image.is_none()
        && conda.is_none()
        && !build.is_present()
        && !problems.iter().any(|p| p.target.is_some())
    {
        problems.push(errors::bad(
            "An environment needs an 'image', a 'condaFile' or a 'build' context.",
            "properties",
        ));
    }
    if let Some(os) = fields.text("osType", problems)
        && !os.eq_ignore_ascii_case("Linux")
    {
        problems.push(
            Problem::new(Code::NotSupported, format!("Nodes run Linux; 'osType' '{os}' is not supported."))
                .at("properties.osType"),
        );
    }
}

fn check_data(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    match fields.text("dataType", problems) {
        Some("uri_file" | "uri_folder" | "mltable") => {}
        Some(other) => problems.push(errors::bad(
            format!("'{other}' is not a data type: uri_file, uri_folder or mltable."),
            "properties.dataType",
        )),
        None => problems.push(errors::bad("A data asset needs a 'dataType'.", "properties.dataType")),
    }
    if fields.text("dataUri", problems).is_none_or(str::is_empty) {
        problems.push(errors::bad("A data asset needs a 'dataUri'.", "properties.dataUri"));
    }
}

fn check_model(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    match fields.text("modelType", problems) {
        Some("custom_model" | "mlflow_model" | "triton_model") | None => {}
        Some(other) => problems.push(errors::bad(
            format!("'{other}' is not a model type: custom_model, mlflow_model or triton_model."),
            "properties.modelType",
        )),
    }
    if fields.text("modelUri", problems).is_none_or(str::is_empty) {
        problems.push(errors::bad("A model needs a 'modelUri'.", "properties.modelUri"));
    }
    fields.object("flavors", problems);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_what_it_is() {
        let kept = answered_properties(
            ENVIRONMENTS,
            Some(&json!({"image": "a", "isAnonymous": false, "tags": {"x": "1"}})),
        );
        let same = answered_properties(
            ENVIRONMENTS,
            Some(&json!({"image": "a", "condaFile": null, "isArchived": true})),
        );
        assert_eq!(differing(ENVIRONMENTS, &kept, &same), Vec::<String>::new());
        let other = answered_properties(ENVIRONMENTS, Some(&json!({"image": "b", "condaFile": "c"})));
        assert_eq!(differing(ENVIRONMENTS, &kept, &other), ["condaFile", "image"]);
    }

    #[test]
    fn environments_and_data_are_checked() {
        let check = |kind: Kind, body: Value| {
            let mut problems = Vec::new();
            let fields = Fields::of(Some(&body), "properties", &mut problems);
            (kind.check)(&fields, &mut problems);
            problems.len()
        };
        assert_eq!(check(ENVIRONMENTS, json!({"image": "x"})), 0);
        assert_eq!(check(ENVIRONMENTS, json!({})), 1);
        assert_eq!(check(ENVIRONMENTS, json!({"image": "x", "osType": "Windows"})), 1);
        assert_eq!(check(DATA, json!({"dataType": "uri_folder", "dataUri": "azureml://x"})), 0);
        assert_eq!(check(DATA, json!({"dataType": "odd"})), 2);
        assert_eq!(check(MODELS, json!({"modelUri": "azureml://x"})), 0);
        assert_eq!(check(MODELS, json!({"modelType": "odd", "flavors": 3})), 3);
        assert_eq!(answered_properties(MODELS, Some(&json!({"flavors": null})))["flavors"], json!({}));
    }
}
