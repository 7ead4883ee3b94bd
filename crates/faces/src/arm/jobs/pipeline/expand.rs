//! From a pipeline to its steps: one flat list, each step after what it needs, with every binding filled in.
//!
//! A step becomes the body of the job that it is, so that it is read by the code that reads jobs. Where an output will
//! lie is known here already: a step's output and another's input are the same place, and nothing is copied.

use std::collections::{BTreeMap, BTreeSet};

use neap_core::state::Workspace;
use neap_core::{Problem, Refusal, limits};
use serde_json::{Map, Value, json};

use super::super::references::Shelf;
use super::bindings::{self, Binding};
use super::body;
use super::component::{self, check_literal, is_literal, plain};
use crate::arm::errors::bad;
use crate::workspace_files;

/// One member of the family that a pipeline is. The first is the pipeline itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// The name of the job.
    pub name: String,
    /// Where in the request it stands.
    pub place: String,
    /// Where in the list the pipeline is that it belongs to.
    pub family: usize,
    pub after: BTreeSet<usize>,
    pub what: StepKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum StepKind {
    Pipeline {
        go_on: bool,
        definition: Value,
        outputs: BTreeMap<String, Made>,
    },
    /// The body of a job of its own, and what names its work if an earlier job may have done it.
    Job {
        body: Value,
        work: Option<String>,
        outputs: BTreeMap<String, Made>,
        reused: Option<String>,
    },
}

/// An output that a step makes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Made {
    pub kind: String,
    pub uri: String,
    /// The step that makes it.
    pub by: usize,
    identity: Value,
}

/// An earlier job that did the same work, and where its outputs lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier {
    pub job: String,
    pub outputs: BTreeMap<String, String>,
}

/// Looks around while a pipeline is expanded.
pub(super) struct Around<'a> {
    pub shelf: &'a dyn Shelf,
    pub workspace: &'a Workspace,
    pub earlier: &'a dyn Fn(&str) -> Result<Option<Earlier>, Refusal>,
}

#[derive(Debug)]
pub(super) struct Expansion {
    pub steps: Vec<Step>,
    pub problems: Vec<Problem>,
}

pub(super) fn expand(name: &str, properties: &Value, around: &Around<'_>) -> Result<Expansion, Refusal> {
    let mut expander =
        Expander { around, root: name, steps: Vec::new(), problems: Vec::new(), force_rerun: false };
    let settings = &properties["settings"];
    expander.force_rerun = flag(&settings["force_rerun"]).unwrap_or(false);
    let experiment = properties["experimentName"].as_str().unwrap_or("Default").to_owned();
    let compute = text(&properties["computeId"]).or_else(|| text(&settings["default_compute"]));
    let datastore = text(&settings["default_datastore"])
        .map(|id| id.trim_start_matches("azureml:").rsplit('/').next().unwrap_or("").to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| workspace_files::BLOB_STORE.into());
    let defaults = Defaults { experiment, compute, datastore };
    let inputs = expander.root_inputs(&properties["inputs"]);
    let wanted = wanted_outputs(&properties["outputs"]);
    let component = text(&properties["componentId"]);
    let jobs = match (&properties["jobs"], component) {
        (Value::Object(jobs), _) if !jobs.is_empty() => jobs.clone(),
        (_, Some(id)) => {
            let place = "properties.componentId";
            let found = component::find(around.shelf, around.workspace, &id, place, &mut expander.problems)?;
            found.and_then(|spec| spec["jobs"].as_object().cloned()).unwrap_or_default()
        }
        _ => Map::new(),
    };
    if jobs.is_empty() && expander.problems.is_empty() {
        expander.problems.push(bad("A pipeline needs at least one job in 'jobs'.", "properties.jobs"));
    }
    let go_on = flag(&settings["continue_on_step_failure"]).unwrap_or(true);
    let scope = Scope {
        inputs,
        wanted,
        place: "properties".into(),
        name: name.into(),
        family: 0,
        definition: properties.clone(),
        go_on,
        depth: 0,
    };
    expander.pipeline(&scope, &jobs, &defaults)?;
    Ok(Expansion { steps: expander.steps, problems: expander.problems })
}

struct Expander<'a> {
    around: &'a Around<'a>,
    root: &'a str,
    steps: Vec<Step>,
    problems: Vec<Problem>,
    force_rerun: bool,
}

#[derive(Clone)]
struct Defaults {
    experiment: String,
    compute: Option<String>,
    datastore: String,
}

/// A pipeline being expanded: what it was given and what is wanted of it.
struct Scope {
    inputs: BTreeMap<String, Given>,
    wanted: BTreeMap<String, Wanted>,
    place: String,
    name: String,
    family: usize,
    definition: Value,
    go_on: bool,
    depth: usize,
}

/// An input with its value: as a job's body has it, with the steps that make it.
#[derive(Clone, Debug, PartialEq)]
struct Given {
    input: Value,
    after: BTreeSet<usize>,
    /// What stands for its content when work is compared.
    identity: Value,
}

impl Given {
    fn literal(value: &str) -> Self {
        let input = json!({"jobInputType": "literal", "value": value});
        Self { identity: input.clone(), input, after: BTreeSet::new() }
    }

    fn value(&self) -> Option<&str> {
        self.input["value"].as_str()
    }

    fn is_literal(&self) -> bool {
        self.input["jobInputType"] == "literal"
    }
}

/// An output that a pipeline's owner said something about.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wanted {
    declared: Map<String, Value>,
}

impl Expander<'_> {
    fn pipeline(
        &mut self,
        scope: &Scope,
        jobs: &Map<String, Value>,
        defaults: &Defaults,
    ) -> Result<BTreeMap<String, Made>, Refusal> {
        let own = self.steps.len();
        self.steps.push(Step {
            name: scope.name.clone(),
            place: scope.place.clone(),
            family: scope.family,
            after: BTreeSet::new(),
            what: StepKind::Pipeline {
                go_on: scope.go_on,
                definition: scope.definition.clone(),
                outputs: BTreeMap::new(),
            },
        });
        if scope.depth > limits::FAMILY_DEPTH_MAX {
            self.problems.push(bad(
                format!("Pipelines lie more than {} deep within each other.", limits::FAMILY_DEPTH_MAX),
                &scope.place,
            ));
            return Ok(BTreeMap::new());
        }
        let mut made: BTreeMap<String, Done> = BTreeMap::new();
        let mut bound: BTreeMap<String, Made> = BTreeMap::new();
        for step in self.in_order(jobs, &scope.place) {
            let node = &jobs[step.as_str()];
            let place = format!("{}.jobs.{step}", scope.place);
            let done = self.step(scope, own, &step, node, &place, &made, defaults)?;
            for (output, target) in &done.bound {
                if let Some(made) = done.outputs.get(output) {
                    bound.insert(target.clone(), made.clone());
                }
            }
            made.insert(step, done);
        }
        for name in scope.wanted.keys().filter(|name| !bound.contains_key(*name)) {
            self.problems.push(bad(
                format!("No step makes the output '{name}' of the pipeline; bind one with ${{{{parent.outputs.{name}}}}}."),
                &format!("{}.outputs.{name}", scope.place),
            ));
        }
        if let StepKind::Pipeline { outputs, .. } = &mut self.steps[own].what {
            outputs.clone_from(&bound);
        }
        Ok(bound)
    }

    /// The steps so that each comes after those whose outputs it takes. Steps in a circle are a problem, and left out.
    fn in_order(&mut self, jobs: &Map<String, Value>, place: &str) -> Vec<String> {
        let needs: BTreeMap<&str, BTreeSet<&str>> =
            jobs.iter().map(|(name, node)| (name.as_str(), needed(node))).collect();
        let mut ordered: Vec<String> = Vec::new();
        let mut left: Vec<&str> = jobs.keys().map(String::as_str).collect();
        loop {
            let (ready, blocked): (Vec<&str>, Vec<&str>) = left.iter().partition(|name| {
                needs[**name]
                    .iter()
                    .all(|need| !jobs.contains_key(*need) || ordered.iter().any(|o| o == need))
            });
            if ready.is_empty() {
                if !blocked.is_empty() {
                    let names: Vec<String> = blocked.iter().map(|name| format!("'{name}'")).collect();
                    self.problems.push(bad(
                        format!("The steps {} wait for each other in a circle.", names.join(", ")),
                        &format!("{place}.jobs"),
                    ));
                }
                return ordered;
            }
            ordered.extend(ready.into_iter().map(String::from));
            left = blocked;
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a step, where it stands, and what is around it")]
    fn step(
        &mut self,
        scope: &Scope,
        family: usize,
        step: &str,
        node: &Value,
        place: &str,
        made: &BTreeMap<String, Done>,
        defaults: &Defaults,
    ) -> Result<Done, Refusal> {
        let spec = match text(&node["componentId"]).or_else(|| text(&node["component"])) {
            Some(id) => {
                let at = format!("{place}.componentId");
                let (shelf, workspace) = (self.around.shelf, self.around.workspace);
                match component::find(shelf, workspace, &id, &at, &mut self.problems)? {
                    Some(spec) => spec,
                    None => return Ok(Done::default()),
                }
            }
            None => node.clone(),
        };
        let kind = text(&node["type"]).or_else(|| text(&spec["type"])).unwrap_or_else(|| "command".into());
        let trial = if kind == "sweep" { self.trial(node, place)? } else { None };
        let declared = trial.as_ref().unwrap_or(&spec);
        let name = child_name(self.root, scope, step);
        // What a sweep tries is an input of its trial.
        let tried = node["search_space"].as_object().filter(|_| kind == "sweep");
        let inputs = self.inputs(scope, node, declared, tried, place, made);
        let outputs = outputs(scope, node, declared, &name, place, defaults, &mut self.problems);
        let defaults = Defaults {
            compute: self.compute(scope, node, place).or_else(|| defaults.compute.clone()),
            ..defaults.clone()
        };
        match kind.as_str() {
            "pipeline" => {
                let wanted = outputs.iter().map(|(name, output)| (name.clone(), output.wanted())).collect();
                let sub = Scope {
                    inputs,
                    wanted,
                    place: place.into(),
                    name,
                    family,
                    definition: body::nested(node, &defaults.experiment),
                    go_on: scope.go_on,
                    depth: scope.depth + 1,
                };
                let jobs = spec["jobs"].as_object().cloned().unwrap_or_default();
                let outputs_bound = bound_to_parent(&outputs);
                let made = self.pipeline(&sub, &jobs, &defaults)?;
                Ok(Done { outputs: made, bound: outputs_bound, inputs: BTreeMap::new() })
            }
            "command" | "sweep" | "parallel" => {
                let at = self.steps.len();
                let after = inputs.values().flat_map(|given| given.after.iter().copied()).collect();
                let fill = |text: &str| fill_literals(text, scope);
                let job = body::job(&body::Parts {
                    kind: &kind,
                    node,
                    spec: &spec,
                    trial: trial.as_ref(),
                    compute: defaults.compute.as_deref(),
                    experiment: &defaults.experiment,
                    display_name: step,
                    inputs: inputs.iter().map(|(k, given)| (k.clone(), given.input.clone())).collect(),
                    outputs: outputs.iter().map(|(k, output)| (k.clone(), output.body())).collect(),
                    fill: &fill,
                });
                let may_reuse = kind == "command"
                    && !self.force_rerun
                    && flag(&spec["is_deterministic"]).unwrap_or(true)
                    && outputs.values().all(|output| !output.explicit);
                let work = may_reuse.then(|| work_of(&job, &inputs, &outputs));
                let earlier = match &work {
                    Some(work) => (self.around.earlier)(work)?,
                    None => None,
                };
                let made: BTreeMap<String, Made> = outputs
                    .iter()
                    .map(|(name, output)| {
                        let before = earlier.as_ref().and_then(|earlier| earlier.outputs.get(name));
                        let identity = match &work {
                            Some(work) => json!({"work": work, "output": name}),
                            None => json!({"uri": output.uri}),
                        };
                        let uri = before.unwrap_or(&output.uri).clone();
                        (name.clone(), Made { kind: output.kind.clone(), uri, by: at, identity })
                    })
                    .collect();
                self.steps.push(Step {
                    name,
                    place: place.into(),
                    family,
                    after,
                    what: StepKind::Job {
                        body: body::with_outputs(job, &made),
                        work,
                        outputs: made.clone(),
                        reused: earlier.map(|earlier| earlier.job),
                    },
                });
                Ok(Done { outputs: made, bound: bound_to_parent(&outputs), inputs })
            }
            other => {
                let why = match other {
                    "spark" | "automl" | "import" | "data_transfer" | "finetuning" => "is not part of Neap",
                    "if_else" | "do_while" | "parallel_for" => "is not offered yet",
                    _ => "is not known",
                };
                self.problems.push(bad(
                    format!("The step '{step}' is of type '{other}', which {why}: command, sweep, parallel and pipeline are."),
                    &format!("{place}.type"),
                ));
                Ok(Done::default())
            }
        }
    }

    /// The component whose command a sweep step tries out.
    fn trial(&mut self, node: &Value, place: &str) -> Result<Option<Value>, Refusal> {
        let id = match &node["trial"] {
            Value::String(id) => id.clone(),
            Value::Object(map) => match map.get("componentId").and_then(Value::as_str) {
                Some(id) => id.to_owned(),
                None => return Ok(Some(Value::Object(map.clone()))),
            },
            _ => return Ok(None),
        };
        let at = format!("{place}.trial");
        component::find(self.around.shelf, self.around.workspace, &id, &at, &mut self.problems)
    }

    fn compute(&mut self, scope: &Scope, node: &Value, place: &str) -> Option<String> {
        let asked = text(&node["computeId"]).or_else(|| text(&node["compute"]))?;
        let filled = fill_literals(&asked, scope);
        if filled.contains("${{") {
            self.problems.push(bad(
                format!("The compute '{asked}' names no input of the pipeline."),
                &format!("{place}.computeId"),
            ));
            return None;
        }
        Some(filled)
    }

    fn root_inputs(&mut self, inputs: &Value) -> BTreeMap<String, Given> {
        let entries = inputs.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        entries.filter_map(|(name, value)| Some((name.clone(), as_given(value)?))).collect()
    }

    /// Every input that a step declares or is given.
    fn inputs(
        &mut self,
        scope: &Scope,
        node: &Value,
        spec: &Value,
        tried: Option<&Map<String, Value>>,
        place: &str,
        made: &BTreeMap<String, Done>,
    ) -> BTreeMap<String, Given> {
        let mut out = BTreeMap::new();
        let declared = spec["inputs"].as_object();
        let given = node["inputs"].as_object();
        for (name, value) in given.into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let at = format!("{place}.inputs.{name}");
            let found = self.given(scope, value, &at, made);
            let Some(found) = found else { continue };
            let wanted = declared.filter(|_| !is_inline(node)).and_then(|declared| declared.get(name));
            match wanted {
                Some(wanted) => self.check_input(name, wanted, &found, &at),
                // A step without a component declares what it is given.
                None if is_inline(node) => {}
                None => {
                    self.problems
                        .push(bad(format!("The component of this step has no input '{name}'."), &at));
                }
            }
            out.insert(name.clone(), found);
        }
        if is_inline(node) {
            return out;
        }
        for (name, wanted) in declared.into_iter().flatten() {
            if tried.is_some_and(|tried| tried.contains_key(name))
                || out.contains_key(name)
                || given.is_some_and(|given| given.get(name).is_some_and(|v| !v.is_null()))
            {
                continue;
            }
            match &wanted["default"] {
                Value::Null if flag(&wanted["optional"]).unwrap_or(false) => {}
                Value::Null => self.problems.push(bad(
                    format!("The input '{name}' of this step has no value and no default."),
                    &format!("{place}.inputs.{name}"),
                )),
                default => {
                    out.insert(name.clone(), Given::literal(&plain(default)));
                }
            }
        }
        out
    }

    fn check_input(&mut self, name: &str, wanted: &Value, given: &Given, place: &str) {
        let kind = wanted["type"].as_str().unwrap_or("string");
        let what = format!("The input '{name}'");
        match (is_literal(kind), given.value()) {
            (true, Some(value)) => check_literal(wanted, value, place, &what, &mut self.problems),
            (true, None) => {
                self.problems.push(bad(format!("{what} must be of type {kind}, and is data."), place));
            }
            (false, Some(value)) => self
                .problems
                .push(bad(format!("{what} must be data of type {kind}, and is the value '{value}'."), place)),
            (false, None) => {}
        }
    }

    /// One input of a step: data, a value, or what an expression names.
    fn given(
        &mut self,
        scope: &Scope,
        value: &Value,
        place: &str,
        made: &BTreeMap<String, Done>,
    ) -> Option<Given> {
        let given = as_given(value)?;
        let Some(literal) = given.value() else { return Some(given) };
        let Some(binding) = bindings::whole(literal) else {
            return Some(Given::literal(&fill_literals(literal, scope)));
        };
        let mode = value["mode"].as_str().or_else(|| value["job_input_mode"].as_str());
        let missing = |what: String| bad(format!("'{literal}' names {what}."), place);
        let found = match &binding {
            Binding::ParentInput(name) => match scope.inputs.get(*name) {
                Some(found) => Ok(found.clone()),
                // An optional input of the pipeline that nobody gave.
                None if declares(&scope.definition, "inputs", name) => return None,
                None => Err(missing(format!("an input that the pipeline does not have: '{name}'"))),
            },
            Binding::StepOutput(step, output) => {
                match made.get(*step).and_then(|done| done.outputs.get(*output)) {
                    Some(made) => Ok(Given {
                        input: json!({"jobInputType": made.kind, "uri": made.uri}),
                        after: BTreeSet::from([made.by]),
                        identity: made.identity.clone(),
                    }),
                    None if made
                        .get(*step)
                        .is_some_and(|done| done.outputs.is_empty() && !self.problems.is_empty()) =>
                    {
                        return None;
                    }
                    None if made.contains_key(*step) => {
                        Err(missing(format!("an output that step '{step}' does not have: '{output}'")))
                    }
                    None => Err(missing(format!("a step that is not there: '{step}'"))),
                }
            }
            Binding::StepInput(step, input) => match made.get(*step).and_then(|done| done.inputs.get(*input))
            {
                Some(found) => Ok(found.clone()),
                None => Err(missing(format!("an input that step '{step}' does not have: '{input}'"))),
            },
            Binding::ParentOutput(_) | Binding::Unknown(_) => {
                Err(missing("nothing that an input can take".into()))
            }
        };
        match found {
            Ok(mut found) => {
                if let (Some(mode), false) = (mode, found.is_literal()) {
                    found.input["mode"] = json!(mode);
                }
                Some(found)
            }
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }
}

/// What a step came to.
#[derive(Clone, Debug, Default)]
struct Done {
    outputs: BTreeMap<String, Made>,
    /// Its outputs that are the pipeline's, by the pipeline's name for them.
    bound: BTreeMap<String, String>,
    inputs: BTreeMap<String, Given>,
}

/// An output of a step, before it is known whether it will be made.
#[derive(Clone, Debug)]
struct Output {
    kind: String,
    uri: String,
    /// The user said where.
    explicit: bool,
    declared: Map<String, Value>,
    parent: Option<String>,
}

impl Output {
    /// As a job's body has it.
    fn body(&self) -> Value {
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
    fn wanted(&self) -> Wanted {
        let mut declared = self.declared.clone();
        declared.remove("value");
        declared.insert("jobOutputType".into(), json!(self.kind));
        if self.explicit {
            declared.insert("uri".into(), json!(self.uri));
        }
        Wanted { declared }
    }
}

fn bound_to_parent(outputs: &BTreeMap<String, Output>) -> BTreeMap<String, String> {
    outputs.iter().filter_map(|(name, output)| Some((name.clone(), output.parent.clone()?))).collect()
}

/// Every output that a step declares, and where it will lie.
fn outputs(
    scope: &Scope,
    node: &Value,
    spec: &Value,
    job: &str,
    place: &str,
    defaults: &Defaults,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Output> {
    let declared = spec["outputs"].as_object();
    let given = node["outputs"].as_object();
    let mut names: BTreeSet<&String> = declared.into_iter().flatten().map(|(name, _)| name).collect();
    for (name, _) in given.into_iter().flatten() {
        if !names.insert(name) || is_inline(node) {
            continue;
        }
        if declared.is_none_or(|declared| !declared.contains_key(name)) {
            problems.push(bad(
                format!("The component of this step has no output '{name}'."),
                &format!("{place}.outputs.{name}"),
            ));
        }
    }
    let mut out = BTreeMap::new();
    for name in names {
        let asked = given.and_then(|given| given.get(name)).and_then(Value::as_object);
        let asked = asked.cloned().unwrap_or_default();
        let word = |map: &Map<String, Value>, keys: &[&str]| {
            keys.iter().find_map(|key| map.get(*key).and_then(Value::as_str).map(String::from))
        };
        let bound = word(&asked, &["value"]);
        let parent = match bound.as_deref().map(bindings::whole) {
            Some(Some(Binding::ParentOutput(parent))) => {
                let known = scope.wanted.contains_key(parent);
                if !known {
                    problems.push(bad(
                        format!(
                            "'{}' names an output that the pipeline does not have.",
                            bound.as_deref().unwrap_or_default()
                        ),
                        &format!("{place}.outputs.{name}"),
                    ));
                }
                known.then(|| parent.to_owned())
            }
            _ => None,
        };
        let inherited =
            parent.as_ref().and_then(|parent| scope.wanted.get(parent)).cloned().unwrap_or_default();
        let mut all = inherited.declared;
        all.extend(asked.into_iter().filter(|(key, value)| key != "value" && !value.is_null()));
        let declared_kind =
            declared.and_then(|d| d.get(name)).and_then(|d| d["type"].as_str()).map(String::from);
        let said = word(&all, &["jobOutputType", "job_output_type"]);
        let kind = declared_kind.or(said).unwrap_or_else(|| "uri_folder".into());
        let told = word(&all, &["uri", "path"]).filter(|uri| !uri.is_empty());
        let explicit = told.is_some();
        let uri = told.unwrap_or_else(|| {
            let folder = format!("azureml://datastores/{}/paths/azureml/{job}/{name}/", defaults.datastore);
            if kind.eq_ignore_ascii_case("uri_file") { folder + name } else { folder }
        });
        let uri = uri
            .replace("${{name}}", job)
            .replace("${{output_name}}", name)
            .replace("${{default_datastore}}", &defaults.datastore);
        out.insert(name.clone(), Output { kind, uri, explicit, declared: all, parent });
    }
    out
}

fn wanted_outputs(outputs: &Value) -> BTreeMap<String, Wanted> {
    let entries = outputs.as_object().into_iter().flatten();
    let declared = |value: &Value| value.as_object().cloned().unwrap_or_default();
    entries.map(|(name, value)| (name.clone(), Wanted { declared: declared(value) })).collect()
}

/// A step that was written without a component.
fn is_inline(node: &Value) -> bool {
    text(&node["componentId"]).or_else(|| text(&node["component"])).is_none()
}

fn declares(definition: &Value, what: &str, name: &str) -> bool {
    definition[what].as_object().is_some_and(|map| map.contains_key(name))
}

/// The names of the steps that a step's inputs point at.
fn needed(node: &Value) -> BTreeSet<&str> {
    let mut out = BTreeSet::new();
    let mut look = |text: &'_ str| -> Vec<String> {
        bindings::all(text)
            .into_iter()
            .filter_map(|binding| match binding {
                Binding::StepOutput(step, _) | Binding::StepInput(step, _) => Some(step.to_owned()),
                _ => None,
            })
            .collect()
    };
    for value in node["inputs"].as_object().into_iter().flatten().map(|(_, value)| value) {
        let text = value.as_str().or_else(|| value["value"].as_str()).or_else(|| value["path"].as_str());
        for step in text.map(&mut look).unwrap_or_default() {
            // Borrowed from the text itself, so that no names need to be kept beside it.
            if let Some(text) = text
                && let Some(at) = text.find(&step)
            {
                out.insert(&text[at..at + step.len()]);
            }
        }
    }
    out
}

/// An input as a job's body has it, from any of the forms that clients send.
fn as_given(value: &Value) -> Option<Given> {
    let Value::Object(map) = value else {
        return (!value.is_null()).then(|| Given::literal(&plain(value)));
    };
    let kind = ["jobInputType", "job_input_type", "type"].iter().find_map(|key| map.get(*key)?.as_str());
    let uri = ["uri", "path"].iter().find_map(|key| map.get(*key)?.as_str());
    if let (Some(literal), None) = (map.get("value").filter(|v| !v.is_null()), uri) {
        return Some(Given::literal(&plain(literal)));
    }
    let mut input = Map::new();
    input.insert("jobInputType".into(), json!(kind.unwrap_or("uri_folder")));
    input.insert("uri".into(), json!(uri.unwrap_or("")));
    if let Some(mode) = map.get("mode").filter(|mode| mode.is_string()) {
        input.insert("mode".into(), mode.clone());
    }
    let input = Value::Object(input);
    Some(Given { identity: input.clone(), input, after: BTreeSet::new() })
}

/// Fills in the pipeline's plain inputs where they stand within a text.
fn fill_literals(text: &str, scope: &Scope) -> String {
    bindings::fill(text, |binding| match binding {
        Binding::ParentInput(name) => scope.inputs.get(name).and_then(Given::value).map(String::from),
        _ => None,
    })
}

/// What names a step's work: everything that its result depends on.
fn work_of(job: &Value, inputs: &BTreeMap<String, Given>, outputs: &BTreeMap<String, Output>) -> String {
    use sha2::{Digest, Sha256};
    let properties = &job["properties"];
    let identity: BTreeMap<&String, &Value> =
        inputs.iter().map(|(name, given)| (name, &given.identity)).collect();
    let kinds: BTreeMap<&String, &String> =
        outputs.iter().map(|(name, output)| (name, &output.kind)).collect();
    let all = json!({
        "command": properties["command"],
        "code": properties["codeId"],
        "environment": properties["environmentId"],
        "variables": properties["environmentVariables"],
        "distribution": properties["distribution"],
        "resources": properties["resources"],
        "inputs": identity,
        "outputs": kinds,
    });
    let digest = Sha256::digest(all.to_string().as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a step's job: the pipeline's and the way to the step.
fn child_name(root: &str, scope: &Scope, step: &str) -> String {
    let inner = scope.name.strip_prefix(root).unwrap_or("");
    format!("{root}{inner}_{step}")
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(String::from)
}

fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => text.to_ascii_lowercase().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
