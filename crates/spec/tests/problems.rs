//! What is wrong with a file, as data: the YAML, and every sentence with its line.

use neap_spec::{
    Context, Defaults, Document, Error, Files, Request, Scope, batch_deployment_request, component_request,
    job_request, schedule_request,
};
use std::path::Path;

struct Table;

impl Files for Table {
    fn read(&self, path: &Path) -> std::io::Result<String> {
        Ok(match path.to_str() {
            Some("comp.yml") => {
                "type: command\nname: c\ninputs: {rows: {type: uri_folder}, rate: {type: number, default: 1}}\n\
                 outputs: {model: {type: uri_folder}}\ncommand: run ${{inputs.rows}} ${{outputs.model}}\n\
                 environment: {image: x}\n"
            }
            Some("bad.yml") => "type: command\ncommand: run ${{inputs.rwos}}\ninputs: {rows: {}}\ncomand: x\n",
            Some("loop.yml") => "type: pipeline\njobs: {again: {type: pipeline, component: ./loop.yml}}\n",
            _ => return Err(std::io::ErrorKind::NotFound.into()),
        }
        .to_owned())
    }

    fn exists(&self, path: &Path) -> bool {
        path != Path::new("nowhere")
    }
}

type Build = fn(&Document, &Context<'_>) -> Result<Request, Error>;

fn job(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    job_request(document, context, &Defaults { name: "j", experiment: "e" })
}

#[track_caller]
fn check(build: Build, yaml: &str, expected: &[&str]) {
    let scope = Scope { subscription_id: "S".into(), resource_group: "R".into(), workspace: "W".into() };
    let context = Context { scope: &scope, folder: Path::new(""), files: &Table };
    let said: Vec<String> = match build(&Document::parse(yaml).unwrap(), &context) {
        Ok(_) => Vec::new(),
        Err(Error::Problems(problems)) => problems.iter().map(ToString::to_string).collect(),
        Err(other) => vec![other.to_string()],
    };
    assert_eq!(said, expected, "{yaml}");
}

#[test]
fn bindings_that_lead_nowhere() {
    check(
        job,
        "type: pipeline\ninputs: {rate: 1}\noutputs: {model: }\njobs:\n  a:\n    command: run ${{inputs.x}}\n    \
         environment: {image: x}\n    inputs:\n      y: ${{parent.inputs.rat}}\n      z: ${{inputs.rate}}\n    \
         outputs:\n      o: ${{parent.outputs.modle}}\n  b:\n    component: ./comp.yml\n    inputs:\n      \
         rows: ${{parent.jobs.a.outputs.p}}\n      rtae: 3\n    compute: ${{parent.inputs.cluster}}\n",
        &[
            "line 9: jobs.a.inputs.y: ${{parent.inputs.rat}}: the pipeline has no input `rat`; did you mean `rate`?",
            "line 10: jobs.a.inputs.z: ${{inputs.rate}} is not seen from here; write ${{parent.inputs.rate}}",
            "line 12: jobs.a.outputs.o: ${{parent.outputs.modle}}: the pipeline has no output `modle`; did you mean \
             `model`?",
            "line 16: jobs.b.inputs.rows: ${{parent.jobs.a.outputs.p}}: the step `a` has no output `p`",
            "line 18: jobs.b.compute: ${{parent.inputs.cluster}}: the pipeline has no input `cluster`",
            "line 6: jobs.a.command: ${{inputs.x}} is not declared in `inputs`",
            "line 17: jobs.b.inputs.rtae: the component has no such input; did you mean `rate`?",
        ],
    );
}

#[test]
fn names_that_would_be_another_path() {
    for name in ["", ".", ".."] {
        check(
            job,
            &format!("command: run\nenvironment: {{image: x}}\nname: \"{name}\"\n"),
            &[&format!("line 3: name: `{name}` is no name")],
        );
    }
}

#[test]
fn steps_that_wait_in_a_circle() {
    let step = |from: &str| {
        format!(
            "{{command: run, environment: {{image: x}}, inputs: {{i: \"${{{{parent.jobs.{from}.outputs.o}}}}\"}}, \
             outputs: {{o: }}}}"
        )
    };
    check(
        job,
        &format!("type: pipeline\njobs:\n  a: {}\n  b: {}\n  c: {}\n", step("b"), step("c"), step("a")),
        &["line 3: jobs: the steps wait for each other in a circle: a -> b -> c -> a"],
    );
    check(
        job,
        &format!("type: pipeline\njobs:\n  a: {}\n", step("a")),
        &["line 3: jobs.a.inputs.i: ${{parent.jobs.a.outputs.o}}: a step cannot wait for itself"],
    );
}

#[test]
fn steps_that_are_not_right() {
    check(
        job,
        "type: pipeline\nsettings: {force_rern: true, on_init: a}\njobs:\n  1st: {command: x, environment: {image: x}}\n  \
         a: {type: spark}\n  b: {type: comand}\n  c: just words\n  d: {component: ./comp.yml, command: x}\n  \
         e: {component: nothing}\n  f: {component: ./nowhere.yml}\n  g: {type: pipeline, component: ./loop.yml}\n  \
         h: {type: parallel, component: ./comp.yml}\n  i: {type: pipeline, jobs: {}}\n  \
         j: {command: x, code: nowhere, environment: {image: x}, distribution: {type: torch}}\n",
        &[
            "line 2: settings.force_rern: unknown key; did you mean `force_rerun`?",
            "line 2: settings.on_init: a step that runs before all others is not offered; let the others bind to it",
            "line 4: jobs.1st: a step's name has letters, digits and `_`, and begins with a letter",
            "line 5: jobs.a.type: spark steps are not offered; write the work as a command step (type: command)",
            "line 6: jobs.b.type: `comand` is not one of command, sweep, parallel, pipeline; did you mean `command`?",
            "line 7: jobs.c: a step is a mapping, with `command` and `environment`, or with `component`",
            "line 8: jobs.d.command: belongs to the component; a step that names a component cannot change it",
            "line 9: jobs.e.component: `nothing` names no component; write a file (./nothing.yml), \
             azureml:NAME:VERSION or azureml:NAME@latest",
            "line 10: jobs.f.component: cannot read nowhere.yml: entity not found",
            "loop.yml: line 2: jobs.again.component: loop.yml uses itself (loop.yml)",
            "line 12: jobs.h.component: this is a command component, and the step is `type: parallel`",
            "line 13: jobs.i.jobs: a pipeline inside a pipeline is a component: move it to a file of its own and name \
             it here (component: ./FILE.yml)",
            "line 14: jobs.j.distribution.type: `torch` is not one of pytorch, mpi, tensorflow, ray; did you mean \
             `pytorch`?",
            "line 8: jobs.d.inputs.rows: the component needs this input, and the step does not give it",
            "line 14: jobs.j.code: nowhere does not exist; relative paths count from the folder of the YAML file",
        ],
    );
    check(job, "type: pipeline\njobs: {}\n", &["line 2: jobs: a pipeline needs at least one step"]);
    check(
        job,
        "type: pipeline\n",
        &["jobs: required: the steps of the pipeline, or a `component` that is one"],
    );
}

#[test]
fn a_component_file_says_its_own_problems() {
    check(
        job,
        "type: pipeline\njobs:\n  a: {component: ./bad.yml}\n",
        &[
            "bad.yml: line 3: inputs.rows.type: required, and not given",
            "bad.yml: line 4: comand: unknown key; did you mean `command`?",
            "bad.yml: environment: required, and not given",
            "bad.yml: line 2: command: ${{inputs.rwos}} is not declared in `inputs`; did you mean `rows`?",
            "line 3: jobs.a.inputs.rows: the component needs this input, and the step does not give it",
        ],
    );
    check(
        component_request,
        "type: sweep\nname: s\n",
        &[
            "line 1: type: a sweep is a step and not a component: write `type: sweep` in the step, with the component as \
           its `trial`",
        ],
    );
}

#[test]
fn sweeps_that_are_not_right() {
    check(
        job,
        "type: sweep\ntrial: {command: \"run ${{search_space.y}}\", environment: {image: x}}\nsampling_algorithm: grid\n\
         search_space:\n  x: {type: uniform, min_value: 2, max_value: 1}\n  z: {type: choice, values: []}\n  \
         w: {type: choise}\nobjective: {primary_metric: m, goal: max}\nearly_termination: {type: bandit}\n\
         limits: {max_total_trials: 2, max_concurrent_trials: 3}\n",
        &[
            "line 7: search_space.w.type: `choise` is not one of choice, randint, uniform, loguniform, quniform, \
             qloguniform, normal, lognormal, qnormal, qlognormal; did you mean `choice`?",
            "line 8: objective.goal: `max` is not one of maximize, minimize",
            "line 9: early_termination: bandit takes one of slack_factor and slack_amount",
            "line 5: search_space.x: grid tries every value, and `uniform` has no end of them; use choice",
            "line 5: search_space.x: min_value 2 is above max_value 1",
            "line 6: search_space.z: choice needs at least one value",
            "line 7: search_space.w: grid tries every value, and `choise` has no end of them; use choice",
            "line 10: limits.max_concurrent_trials: 3 at once is more than the 2 trials in all",
            "line 2: trial.command: ${{search_space.y}} is not declared in `search_space`",
        ],
    );
}

#[test]
fn parallel_work_that_is_not_right() {
    check(
        job,
        "type: pipeline\njobs:\n  p:\n    type: parallel\n    inputs: {d: 1}\n    input_data: d\n    \
         mini_batch_size: many\n    task:\n      type: model\n      append_row_to: ${{outputs.o}}\n      \
         environment: {image: x}\n",
        &[
            "line 7: jobs.p.mini_batch_size: must be a count of files (10) or a size (10kb, 2mb), more than nothing",
            "line 6: jobs.p.input_data: must name an input as ${{inputs.NAME}}, not `d`",
            "line 10: jobs.p.task.append_row_to: ${{outputs.o}} is not declared in `outputs`",
            "line 9: jobs.p.task.type: `type: model` is not offered: load the model in init() of a script (type: \
             run_function) and give it as an input",
        ],
    );
}

#[test]
fn schedules_and_deployments_that_are_not_right() {
    check(
        schedule_request,
        "name: s\ntrigger: {type: cron, expression: \"* * *\"}\ncreate_job: {type: command, command: ls}\n",
        &[
            "line 2: trigger.expression: has 3 fields; write five: minutes hours days-of-month months days-of-week",
            "line 3: create_job.environment: required, and not given",
        ],
    );
    check(
        schedule_request,
        "name: s\ntrigger: {type: recurrence, frequency: day, interval: 0, schedule: {hours: [24], minutes: 60}}\n\
         create_job: words\n",
        &[
            "line 2: trigger.interval: must be 1 or more, not 0",
            "line 2: trigger.schedule.hours: 24 is above 23",
            "line 2: trigger.schedule.minutes: 60 is above 59",
            "line 3: create_job: `words` is neither a YAML file nor azureml:JOB",
        ],
    );
    check(
        batch_deployment_request,
        "name: d\nendpoint_name: e\nmodel: m\nsettings: {mini_batch: 3}\n",
        &[
            "line 4: settings.mini_batch: unknown key; did you mean `mini_batch_size`?",
            "compute: required: the cluster that the endpoint's jobs run on",
            "line 3: model: `m` names no model; write azureml:NAME:VERSION, azureml:NAME@latest or {path: ./FOLDER}",
        ],
    );
}
