//! A pipeline while it is expanded: what it was given, what is wanted of it, and what its steps came to so far.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::Value;

use super::bindings::{self, Binding};
use super::inputs::Given;
use super::outputs::{Made, Wanted};
use crate::limits::PIPELINE_BYTES_MAX;

pub(super) struct Scope {
    /// The name of the pipeline's job.
    pub name: String,
    /// Where in the request it stands.
    pub place: String,
    /// How many pipelines it lies within.
    pub depth: usize,
    pub definition: Value,
    pub go_on: bool,
    pub inputs: BTreeMap<String, Given>,
    /// The names of its inputs, also of those that nobody gave.
    pub declared: BTreeSet<String>,
    pub wanted: BTreeMap<String, Wanted>,
    pub defaults: Defaults,
    /// The steps that have been expanded, by name.
    pub done: BTreeMap<String, Done>,
    pub room: Rc<Room>,
}

/// How much a pipeline may still come to: its steps may be the same component many times, and texts that name an input many
/// times, in pipelines within pipelines, multiply.
#[derive(Debug)]
pub(super) struct Room {
    bytes: Cell<usize>,
}

impl Default for Room {
    fn default() -> Self {
        Self { bytes: Cell::new(PIPELINE_BYTES_MAX) }
    }
}

impl Room {
    /// False if there is no room for so many bytes more; then there is none for anything.
    pub fn take(&self, bytes: usize) -> bool {
        let left = self.bytes.get().checked_sub(bytes);
        self.bytes.set(left.unwrap_or(0));
        left.is_some()
    }

    pub fn is_used_up(&self) -> bool {
        self.bytes.get() == 0
    }
}

/// What holds where a step says nothing.
#[derive(Clone)]
pub(super) struct Defaults {
    pub experiment: String,
    pub compute: Option<String>,
    pub datastore: String,
}

/// What a step came to. A step that could not be read came to nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub inputs: BTreeMap<String, Given>,
    pub outputs: BTreeMap<String, Made>,
    /// Its outputs that are the pipeline's, with the pipeline's name for them.
    pub bound: BTreeMap<String, String>,
}

impl Scope {
    /// Fills in the pipeline's plain inputs where they stand within a text.
    pub(super) fn fill(&self, text: &str) -> String {
        bindings::fill(text, |binding| match binding {
            Binding::ParentInput(name) => {
                let value = self.inputs.get(name).and_then(Given::value)?;
                self.room.take(value.len()).then(|| value.to_owned())
            }
            _ => None,
        })
    }

    pub(super) fn place_of(&self, step: &str) -> String {
        format!("{}.jobs.{step}", self.place)
    }

    /// The name of a step's job: the way to the step.
    pub(super) fn job_of(&self, step: &str) -> String {
        format!("{}_{step}", self.name)
    }
}

impl Done {
    /// What it makes for the pipeline, by the pipeline's names.
    pub(super) fn for_parent(&self) -> impl Iterator<Item = (String, Made)> {
        self.bound.iter().filter_map(|(output, own)| Some((own.clone(), self.outputs.get(output)?.clone())))
    }
}

/// A step as it is written, with the declaration of its ends: its component's, or its own.
pub(super) struct Written<'a> {
    pub node: &'a Value,
    pub declaration: &'a Value,
    pub place: &'a str,
}

impl Written<'_> {
    /// Written without a component: it declares what it is given.
    pub(super) fn is_inline(&self) -> bool {
        component_of(self.node).is_none()
    }

    pub(super) fn place_of(&self, end: &str, name: &str) -> String {
        format!("{}.{end}.{name}", self.place)
    }
}

/// The id of the component that a step names.
pub(super) fn component_of(node: &Value) -> Option<String> {
    text(&node["componentId"]).or_else(|| text(&node["component"]))
}

/// A text that says something.
pub(super) fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(String::from)
}

/// A yes or no, as some clients write it: a text.
pub(super) fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => text.to_ascii_lowercase().parse().ok(),
        _ => None,
    }
}
