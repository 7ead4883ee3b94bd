//! `type: sweep` jobs, and what a sweep step of a pipeline shares with them.

use crate::expressions::check_command;
use crate::fields::{
    Checker, Field, Kind, canonical, field, given, join, required, scalar_text, text, text_map,
};
use crate::planner::{Planner, is_file};
use crate::{component, environment, inputs, job, settings};
use serde_json::{Map, Value, json};

pub(crate) const LIMITS: &[Field] = &[
    field("max_total_trials", Kind::Whole(1)),
    field("max_concurrent_trials", Kind::Whole(1)),
    field("timeout", Kind::Whole(1)),
    field("trial_timeout", Kind::Whole(1)),
];

const OBJECTIVE: &[Field] =
    &[required("primary_metric", Kind::Text), required("goal", Kind::Word(&["maximize", "minimize"]))];

const ALGORITHMS: &[&str] = &["random", "grid", "bayesian"];

const SAMPLING: &[(&str, &[Field])] = &[
    (
        "random",
        &[
            field("seed", Kind::Whole(i64::MIN)),
            field("rule", Kind::Word(&["random", "sobol"])),
            field("logbase", Kind::TextOrNumber),
        ],
    ),
    ("grid", &[]),
    ("bayesian", &[]),
];

const BETWEEN: &[Field] = &[required("min_value", Kind::Number), required("max_value", Kind::Number)];
const BETWEEN_STEPS: &[Field] =
    &[required("min_value", Kind::Number), required("max_value", Kind::Number), required("q", Kind::Number)];
const BELL: &[Field] = &[required("mu", Kind::Number), required("sigma", Kind::Number)];
const BELL_STEPS: &[Field] =
    &[required("mu", Kind::Number), required("sigma", Kind::Number), required("q", Kind::Number)];

const DISTRIBUTIONS: &[(&str, &[Field])] = &[
    ("choice", &[required("values", Kind::List(&Kind::Anything))]),
    ("randint", &[required("upper", Kind::Whole(1))]),
    ("uniform", BETWEEN),
    ("loguniform", BETWEEN),
    ("quniform", BETWEEN_STEPS),
    ("qloguniform", BETWEEN_STEPS),
    ("normal", BELL),
    ("lognormal", BELL),
    ("qnormal", BELL_STEPS),
    ("qlognormal", BELL_STEPS),
];

const POLICIES: &[(&str, &[Field])] = &[
    (
        "bandit",
        &[
            field("slack_factor", Kind::Number),
            field("slack_amount", Kind::Number),
            field("evaluation_interval", Kind::Whole(1)),
            field("delay_evaluation", Kind::Whole(0)),
        ],
    ),
    (
        "median_stopping",
        &[field("evaluation_interval", Kind::Whole(1)), field("delay_evaluation", Kind::Whole(0))],
    ),
    (
        "truncation_selection",
        &[
            required("truncation_percentage", Kind::Whole(1)),
            field("exclude_finished_jobs", Kind::Flag),
            field("evaluation_interval", Kind::Whole(1)),
            field("delay_evaluation", Kind::Whole(0)),
        ],
    ),
];

/// What a sweep job and a sweep step have in common.
pub(crate) const SWEEP: &[Field] = &[
    required("sampling_algorithm", Kind::ObjectOrTyped(SAMPLING, &Kind::Word(ALGORITHMS))),
    required("search_space", Kind::Entries(&Kind::ByType(DISTRIBUTIONS))),
    required("objective", Kind::Object(OBJECTIVE)),
    field("early_termination", Kind::ByType(POLICIES)),
    field("limits", Kind::Object(LIMITS)),
    field("inputs", inputs::INPUTS),
    field("outputs", inputs::OUTPUTS),
    field("resources", Kind::Object(settings::RESOURCES)),
    field("queue_settings", Kind::Object(settings::QUEUE_SETTINGS)),
    field("identity", Kind::ByType(settings::IDENTITIES)),
];

const JOB: &[Field] = &[
    required("trial", Kind::ObjectOr(TRIAL, &Kind::Text)),
    field("type", Kind::Word(&["sweep"])),
    field("services", Kind::Entries(&Kind::ByType(settings::SERVICES))),
];

const TRIAL: &[Field] = &[
    required("command", Kind::Text),
    required("environment", Kind::ObjectOr(environment::FIELDS, &Kind::Text)),
    field("code", Kind::Text),
    field("environment_variables", Kind::Entries(&Kind::Scalar)),
    field("distribution", Kind::ByType(settings::DISTRIBUTIONS)),
    field("resources", Kind::Object(settings::RESOURCES)),
    // A trial is often a component's text moved here; what names it there has no meaning here.
    field("type", Kind::Word(&["command"])),
    field("name", Kind::Text),
    field("version", Kind::TextOrNumber),
    field("display_name", Kind::Text),
    field("description", Kind::Text),
    field("inputs", Kind::Anything),
    field("outputs", Kind::Anything),
];

pub(crate) fn job(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    spec: &Value,
    properties: &mut Map<String, Value>,
) {
    checker.check_document_with(&[JOB, SWEEP, job::COMMON]);
    properties.insert("jobType".into(), "Sweep".into());
    check(checker, "", spec);
    let (trial, defaults) = trial(planner, checker, spec);
    if let Some(trial) = trial {
        properties.insert("trial".into(), trial);
    }
    // A sweep cannot run on the submitting machine; the server says so of any compute it does not know.
    job::put_compute(planner, spec, properties);
    properties.insert("searchSpace".into(), search_space(spec));
    properties.insert("samplingAlgorithm".into(), sampling(spec));
    if let Some(objective) = given(spec, "objective") {
        properties.insert("objective".into(), self::objective(objective));
    }
    if let Some(policy) = given(spec, "early_termination") {
        properties.insert("earlyTermination".into(), early_termination(policy));
    }
    properties.insert("limits".into(), limits(given(spec, "limits").unwrap_or(&Value::Null)));
    let mut ins = inputs::of_job(planner, checker, spec);
    for (name, value) in defaults {
        ins[name] = json!({"jobInputType": "literal", "value": scalar_text(&value)});
    }
    properties.insert("inputs".into(), ins);
    properties.insert("outputs".into(), inputs::outputs_of_job(checker, spec));
    // The Azure clients send the trial's resources in both places.
    let of_trial = properties.get("trial").and_then(|trial| trial.get("resources")).cloned();
    let resources = given(spec, "resources").map(settings::resources).or(of_trial);
    if let Some(resources) = resources {
        properties.insert("resources".into(), resources);
    }
}

/// What the tables cannot say about a sweep.
pub(crate) fn check(checker: &mut Checker<'_>, place: &str, spec: &Value) {
    if let Some(policy) = given(spec, "early_termination") {
        let bandit = text(policy, "type").is_some_and(|word| word.eq_ignore_ascii_case("bandit"));
        let slacks =
            ["slack_factor", "slack_amount"].iter().filter(|key| given(policy, key).is_some()).count();
        if bandit && slacks != 1 {
            checker.problem(
                &join(place, "early_termination"),
                "bandit takes one of slack_factor and slack_amount",
            );
        }
        if let Some(percent) = given(policy, "truncation_percentage").and_then(Value::as_i64)
            && percent > 99
        {
            checker.problem(
                &join(place, "early_termination.truncation_percentage"),
                format!("must be between 1 and 99, not {percent}"),
            );
        }
    }
    let algorithm = given(spec, "sampling_algorithm");
    let algorithm = algorithm.and_then(|value| value.as_str().or_else(|| text(value, "type")));
    let grid = algorithm.is_some_and(|word| word.eq_ignore_ascii_case("grid"));
    for (name, space) in given(spec, "search_space").and_then(Value::as_object).into_iter().flatten() {
        let place = join(&join(place, "search_space"), name);
        let kind = text(space, "type").unwrap_or_default().to_lowercase();
        if grid && kind != "choice" && !kind.is_empty() {
            checker.problem(
                &place,
                format!("grid tries every value, and `{kind}` has no end of them; use choice"),
            );
        }
        if kind == "choice" && given(space, "values").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            checker.problem(&place, "choice needs at least one value");
        }
        let number = |key: &str| given(space, key).and_then(Value::as_f64);
        if let (Some(least), Some(most)) = (number("min_value"), number("max_value"))
            && least > most
        {
            checker.problem(&place, format!("min_value {least} is above max_value {most}"));
        }
    }
    let limit = |key: &str| given(spec, "limits").and_then(|limits| limits.get(key)).and_then(Value::as_i64);
    if let (Some(total), Some(at_once)) = (limit("max_total_trials"), limit("max_concurrent_trials"))
        && at_once > total
    {
        checker.problem(
            &join(place, "limits.max_concurrent_trials"),
            format!("{at_once} at once is more than the {total} trials in all"),
        );
    }
}

/// The trial, and the inputs that its component gives a value to where the sweep gives none.
fn trial(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    spec: &Value,
) -> (Option<Value>, Map<String, Value>) {
    match given(spec, "trial") {
        Some(Value::String(reference)) if is_file(reference) => {
            let Some((path, document)) = planner.read_file(checker, "trial", reference) else {
                return (None, Map::new());
            };
            let mut inner = Checker::of_file(&document, &path);
            inner.check_document(component::COMMAND_FILE);
            let mut trial = trial_body(planner, &mut inner, "", &document.value, spec);
            checker.problems.append(&mut inner.problems);
            let defaults = component_inputs(checker, spec, &document.value, &mut trial);
            (Some(trial), defaults)
        }
        Some(Value::String(reference)) => {
            let message = format!(
                "`{reference}` is not a trial that a sweep job can take: write the trial here, name a component \
                 file (./trial.yml), or make the sweep a step of a pipeline, where a registered component will do"
            );
            checker.problem("trial", message);
            (None, Map::new())
        }
        Some(value) => (Some(trial_body(planner, checker, "trial", value, spec)), Map::new()),
        None => (None, Map::new()),
    }
}

/// A component's command names its inputs; in a sweep's trial those that are searched have another name, and those
/// that nobody gives are written out of it. Answers the component's own values for what the sweep leaves open.
fn component_inputs(
    checker: &mut Checker<'_>,
    spec: &Value,
    component: &Value,
    trial: &mut Value,
) -> Map<String, Value> {
    let at = |key: &str, name: &str| given(spec, key).and_then(|all| given(all, name)).is_some();
    let ports = given(component, "inputs").and_then(Value::as_object);
    let mut command = text(trial, "command").unwrap_or_default().to_owned();
    let mut defaults = Map::new();
    for (name, port) in ports.into_iter().flatten() {
        if at("search_space", name) {
            command =
                command.replace(&format!("${{{{inputs.{name}}}}}"), &format!("${{{{search_space.{name}}}}}"));
            continue;
        }
        if at("inputs", name) {
            continue;
        }
        if let Some(value) = given(port, "default") {
            defaults.insert(name.clone(), value.clone());
        } else if given(port, "optional").and_then(Value::as_bool) == Some(true) {
            command = without_optional(&command, name);
        } else {
            checker.problem(
                &join("inputs", name),
                "the trial needs this input, and the sweep neither gives it nor searches it",
            );
        }
    }
    for key in ["inputs", "search_space"] {
        for (name, _) in given(spec, key).and_then(Value::as_object).into_iter().flatten() {
            if ports.is_none_or(|ports| !ports.contains_key(name)) {
                checker.problem(&join(key, name), "the trial's component has no such input");
            }
        }
    }
    trial["command"] = command.into();
    defaults
}

/// The command without the `$[[...]]` that names an input which is not given.
fn without_optional(command: &str, name: &str) -> String {
    let wanted = format!("${{{{inputs.{name}}}}}");
    let mut out = String::with_capacity(command.len());
    let mut rest = command;
    while let Some((before, after)) = rest.split_once("$[[") {
        let Some((inside, behind)) = after.split_once("]]") else { break };
        out.push_str(before);
        if !inside.contains(&wanted) {
            out.push_str(&format!("$[[{inside}]]"));
        }
        rest = behind;
    }
    out + rest
}

/// `place` is where the trial stands in the checker's document; `sweep` is the job around it.
fn trial_body(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    trial: &Value,
    sweep: &Value,
) -> Value {
    let mut body = Map::new();
    if let Some(command) = text(trial, "command") {
        body.insert("command".into(), command.into());
        // The inputs of a component's file are given by the sweep: as inputs of its own, or by the search space.
        let inputs = trial.get("inputs").filter(|inputs| inputs.is_object()).or(sweep.get("inputs"));
        let outputs = trial.get("outputs").filter(|outputs| outputs.is_object()).or(sweep.get("outputs"));
        let declared =
            [("inputs", inputs), ("outputs", outputs), ("search_space", sweep.get("search_space"))];
        check_command(checker, &join(place, "command"), command, &declared);
    }
    if let Some(code) = text(trial, "code")
        && let Some(id) = planner.code(checker, &join(place, "code"), code, &[])
    {
        body.insert("codeId".into(), id.into());
    }
    if let Some(value) = given(trial, "environment")
        && let Some(id) = environment::read(planner, checker, &join(place, "environment"), value)
    {
        body.insert("environmentId".into(), id.into());
    }
    if given(trial, "environment_variables").is_some() {
        body.insert("environmentVariables".into(), text_map(given(trial, "environment_variables")));
    }
    if let Some(distribution) = given(trial, "distribution") {
        body.insert("distribution".into(), settings::distribution(distribution));
    }
    let resources = given(trial, "resources").or(given(sweep, "resources"));
    let resources = resources.map_or_else(|| json!({"properties": {}}), settings::resources);
    body.insert("resources".into(), resources);
    Value::Object(body)
}

fn search_space(spec: &Value) -> Value {
    let mut all = Map::new();
    for (name, space) in given(spec, "search_space").and_then(Value::as_object).into_iter().flatten() {
        all.insert(name.clone(), distribution(space));
    }
    Value::Object(all)
}

/// `{type: uniform, min_value: a, max_value: b}` is `["uniform", [a, b]]`; choices may hold such again.
fn distribution(space: &Value) -> Value {
    let kind = text(space, "type").unwrap_or_default().replace(['_', '-'], "").to_lowercase();
    let at = |key: &str| space.get(key).cloned().unwrap_or(Value::Null);
    let arguments = match kind.as_str() {
        "choice" => json!([choices(&at("values"))]),
        "randint" => json!([at("upper")]),
        "uniform" | "loguniform" => json!([at("min_value"), at("max_value")]),
        "quniform" | "qloguniform" => json!([at("min_value"), at("max_value"), at("q")]),
        "normal" | "lognormal" => json!([at("mu"), at("sigma")]),
        _ => json!([at("mu"), at("sigma"), at("q")]),
    };
    json!([kind, arguments])
}

fn choices(values: &Value) -> Value {
    let nested = |value: &Value| match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, item)| {
                    let inner = if text(item, "type").is_some() { distribution(item) } else { item.clone() };
                    (key.clone(), inner)
                })
                .collect(),
        ),
        other => other.clone(),
    };
    Value::Array(values.as_array().into_iter().flatten().map(nested).collect())
}

fn sampling(spec: &Value) -> Value {
    let algorithm = given(spec, "sampling_algorithm").unwrap_or(&Value::Null);
    let word = algorithm.as_str().or_else(|| text(algorithm, "type")).unwrap_or_default();
    let mut body = Map::new();
    let kind = match canonical(word, ALGORITHMS) {
        Some("grid") => "Grid",
        Some("bayesian") => "Bayesian",
        _ => "Random",
    };
    body.insert("samplingAlgorithmType".into(), kind.into());
    for key in ["seed", "logbase"] {
        if let Some(value) = given(algorithm, key) {
            body.insert(key.into(), value.clone());
        }
    }
    if let Some(rule) = text(algorithm, "rule") {
        body.insert("rule".into(), rule.to_lowercase().into());
    }
    Value::Object(body)
}

fn objective(value: &Value) -> Value {
    let goal = text(value, "goal").unwrap_or_default().to_lowercase();
    json!({"goal": goal, "primaryMetric": value.get("primary_metric").cloned().unwrap_or(Value::Null)})
}

/// The policy as the wire has it, with the defaults that the Azure clients send.
pub(crate) fn early_termination(policy: &Value) -> Value {
    let word = text(policy, "type").unwrap_or_default().replace(['_', '-'], "").to_lowercase();
    let kind = match word.as_str() {
        "bandit" => "Bandit",
        "medianstopping" => "MedianStopping",
        _ => "TruncationSelection",
    };
    let mut body = Map::new();
    body.insert("policyType".into(), kind.into());
    let or = |key: &str, default: i64| given(policy, key).cloned().unwrap_or_else(|| default.into());
    body.insert("delayEvaluation".into(), or("delay_evaluation", 0));
    // The server knows that an interval of nothing means every one.
    body.insert("evaluationInterval".into(), or("evaluation_interval", 0));
    for (key, wire) in [
        ("slack_factor", "slackFactor"),
        ("slack_amount", "slackAmount"),
        ("truncation_percentage", "truncationPercentage"),
        ("exclude_finished_jobs", "excludeFinishedJobs"),
    ] {
        if let Some(value) = given(policy, key) {
            body.insert(wire.into(), value.clone());
        }
    }
    Value::Object(body)
}

fn limits(value: &Value) -> Value {
    let mut body = Map::new();
    body.insert("jobLimitsType".into(), "Sweep".into());
    for (key, wire) in
        [("max_total_trials", "maxTotalTrials"), ("max_concurrent_trials", "maxConcurrentTrials")]
    {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), value.clone());
        }
    }
    for (key, wire) in [("timeout", "timeout"), ("trial_timeout", "trialTimeout")] {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), settings::duration(value));
        }
    }
    Value::Object(body)
}

#[cfg(test)]
mod tests {
    use super::without_optional;

    #[test]
    fn optional_parts_go_with_their_input() {
        let command = "run $[[--a ${{inputs.a}}]] $[[--b ${{inputs.b}}]] end";
        assert_eq!(without_optional(command, "a"), "run  $[[--b ${{inputs.b}}]] end");
        assert_eq!(without_optional(command, "c"), command);
        assert_eq!(without_optional("run $[[--a", "a"), "run $[[--a");
    }
}
