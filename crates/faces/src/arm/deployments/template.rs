//! From a template and its parameters to the resources to make, in order. Pure.

use neap_core::{Code, Problem, Refusal};
use serde_json::{Map, Value, json};

use super::expression::{Evaluator, Fault};
use super::functions::shown;
use crate::arm::paths;
use crate::limits::{
    TEMPLATE_NAME_BYTES_MAX, TEMPLATE_OUTPUTS_MAX, TEMPLATE_PARAMETERS_MAX, TEMPLATE_RESOURCES_MAX,
    TEMPLATE_VARIABLES_MAX,
};

/// Where a deployment takes place.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub subscription: String,
    pub tenant: String,
    pub group: String,
    pub location: String,
    pub deployment: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Planned {
    Workspace {
        name: String,
    },
    Compute {
        workspace: String,
        name: String,
    },
    /// Belongs to a workspace in Azure, and has no counterpart here.
    NotNeeded,
}

#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub kind: Planned,
    pub id: String,
    /// With every expression evaluated.
    pub body: Value,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub resources: Vec<Resource>,
    /// As a deployment answers them: type and value; secure ones without value.
    pub parameters: Value,
    pub outputs: Value,
}

const NOT_NEEDED: &[&str] = &[
    "microsoft.storage/storageaccounts",
    "microsoft.keyvault/vaults",
    "microsoft.insights/components",
    "microsoft.operationalinsights/workspaces",
    "microsoft.containerregistry/registries",
];

pub(super) fn plan(body: &Value, scope: &Scope) -> Result<Plan, Refusal> {
    let bad = |message: &str, at: &str| Refusal::from(Problem::new(Code::BadArgument, message).at(at));
    let properties = &body["properties"];
    if properties["templateLink"].is_object() || properties["parametersLink"].is_object() {
        return Err(crate::arm::errors::not_supported(
            "Linked templates are not fetched; put the template itself into 'properties.template'.",
        ));
    }
    if properties["mode"].as_str().is_some_and(|mode| mode.eq_ignore_ascii_case("Complete")) {
        return Err(crate::arm::errors::not_supported(
            "The mode 'Complete' would delete what the template does not name, and is not supported; use 'Incremental'.",
        ));
    }
    let template = properties["template"]
        .as_object()
        .ok_or_else(|| bad("'properties.template' is missing.", "properties.template"))?;
    refuse_too_many(template)?;
    let evaluator = Evaluator::new(template, properties["parameters"].as_object(), scope.clone());
    let mut problems = evaluator.missing_parameters();
    let mut resources = Vec::new();
    let listed: Vec<&Value> = match template.get("resources") {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(Value::Object(named)) => named.values().collect(),
        _ => return Err(bad("'properties.template.resources' is missing.", "properties.template.resources")),
    };
    let mut collected =
        Collected { evaluator: &evaluator, scope, seen: 0, out: &mut resources, problems: &mut problems };
    for (index, resource) in listed.into_iter().enumerate() {
        collected.collect(resource, None, &format!("properties.template.resources[{index}]"));
    }
    Refusal::unless_empty(problems)?;
    // A cluster needs its workspace first; otherwise the template's order holds.
    resources
        .sort_by_key(|resource: &Resource| u8::from(!matches!(resource.kind, Planned::Workspace { .. })));
    let mut outputs = Map::new();
    for (name, output) in template.get("outputs").and_then(Value::as_object).into_iter().flatten() {
        if let Ok(value) = evaluator.evaluate(&output["value"]) {
            outputs.insert(name.clone(), json!({"type": output["type"], "value": value}));
        }
        if let Some(why) = evaluator.allowance.overdrawn() {
            let message = format!("The output '{}' cannot be evaluated: {why}.", shown(name));
            return Err(bad(&message, &format!("properties.template.outputs.{}", shown(name))));
        }
    }
    let parameters = evaluator.answered_parameters();
    if let Some(why) = evaluator.allowance.overdrawn() {
        let message = format!("The parameters cannot be evaluated: {why}.");
        return Err(bad(&message, "properties.template.parameters"));
    }
    Ok(Plan { resources, parameters, outputs: Value::Object(outputs) })
}

/// Azure's limits on the sections of a template.
fn refuse_too_many(template: &Map<String, Value>) -> Result<(), Refusal> {
    let sections = [
        ("parameters", TEMPLATE_PARAMETERS_MAX),
        ("variables", TEMPLATE_VARIABLES_MAX),
        ("resources", TEMPLATE_RESOURCES_MAX),
        ("outputs", TEMPLATE_OUTPUTS_MAX),
    ];
    let problems = sections.into_iter().filter_map(|(section, most)| {
        let count = match template.get(section)? {
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        };
        (count > most).then(|| {
            let message = format!("The template has {count} {section}; at most {most} are taken.");
            Problem::new(Code::BadArgument, message).at(format!("properties.template.{section}"))
        })
    });
    Refusal::unless_empty(problems.collect())
}

/// The resources of a template on the way to a plan.
struct Collected<'c> {
    evaluator: &'c Evaluator<'c>,
    scope: &'c Scope,
    /// Resources looked at, with those inside of others.
    seen: usize,
    out: &'c mut Vec<Resource>,
    problems: &'c mut Vec<Problem>,
}

impl Collected<'_> {
    fn collect(&mut self, resource: &Value, parent: Option<(&str, &str)>, at: &str) {
        self.seen += 1;
        if self.evaluator.allowance.overdrawn().is_some() {
            // It has been told at the resource that used it up.
            return;
        }
        let found = if self.seen > TEMPLATE_RESOURCES_MAX {
            let message = format!("The template has more than {TEMPLATE_RESOURCES_MAX} resources.");
            Err(Problem::new(Code::BadArgument, message).at("properties.template.resources"))
        } else {
            planned(self.evaluator, resource, parent, self.scope, at)
        };
        match found {
            Ok(Some((kind, name, made))) => {
                let has_children = made.kind != Planned::NotNeeded;
                self.out.push(made);
                let children = resource["resources"].as_array().filter(|_| has_children);
                for (index, child) in children.into_iter().flatten().enumerate() {
                    self.collect(child, Some((&kind, &name)), &format!("{at}.resources[{index}]"));
                }
            }
            Ok(None) => {}
            Err(problem) if self.seen <= TEMPLATE_RESOURCES_MAX + 1 => self.problems.push(problem),
            Err(_) => {}
        }
    }
}

/// Type, name and plan of one resource; none if its condition is false. `parent` is (type, name) of the resource this one
/// is written inside of, `at` its place in the request.
fn planned(
    evaluator: &Evaluator<'_>,
    resource: &Value,
    parent: Option<(&str, &str)>,
    scope: &Scope,
    at: &str,
) -> Result<Option<(String, String, Resource)>, Problem> {
    let refuse = |code: Code, message: String, below: &str| {
        Err(Problem::new(code, message).at(format!("{at}{below}")))
    };
    match evaluator.evaluate(&resource["condition"]) {
        Ok(Value::Null | Value::Bool(true)) => {}
        Ok(Value::String(text)) if text.eq_ignore_ascii_case("true") => {}
        Ok(_) => return Ok(None),
        Err(Fault { why, .. }) => {
            return refuse(
                Code::BadArgument,
                format!("A condition cannot be evaluated: {why}."),
                ".condition",
            );
        }
    }
    let text = |key: &str| {
        let bad = |message: String| Problem::new(Code::BadArgument, message).at(format!("{at}.{key}"));
        match evaluator.evaluate(&resource[key]) {
            Ok(Value::String(text)) => Ok(text),
            Ok(_) => Err(bad(format!("'{key}' of a resource must be a string."))),
            Err(Fault { why, .. }) => Err(bad(format!("'{key}' of a resource cannot be evaluated: {why}."))),
        }
    };
    let (kind, name) = (text("type")?, text("name")?);
    let (kind, name) = match parent {
        Some((parent_kind, parent_name)) if !kind.contains('.') => {
            (format!("{parent_kind}/{kind}"), format!("{parent_name}/{name}"))
        }
        _ => (kind, name),
    };
    for (key, value) in [("type", &kind), ("name", &name)] {
        if value.len() > TEMPLATE_NAME_BYTES_MAX {
            let message = format!(
                "'{key}' of a resource has {} bytes; at most {TEMPLATE_NAME_BYTES_MAX} are taken.",
                value.len()
            );
            return refuse(Code::BadArgument, message, &format!(".{key}"));
        }
    }
    let lower = kind.to_ascii_lowercase();
    if resource.get("copy").is_some_and(|copy| !copy.is_null()) {
        let message = format!("'copy' loops are not supported; write each '{kind}' out.");
        return refuse(Code::NotSupported, message, ".copy");
    }
    let id = resource_id(scope, &kind, &name);
    let made = match lower.as_str() {
        "microsoft.machinelearningservices/workspaces" => Planned::Workspace { name: name.clone() },
        "microsoft.machinelearningservices/workspaces/computes" => match name.split_once('/') {
            Some((workspace, compute)) if !compute.contains('/') => {
                Planned::Compute { workspace: workspace.into(), name: compute.into() }
            }
            _ => {
                let message = format!("The compute name '{name}' must be 'workspace/compute'.");
                return refuse(Code::BadArgument, message, ".name");
            }
        },
        known if NOT_NEEDED.contains(&known) => {
            let resource = Resource { kind: Planned::NotNeeded, id, body: Value::Null };
            return Ok(Some((kind, name, resource)));
        }
        _ => {
            let message = format!(
                "Resources of type '{kind}' cannot be deployed; Neap makes workspaces and compute clusters."
            );
            return refuse(Code::NotSupported, message, ".type");
        }
    };
    let fields = resource.as_object().into_iter().flatten();
    let plain: Map<String, Value> = fields
        .filter(|(key, _)| !NOT_IN_BODY.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    match evaluator.evaluate(&Value::Object(plain)) {
        Ok(body) => Ok(Some((kind, name, Resource { kind: made, id, body: without_empty(body) }))),
        Err(Fault { at: field, why }) => {
            refuse(Code::BadArgument, format!("The resource '{name}' cannot be evaluated: {why}."), &field)
        }
    }
}

/// Fields of a resource that say how it is deployed, and not what it is.
const NOT_IN_BODY: &[&str] =
    &["condition", "dependsOn", "resources", "apiVersion", "type", "name", "comments", "metadata"];

/// Templates write "" where they mean nothing.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(k, v)| (k, without_empty(v)))
            .filter(|(_, v)| *v != json!(""))
            .collect::<Map<_, _>>()
            .into(),
        other => other,
    }
}

/// `A.B/type/subtype` with `name/subname` as one id.
pub(super) fn resource_id(scope: &Scope, kind: &str, name: &str) -> String {
    let mut kinds = kind.split('/');
    let mut id = format!(
        "{}/providers/{}",
        paths::group_id(&scope.subscription, &scope.group),
        kinds.next().unwrap_or("")
    );
    for (kind, name) in kinds.zip(name.split('/')) {
        id += &format!("/{kind}/{name}");
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope {
            subscription: "s1".into(),
            tenant: "t1".into(),
            group: "rg1".into(),
            location: "eastus".into(),
            deployment: "d".into(),
        }
    }

    #[test]
    fn a_workspace_template_in_the_clients_manner() {
        let body = json!({"properties": {"mode": "incremental",
            "parameters": {"workspaceName": {"value": "new1"}, "kind": {"value": "default"}, "tagValues": {"value": {"a": "b"}}, "none": {"value": null}, "location": {"value": "westus"}},
            "template": {
                "parameters": {"workspaceName": {"type": "string"}, "kind": {"type": "string", "defaultValue": "Default"}, "tagValues": {"type": "object"},
                    "location": {"type": "string"}, "none": {"type": "string"}, "option": {"type": "string", "defaultValue": "new"},
                    "sa": {"type": "string", "defaultValue": "[concat('sa', uniqueString(resourceGroup().id, parameters('workspaceName')))]"}},
                "variables": {"tenantId": "[subscription().tenantId]", "store": "[resourceId('Microsoft.Storage/storageAccounts', parameters('sa'))]", "enable": true,
                    "never": "[resourceId(parameters('none'), parameters('none'))]"},
                "resources": [
                    {"condition": "[and(variables('enable'), equals(parameters('option'), 'new'))]", "type": "Microsoft.Storage/storageAccounts", "name": "[parameters('sa')]"},
                    {"condition": "[equals(parameters('kind'), 'featurestore')]", "type": "Microsoft.Resources/deployments", "name": "[concat('x', guid(variables('never')))]"},
                    {"type": "Microsoft.MachineLearningServices/workspaces", "name": "[parameters('workspaceName')]", "location": "[parameters('location')]", "kind": "[parameters('kind')]",
                        "tags": "[parameters('tagValues')]", "dependsOn": ["[resourceId('x')]"],
                        "properties": {"friendlyName": "f", "storageAccount": "[variables('store')]", "imageBuildCompute": "", "containerRegistry": "[if(not(equals('none', 'none')), variables('never'), json('null'))]"},
                        "resources": [{"type": "computes", "name": "cpu", "location": "[resourceGroup().location]", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "[toUpper('standard_ds3_v2')]"}}},
                                      {"condition": "[equals(parameters('kind'), 'featurestore')]", "type": "connections", "name": "c"}]}],
                "outputs": {"ws": {"type": "string", "value": "[resourceId('Microsoft.MachineLearningServices/workspaces', parameters('workspaceName'))]"}}}}});
        let plan = plan(&body, &scope()).unwrap();
        let kinds: Vec<_> = plan.resources.iter().map(|r| r.kind.clone()).collect();
        assert_eq!(
            kinds,
            [
                Planned::Workspace { name: "new1".into() },
                Planned::NotNeeded,
                Planned::Compute { workspace: "new1".into(), name: "cpu".into() }
            ]
        );
        assert_eq!(plan.resources[0].body["location"], "westus");
        assert_eq!(plan.resources[0].body["tags"], json!({"a": "b"}));
        assert_eq!(plan.resources[0].body["properties"].get("imageBuildCompute"), None);
        assert!(plan.resources[0].body["properties"]["storageAccount"].as_str().unwrap().starts_with(
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Storage/storageAccounts/sa"
        ));
        assert_eq!(plan.resources[2].body["properties"]["properties"]["vmSize"], "STANDARD_DS3_V2");
        assert_eq!(
            plan.outputs["ws"]["value"],
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.MachineLearningServices/workspaces/new1"
        );
    }

    #[test]
    fn what_cannot_be_deployed_is_refused_together() {
        let body = json!({"properties": {"template": {"parameters": {"p": {"type": "string"}},
            "resources": [{"type": "Microsoft.Web/sites", "name": "x"}, {"type": "Microsoft.MachineLearningServices/workspaces/computes", "name": "alone"},
                          {"type": "Microsoft.MachineLearningServices/workspaces", "name": "[nope('x')]"}]}}});
        assert_eq!(plan(&body, &scope()).unwrap_err().problems.len(), 4);
        assert!(plan(&json!({"properties": {"templateLink": {"uri": "x"}}}), &scope()).is_err());
        assert!(plan(&json!({"properties": {}}), &scope()).is_err());
        assert!(
            plan(&json!({"properties": {"mode": "Complete", "template": {"resources": []}}}), &scope())
                .is_err()
        );
    }
}
