use super::*;

const AT: Called<'_> = Called { endpoint: "scores", deployment: "v1" };

fn deployment(more: &Value) -> Value {
    let mut body = json!({"compute": "azureml:cpu", "codeConfiguration": {"codeId": "azureml:c:1", "scoringScript": "score.py"},
        "environmentId": "azureml:e:1", "model": {"assetId": "azureml:m:1"}, "retrySettings": {"maxRetries": 2, "timeout": "PT5M"},
        "resources": {"instanceCount": 3}});
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let read = read::read(&json!({"properties": body}));
    assert_eq!(read.problems, []);
    read.properties
}

fn model() -> Model {
    Model { id: "azureml:m:1".into(), kind: "custom_model".into() }
}

fn call() -> Call {
    let data = json!({"jobInputType": "uri_folder", "uri": "azureml://datastores/d/paths/x/"});
    Call { inputs: Map::from_iter([("UriFolder".to_owned(), data)]), ..Call::default() }
}

#[test]
fn a_model_becomes_one_parallel_step_that_the_parallel_crate_reads() {
    let properties = deployment(&json!({"outputFileName": "rows.txt"}));
    let component = component(&properties, Some(&model()));
    let body = of_model(AT, &properties, Some(&model()), &call(), Scoring::Written(&component));
    let body = &body["properties"];
    assert_eq!(
        (body["jobType"].as_str(), body["experimentName"].as_str()),
        (Some("Pipeline"), Some("scores"))
    );
    assert_eq!(body["inputs"][DATA]["uri"], "azureml://datastores/d/paths/x/");
    assert_eq!(body["properties"], json!({ENDPOINT_PROPERTY: "scores", DEPLOYMENT_PROPERTY: "v1"}));
    let mut step = body["jobs"][STEP].clone();
    assert_eq!(step["computeId"], "azureml:cpu");
    assert_eq!(step["inputs"][MODEL], json!({"job_input_type": "custom_model", "uri": "azureml:m:1"}));
    // As the expansion of a pipeline fills it in.
    step["inputs"][DATA] = json!({"jobInputType": "uri_folder", "uri": "x"});
    step["resources"]["instanceCount"] = step["resources"]["instance_count"].take();
    let settings = neap_parallel::Parallel::read(&step).unwrap();
    assert_eq!(
        (settings.entry_script.as_str(), settings.instances, settings.timeout_s),
        ("score.py", 3, 300)
    );
    assert_eq!((settings.max_retries, settings.concurrency, settings.error_threshold), (2, Some(1), -1));
    assert_eq!(settings.by, neap_parallel::By::Files(10));
    assert_eq!(settings.append_row_to.as_deref(), Some(SCORE));
    let served = settings.served.unwrap();
    assert_eq!(served.rows_file.as_deref(), Some("rows.txt"));
    assert_eq!(served.model.as_deref(), Some(MODEL));
}

#[test]
fn a_registered_step_is_only_named_and_a_summary_has_no_rows() {
    let properties = deployment(&json!({"outputAction": "summary_only"}));
    assert!(component(&properties, None)["task"]["append_row_to"].is_null());
    let body = of_model(AT, &properties, None, &call(), Scoring::Registered("azureml:x:1"));
    let step = &body["properties"]["jobs"][STEP];
    assert_eq!((step["componentId"].as_str(), step["task"].is_null()), (Some("azureml:x:1"), true));
    assert!(step["inputs"][MODEL].is_null());
}

#[test]
fn a_call_says_some_things_otherwise() {
    let properties = deployment(&json!({}));
    let changes =
        json!({"miniBatchSize": 2, "retrySettings": {"maxRetries": 0}, "resources": {"instanceCount": 1}});
    let call = Call { changes: changes.as_object().cloned().unwrap(), ..call() };
    let component = component(&changed(&properties, &call), None);
    assert_eq!(component["mini_batch_size"], "2");
    assert_eq!(component["retry_settings"], json!({"max_retries": 0, "timeout": 300}));
    assert_eq!(component["resources"], json!({"instance_count": 1}));
}

#[test]
fn a_pipelines_inputs_are_held_against_what_it_declares() {
    let properties = read::read(
        &json!({"properties": {"deploymentConfiguration": {"deploymentConfigurationType": "PipelineComponent",
        "componentId": {"assetId": "azureml:c:1"}, "settings": {"default_compute": "cpu"}}}}),
    )
    .properties;
    let spec = json!({"inputs": {"data": {"type": "uri_folder"}, "rate": {"type": "number", "default": 0.5}, "seed": {"type": "integer", "optional": true},
        "word": {"type": "string"}, "other": {"type": "uri_file"}},
        "outputs": {"rows": {"type": "uri_folder"}}, "jobs": {"a": {"type": "command"}}});
    let given = json!({
        "data": {"jobInputType": "uri_folder", "uri": "x"}, "word": {"jobInputType": "uri_file", "uri": "y"}, "odd": {"jobInputType": "literal", "value": "1"},
    });
    let call = Call { inputs: given.as_object().cloned().unwrap(), ..Call::default() };
    let (body, problems) = of_pipeline(AT, &properties, &spec, &call);
    let at: Vec<_> = problems.iter().filter_map(|problem| problem.target.as_deref()).collect();
    assert_eq!(at, ["properties.inputData.word", "properties.inputData.other", "properties.inputData.odd"]);
    let body = &body["properties"];
    assert_eq!(body["inputs"]["rate"], json!({"jobInputType": "literal", "value": 0.5}));
    assert_eq!(body["inputs"]["seed"], Value::Null);
    assert_eq!(body["outputs"], json!({"rows": {"jobOutputType": "uri_folder"}}));
    assert_eq!((&body["settings"]["default_compute"], &body["jobs"]), (&json!("cpu"), &spec["jobs"]));
}
