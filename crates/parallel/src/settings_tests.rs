//! What is read of a parallel step, and what is said of a wrong one.

use serde_json::json;

use super::*;

fn step() -> Value {
    json!({
        "task": {"type": "run_function", "code": "azureml:c", "entry_script": "./score.py", "append_row_to": "${{outputs.o}}"},
        "input_data": "${{inputs.d}}",
        "inputs": {"d": {"jobInputType": "uri_folder", "uri": "u"}},
        "outputs": {"o": {"jobOutputType": "uri_file"}},
    })
}

#[test]
fn defaults_are_azures() {
    let read = Parallel::read(&step()).unwrap();
    let expect = Parallel {
        entry_script: "score.py".into(),
        input: "d".into(),
        append_row_to: Some("o".into()),
        mini_batch_error_threshold: -1,
        error_threshold: -1,
        logging_level: "INFO".into(),
        max_retries: 2,
        timeout_s: 60,
        instances: 1,
        ..Parallel::default()
    };
    assert_eq!(read, expect);
}

#[test]
fn everything_said_is_taken() {
    let mut asked = step();
    asked["mini_batch_size"] = json!("10kb");
    asked["mini_batch_error_threshold"] = json!("3");
    asked["error_threshold"] = json!(4);
    asked["logging_level"] = json!("debug");
    asked["max_concurrency_per_instance"] = json!(2);
    asked["retry_settings"] = json!({"max_retries": 0, "timeout": "9"});
    asked["resources"] = json!({"instanceCount": 3});
    asked["task"]["program_arguments"] = json!(
        "--a 'x  y' --allowed_failed_percent=7 --error_threshold 5 ${{inputs.d}} --metrics_name_prefix p"
    );
    let read = Parallel::read(&asked).unwrap();
    assert_eq!(read.by, By::Bytes(10_240));
    assert_eq!(
        (read.mini_batch_error_threshold, read.error_threshold, read.allowed_failed_percent),
        (3, 5, Some(7))
    );
    assert_eq!((read.logging_level.as_str(), read.concurrency), ("DEBUG", Some(2)));
    assert_eq!((read.max_retries, read.timeout_s, read.instances), (0, 9, 3));
    let words: Vec<&str> = read.arguments.split_whitespace().collect();
    assert_eq!(words.join(" "), "--a 'x y' ${{inputs.d}}");
    assert!(read.arguments.contains("'x  y'"), "what is the user's stays as it was written");
    assert_eq!(read.notes, ["--metrics_name_prefix of program_arguments is taken out and has no effect."]);
}

#[test]
fn sizes() {
    let by = |size: Value, kind: &str| {
        let mut asked = step();
        asked["mini_batch_size"] = size;
        asked["inputs"]["d"]["jobInputType"] = json!(kind);
        Parallel::read(&asked).map(|read| read.by).ok()
    };
    assert_eq!(by(json!(5), "uri_folder"), Some(By::Files(5)));
    assert_eq!(by(json!("5"), "mltable"), Some(By::Files(5)));
    assert_eq!(by(json!("1 MB"), "uri_folder"), Some(By::Bytes(1 << 20)));
    assert_eq!(by(Value::Null, "mltable"), Some(By::Bytes(1 << 20)));
    for wrong in [json!(0), json!("x"), json!("0kb"), json!("-1"), json!("1tb"), json!(1.5)] {
        assert_eq!(by(wrong.clone(), "uri_folder"), None, "{wrong}");
    }
}

#[test]
fn partition_keys_win() {
    let mut asked = step();
    asked["mini_batch_size"] = json!("10");
    asked["partition_keys"] = json!(["year", "kind"]);
    assert_eq!(Parallel::read(&asked).unwrap().by, By::Keys(vec!["year".into(), "kind".into()]));
}

#[test]
fn all_problems_at_once() {
    let asked = json!({
        "task": {"type": "model", "entry_script": "../x.py", "append_row_to": "${{outputs.z}}", "program_arguments": "--error_threshold x"},
        "input_data": "data",
        "mini_batch_size": "many",
        "mini_batch_error_threshold": -2,
        "logging_level": "LOUD",
        "resources": {"instanceCount": 0},
        "max_concurrency_per_instance": 0,
        "retry_settings": {"timeout": 0, "max_retries": -1},
    });
    let problems = Parallel::read(&asked).unwrap_err();
    let places: Vec<&str> = problems.iter().map(|problem| problem.at.as_str()).collect();
    assert_eq!(
        places,
        [
            "task.type",
            "task.entry_script",
            "task.code",
            "input_data",
            "task.append_row_to",
            "mini_batch_size",
            "mini_batch_error_threshold",
            "logging_level",
            "resources.instance_count",
            "max_concurrency_per_instance",
            "retry_settings.max_retries",
            "retry_settings.timeout",
            "task.program_arguments --error_threshold",
        ]
    );
}

#[test]
fn the_input_must_be_files() {
    let mut asked = step();
    asked["inputs"]["d"] = json!({"jobInputType": "literal", "value": "3"});
    assert!(Parallel::read(&asked).unwrap_err()[0].says.contains("'d' is not one of the step's inputs"));
}

#[test]
fn what_a_batch_endpoint_adds() {
    let mut asked = step();
    assert_eq!(Parallel::read(&asked).unwrap().served, None);
    asked["batch_endpoint"] = json!({"output": "o", "rows_file": "p.csv", "model": "m"});
    let served = Parallel::read(&asked).unwrap().served;
    let expect = Served { model: Some("m".into()), output: "o".into(), rows_file: Some("p.csv".into()) };
    assert_eq!(served, Some(expect));
    for bad in ["../x", "a/b", "", "."] {
        asked["batch_endpoint"]["rows_file"] = json!(bad);
        assert_eq!(Parallel::read(&asked).unwrap_err()[0].at, "batch_endpoint", "{bad}");
    }
}
