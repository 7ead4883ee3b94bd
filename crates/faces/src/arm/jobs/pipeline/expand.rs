//! From a pipeline to its steps: one flat list, each step after what it needs, with every binding filled in.
//!
//! A step becomes the body of the job that it is, so that it is read by the code that reads jobs. Where an output will
//! lie is known here already: a step's output and another's input are the same place, and nothing is copied.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use neap_core::state::Workspace;
use neap_core::{Problem, Refusal, limits};
use serde_json::{Map, Value, json};

use super::super::references::Shelf;
use super::inputs::Given;
use super::order::order;
use super::outputs::{Made, Output, bound_to_parent};
use super::reuse::{self, Earlier};
use super::scope::{Defaults, Done, Scope, Written, component_of, flag, text};
use super::{body, component, inputs, outputs};
use crate::arm::errors::bad;
use crate::json_bytes::json_bytes;
use crate::limits::{PIPELINE_BYTES_MAX, PIPELINE_PROBLEMS_MAX};
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

/// Looks around while a pipeline is expanded.
pub(super) struct Around<'a> {
    pub shelf: &'a dyn Shelf,
    pub workspace: &'a Workspace,
    pub earlier: &'a dyn Fn(&str) -> Result<Option<Earlier>, Refusal>,
}

impl Around<'_> {
    fn component(
        &self,
        id: &str,
        place: &str,
        problems: &mut Vec<Problem>,
    ) -> Result<Option<Value>, Refusal> {
        component::find(self.shelf, self.workspace, id, place, problems)
    }
}

#[derive(Debug)]
pub(super) struct Expansion {
    pub steps: Vec<Step>,
    pub problems: Vec<Problem>,
}

pub(super) fn expand(name: &str, properties: &Value, around: &Around<'_>) -> Result<Expansion, Refusal> {
    let settings = &properties["settings"];
    let mut problems = Vec::new();
    let component = match (&properties["jobs"], text(&properties["componentId"])) {
        (Value::Object(jobs), _) if !jobs.is_empty() => None,
        (_, Some(id)) => around.component(&id, "properties.componentId", &mut problems)?,
        _ => None,
    };
    let spec = component.as_ref();
    let jobs = spec.unwrap_or(properties)["jobs"].as_object().cloned().unwrap_or_default();
    if jobs.is_empty() && problems.is_empty() {
        problems.push(bad("A pipeline needs at least one job in 'jobs'.", "properties.jobs"));
    }
    let scope = Scope {
        name: name.into(),
        place: "properties".into(),
        depth: 0,
        definition: properties.clone(),
        go_on: flag(&settings["continue_on_step_failure"]).unwrap_or(true),
        inputs: match spec {
            Some(spec) => {
                inputs::of_component(&properties["inputs"], spec["inputs"].as_object(), &mut problems)
            }
            None => inputs::of_pipeline(&properties["inputs"]),
        },
        declared: names(&[&properties["inputs"], &spec.unwrap_or(&Value::Null)["inputs"]]),
        wanted: outputs::of_pipeline(&properties["outputs"], &spec.unwrap_or(&Value::Null)["outputs"]),
        defaults: defaults(properties),
        done: BTreeMap::new(),
        room: Rc::default(),
    };
    let force_rerun = flag(&settings["force_rerun"]).unwrap_or(false);
    let mut expander = Expander { around, force_rerun, steps: Vec::new(), problems, is_full: false };
    let room = Rc::clone(&scope.room);
    expander.pipeline(scope, &jobs, 0)?;
    if room.is_used_up() && !expander.is_full {
        let message = format!("The definitions of the steps take more than {} MB.", PIPELINE_BYTES_MAX >> 20);
        expander.problems.push(bad(message, "properties.jobs"));
    }
    Ok(Expansion { steps: expander.steps, problems: expander.problems })
}

/// The keys of these mappings.
fn names(mappings: &[&Value]) -> BTreeSet<String> {
    mappings.iter().filter_map(|mapping| mapping.as_object()).flat_map(|map| map.keys().cloned()).collect()
}

fn defaults(properties: &Value) -> Defaults {
    let settings = &properties["settings"];
    let datastore = text(&settings["default_datastore"])
        .map(|id| id.trim_start_matches("azureml:").rsplit('/').next().unwrap_or("").to_owned())
        .filter(|name| !name.is_empty());
    Defaults {
        experiment: properties["experimentName"].as_str().unwrap_or("Default").to_owned(),
        compute: text(&properties["computeId"]).or_else(|| text(&settings["default_compute"])),
        datastore: datastore.unwrap_or_else(|| workspace_files::BLOB_STORE.into()),
    }
}

struct Expander<'a> {
    around: &'a Around<'a>,
    force_rerun: bool,
    steps: Vec<Step>,
    problems: Vec<Problem>,
    /// A limit was reached; nothing more is expanded.
    is_full: bool,
}

/// A step whose ends are known.
struct Known<'a> {
    step: &'a str,
    kind: &'a str,
    node: &'a Value,
    /// What it runs: its component, or itself.
    spec: &'a Value,
    /// Of a sweep: what is tried.
    trial: Option<&'a Value>,
    name: String,
    place: String,
    /// Where in the list the pipeline is that it belongs to.
    family: usize,
    defaults: Defaults,
    inputs: BTreeMap<String, Given>,
    outputs: BTreeMap<String, Output>,
}

impl Expander<'_> {
    /// Expands a pipeline that belongs to the one at `family`, and returns the outputs that its steps make for it.
    fn pipeline(
        &mut self,
        mut scope: Scope,
        jobs: &Map<String, Value>,
        family: usize,
    ) -> Result<BTreeMap<String, Made>, Refusal> {
        let own = self.steps.len();
        self.steps.push(Step {
            name: scope.name.clone(),
            place: scope.place.clone(),
            family,
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
        let ordered = order(jobs);
        if !ordered.circle.is_empty() {
            let names: Vec<String> = ordered.circle.iter().map(|name| format!("'{name}'")).collect();
            self.problems.push(bad(
                format!("The steps {} wait for each other in a circle.", names.join(", ")),
                &format!("{}.jobs", scope.place),
            ));
        }
        let mut bound = BTreeMap::new();
        for step in ordered.steps {
            let done = self.step(&scope, own, step, &jobs[step])?;
            bound.extend(done.for_parent());
            scope.done.insert(step.to_owned(), done);
        }
        let is_full = self.is_full;
        for name in scope.wanted.keys().filter(|name| !is_full && !bound.contains_key(*name)) {
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

    /// Whether one more step is too much. It is told once; what was expanded so far is refused with it.
    fn is_too_much(&mut self, scope: &Scope) -> bool {
        if self.is_full {
            return true;
        }
        let why = if self.steps.len() > limits::FAMILY_MEMBERS_MAX {
            format!("it has more than {} steps", limits::FAMILY_MEMBERS_MAX)
        } else if scope.room.is_used_up() {
            format!("the definitions of its steps take more than {} MB", PIPELINE_BYTES_MAX >> 20)
        } else if self.problems.len() > PIPELINE_PROBLEMS_MAX {
            format!("more than {PIPELINE_PROBLEMS_MAX} things are wrong with it")
        } else {
            return false;
        };
        self.is_full = true;
        let message = format!(
            "The pipeline is too large once its components are filled in: {why}. Split it into several pipelines."
        );
        self.problems.push(bad(message, &format!("{}.jobs", scope.place)));
        true
    }

    fn step(&mut self, scope: &Scope, family: usize, step: &str, node: &Value) -> Result<Done, Refusal> {
        if self.is_too_much(scope) {
            return Ok(Done::default());
        }
        let place = scope.place_of(step);
        let found = match component_of(node) {
            Some(id) => {
                let at = format!("{place}.componentId");
                let Some(spec) = self.around.component(&id, &at, &mut self.problems)? else {
                    return Ok(Done::default());
                };
                Some(spec)
            }
            None => None,
        };
        let spec = found.as_ref().unwrap_or(node);
        let taken = json_bytes(node).saturating_add(found.as_ref().map_or(0, json_bytes));
        if !scope.room.take(taken) {
            self.is_too_much(scope);
            return Ok(Done::default());
        }
        let kind = text(&node["type"]).or_else(|| text(&spec["type"])).unwrap_or_else(|| "command".into());
        let trial = if kind == "sweep" { self.trial(node, &place)? } else { None };
        let written = Written { node, declaration: trial.as_ref().unwrap_or(spec), place: &place };
        let tried = node["search_space"].as_object().filter(|_| kind == "sweep");
        let name = scope.job_of(step);
        let inputs = inputs::of_step(scope, &written, tried, &mut self.problems);
        let outputs = outputs::of_step(scope, &written, &name, &mut self.problems);
        let compute = self.compute(scope, node, &place).or_else(|| scope.defaults.compute.clone());
        let defaults = Defaults { compute, ..scope.defaults.clone() };
        let trial = trial.as_ref();
        let known =
            Known { step, kind: &kind, node, spec, trial, name, place, family, defaults, inputs, outputs };
        match kind.as_str() {
            "pipeline" => self.nested(scope, known),
            "command" | "sweep" | "parallel" => self.job(scope, known),
            other => {
                let why = match other {
                    "spark" | "automl" | "import" | "data_transfer" | "finetuning" => "is not part of Neap",
                    "if_else" | "do_while" | "parallel_for" => "is not offered yet",
                    _ => "is not known",
                };
                self.problems.push(bad(
                    format!("The step '{step}' is of type '{other}', which {why}: command, sweep, parallel and pipeline are."),
                    &format!("{}.type", known.place),
                ));
                Ok(Done::default())
            }
        }
    }

    /// A step that is a pipeline.
    fn nested(&mut self, scope: &Scope, known: Known<'_>) -> Result<Done, Refusal> {
        let bound = bound_to_parent(&known.outputs);
        let inner = Scope {
            name: known.name,
            place: known.place,
            depth: scope.depth + 1,
            definition: body::nested(known.node, &known.defaults.experiment),
            go_on: scope.go_on,
            inputs: known.inputs,
            declared: names(&[&known.node["inputs"], &known.spec["inputs"]]),
            wanted: known.outputs.iter().map(|(name, output)| (name.clone(), output.wanted())).collect(),
            defaults: known.defaults,
            done: BTreeMap::new(),
            room: Rc::clone(&scope.room),
        };
        let empty = Map::new();
        let jobs = known.spec["jobs"].as_object().unwrap_or(&empty);
        let outputs = self.pipeline(inner, jobs, known.family)?;
        Ok(Done { inputs: BTreeMap::new(), outputs, bound })
    }

    /// A step that is a job.
    fn job(&mut self, scope: &Scope, known: Known<'_>) -> Result<Done, Refusal> {
        let by = self.steps.len();
        let fill = |text: &str| scope.fill(text);
        let job = body::job(&body::Parts {
            kind: known.kind,
            node: known.node,
            spec: known.spec,
            trial: known.trial,
            compute: known.defaults.compute.as_deref(),
            experiment: &known.defaults.experiment,
            display_name: known.step,
            inputs: known.inputs.iter().map(|(name, given)| (name.clone(), given.input.clone())).collect(),
            outputs: known.outputs.iter().map(|(name, output)| (name.clone(), output.body())).collect(),
            fill: &fill,
        });
        let may_reuse = known.kind == "command" && !self.force_rerun;
        let work =
            if may_reuse { reuse::work(known.spec, &job, &known.inputs, &known.outputs) } else { None };
        let earlier = match &work {
            Some(work) => (self.around.earlier)(work)?,
            None => None,
        };
        let made = |(name, output): (&String, &Output)| {
            let before = earlier.as_ref().and_then(|earlier| earlier.outputs.get(name));
            let identity = match &work {
                Some(work) => json!({"work": work, "output": name}),
                None => json!({"uri": output.uri}),
            };
            let uri = before.unwrap_or(&output.uri).clone();
            (name.clone(), Made { kind: output.kind.clone(), uri, by, identity })
        };
        let outputs: BTreeMap<String, Made> = known.outputs.iter().map(made).collect();
        self.steps.push(Step {
            name: known.name,
            place: known.place,
            family: known.family,
            after: known.inputs.values().flat_map(|given| given.after.iter().copied()).collect(),
            what: StepKind::Job {
                body: body::with_outputs(job, &outputs),
                work,
                outputs: outputs.clone(),
                reused: earlier.map(|earlier| earlier.job),
            },
        });
        Ok(Done { inputs: known.inputs, outputs, bound: bound_to_parent(&known.outputs) })
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
        self.around.component(&id, &format!("{place}.trial"), &mut self.problems)
    }

    fn compute(&mut self, scope: &Scope, node: &Value, place: &str) -> Option<String> {
        let asked = text(&node["computeId"]).or_else(|| text(&node["compute"]))?;
        let filled = scope.fill(&asked);
        if filled.contains("${{") {
            self.problems.push(bad(
                format!("The compute '{asked}' names no input of the pipeline."),
                &format!("{place}.computeId"),
            ));
            return None;
        }
        Some(filled)
    }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
