//! Every operation of this interface, with the right that a job's token needs for it.
//!
//! [`TABLE`] is also the route table: an endpoint without a row has no route, and is refused. The owner, who shows an
//! access token or the installation's secret, needs no right. What each right means for a job's token is in `access.rs`.

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    ServerInfo,
    CreateExperiment,
    GetExperiment,
    GetExperimentByName,
    SearchExperiments,
    RenameExperiment,
    DeleteExperiment,
    RestoreExperiment,
    SetExperimentTag,
    DeleteExperimentTag,
    CreateRun,
    GetRun,
    UpdateRun,
    DeleteRun,
    RestoreRun,
    SearchRuns,
    LogMetric,
    LogParameter,
    LogBatch,
    SetTag,
    DeleteTag,
    LogInputs,
    LogOutputs,
    RecordModel,
    MetricHistory,
    MetricHistories,
    ListRunFiles,
    CreateModel,
    SearchModels,
    GetModel,
    FinishModel,
    DeleteModel,
    LogModelParams,
    SetModelTags,
    DeleteModelTag,
    ListModelFiles,
    ListFiles,
    ReadFile,
    WriteFile,
    DeleteFile,
    WriteParts,
    /// The model registry, traces, signed downloads: said not to be offered.
    NotOffered(&'static str),
}

/// What a job's token must be allowed for an operation.
///
/// A run is *the job's* if it is the job's own run, or if the job's token began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// It says nothing about anybody.
    Everybody,
    /// The job's own experiment.
    ReadExperiment,
    /// The answer is cut down to the job's own experiment.
    ListExperiments,
    /// A run of the job's, or the pipeline or sweep that the job is part of.
    ReadRun,
    /// The same for every run in `run_ids`.
    ReadRuns,
    /// The answer is cut down to runs of the job's.
    ListRuns,
    /// In the job's own experiment, and with a run of the job's as parent, if it names one.
    BeginRun,
    /// A run of the job's. Models and parents that the request names are the job's too.
    WriteRun,
    /// The same, and the models that it names as made by the run are the job's too.
    WriteOutputs,
    /// In the job's own experiment, made by a run of the job's.
    BeginModel,
    /// Logged models are assets: whoever may run jobs in the workspace may read them.
    ReadModel,
    /// A model that a run of the job's made.
    WriteModel,
    /// Files of a run that may be read, or of a model.
    ReadFile,
    /// Files of a run of the job's, or of a model that such a run made.
    WriteFile,
    /// Not with a job's token.
    OwnerOnly,
}

/// `/api/2.0/mlflow/…` or `/api/2.0/mlflow-artifacts/…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Tracking,
    Files,
}

/// One endpoint. In the path `{}` is any one segment, and `{*}` at its end any number of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    service: Service,
    method: &'static str,
    path: &'static str,
    pub operation: Operation,
    pub right: Right,
}

const REGISTRY: &str = "The model registry is not offered by Neap. Log the model to its run, and take it from there by `runs:/RUN/PATH` or `models:/MODEL_ID`.";
const TRACES: &str = "Traces are not kept by Neap.";
const PRESIGNED: &str = "Downloads go through the server; signed URLs are not given out.";

const fn tracking(method: &'static str, path: &'static str, operation: Operation, right: Right) -> Row {
    Row { service: Service::Tracking, method, path, operation, right }
}

const fn files(method: &'static str, path: &'static str, operation: Operation, right: Right) -> Row {
    Row { service: Service::Files, method, path, operation, right }
}

/// The first row that fits decides.
pub(super) const TABLE: &[Row] = {
    use Operation as Op;
    &[
        tracking("GET", "server-info", Op::ServerInfo, Right::Everybody),
        tracking("GET", "server-features", Op::ServerInfo, Right::Everybody),
        // Experiments belong to the workspace. A job reads its own.
        tracking("POST", "experiments/create", Op::CreateExperiment, Right::OwnerOnly),
        tracking("GET", "experiments/get", Op::GetExperiment, Right::ReadExperiment),
        tracking("GET", "experiments/get-by-name", Op::GetExperimentByName, Right::ReadExperiment),
        tracking("GET", "experiments/search", Op::SearchExperiments, Right::ListExperiments),
        tracking("POST", "experiments/search", Op::SearchExperiments, Right::ListExperiments),
        tracking("GET", "experiments/list", Op::SearchExperiments, Right::ListExperiments),
        tracking("POST", "experiments/list", Op::SearchExperiments, Right::ListExperiments),
        tracking("POST", "experiments/update", Op::RenameExperiment, Right::OwnerOnly),
        tracking("POST", "experiments/delete", Op::DeleteExperiment, Right::OwnerOnly),
        tracking("POST", "experiments/restore", Op::RestoreExperiment, Right::OwnerOnly),
        tracking("POST", "experiments/set-experiment-tag", Op::SetExperimentTag, Right::OwnerOnly),
        tracking("POST", "experiments/delete-experiment-tag", Op::DeleteExperimentTag, Right::OwnerOnly),
        // Runs.
        tracking("POST", "runs/create", Op::CreateRun, Right::BeginRun),
        tracking("GET", "runs/get", Op::GetRun, Right::ReadRun),
        tracking("POST", "runs/update", Op::UpdateRun, Right::WriteRun),
        tracking("POST", "runs/delete", Op::DeleteRun, Right::WriteRun),
        tracking("POST", "runs/restore", Op::RestoreRun, Right::WriteRun),
        tracking("POST", "runs/search", Op::SearchRuns, Right::ListRuns),
        tracking("POST", "runs/log-metric", Op::LogMetric, Right::WriteRun),
        tracking("POST", "runs/log-parameter", Op::LogParameter, Right::WriteRun),
        tracking("POST", "runs/log-batch", Op::LogBatch, Right::WriteRun),
        tracking("POST", "runs/set-tag", Op::SetTag, Right::WriteRun),
        tracking("POST", "runs/delete-tag", Op::DeleteTag, Right::WriteRun),
        tracking("POST", "runs/log-inputs", Op::LogInputs, Right::WriteRun),
        tracking("POST", "runs/outputs", Op::LogOutputs, Right::WriteOutputs),
        tracking("POST", "runs/log-model", Op::RecordModel, Right::WriteRun),
        tracking("GET", "metrics/get-history", Op::MetricHistory, Right::ReadRun),
        tracking("GET", "metrics/get-history-bulk-interval", Op::MetricHistories, Right::ReadRuns),
        tracking("GET", "artifacts/list", Op::ListRunFiles, Right::ReadRun),
        // Logged models.
        tracking("POST", "logged-models", Op::CreateModel, Right::BeginModel),
        tracking("POST", "logged-models/search", Op::SearchModels, Right::ReadModel),
        tracking("GET", "logged-models/{}", Op::GetModel, Right::ReadModel),
        tracking("PATCH", "logged-models/{}", Op::FinishModel, Right::WriteModel),
        tracking("DELETE", "logged-models/{}", Op::DeleteModel, Right::WriteModel),
        tracking("POST", "logged-models/{}/params", Op::LogModelParams, Right::WriteModel),
        tracking("PATCH", "logged-models/{}/tags", Op::SetModelTags, Right::WriteModel),
        tracking("DELETE", "logged-models/{}/tags/{}", Op::DeleteModelTag, Right::WriteModel),
        tracking("GET", "logged-models/{}/artifacts/directories", Op::ListModelFiles, Right::ReadModel),
        // Not offered, to anybody.
        tracking("*", "registered-models/{*}", Op::NotOffered(REGISTRY), Right::Everybody),
        tracking("*", "model-versions/{*}", Op::NotOffered(REGISTRY), Right::Everybody),
        tracking("*", "traces/{*}", Op::NotOffered(TRACES), Right::Everybody),
        // Files.
        files("GET", "artifacts", Op::ListFiles, Right::ReadFile),
        files("GET", "artifacts/{*}", Op::ReadFile, Right::ReadFile),
        files("PUT", "artifacts/{*}", Op::WriteFile, Right::WriteFile),
        files("DELETE", "artifacts/{*}", Op::DeleteFile, Right::WriteFile),
        files("POST", "mpu/{}/{*}", Op::WriteParts, Right::WriteFile),
        files("*", "presigned/{*}", Op::NotOffered(PRESIGNED), Right::Everybody),
    ]
};

/// The endpoint that a request means, and what stands in the path for `{}` and `{*}`. Nothing else is served.
pub(super) fn find(service: Service, method: &str, path: &[String]) -> Option<(Row, Vec<String>)> {
    TABLE.iter().find_map(|row| {
        let fits = row.service == service && (row.method == "*" || row.method == method);
        fits.then(|| captured(row.path, path)).flatten().map(|captured| (*row, captured))
    })
}

fn captured(pattern: &str, path: &[String]) -> Option<Vec<String>> {
    let mut captured = Vec::new();
    let mut left = path.iter();
    for word in pattern.split('/') {
        match word {
            "{*}" => {
                captured.push(left.map(String::as_str).collect::<Vec<_>>().join("/"));
                return Some(captured);
            }
            "{}" => captured.push(left.next()?.clone()),
            word => {
                left.next().filter(|segment| *segment == word)?;
            }
        }
    }
    left.next().is_none().then_some(captured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(service: Service, method: &str, path: &str) -> Option<(Operation, Right, Vec<String>)> {
        let path: Vec<String> = path.split('/').map(str::to_owned).collect();
        find(service, method, &path).map(|(row, captured)| (row.operation, row.right, captured))
    }

    /// The table again, as it was agreed on: one word per right, so that a row that changes is seen here.
    const AGREED: &[(&str, &[Operation])] = {
        use Operation as Op;
        &[
            ("everybody", &[Op::ServerInfo]),
            (
                "the owner only",
                &[
                    Op::CreateExperiment,
                    Op::RenameExperiment,
                    Op::DeleteExperiment,
                    Op::RestoreExperiment,
                    Op::SetExperimentTag,
                    Op::DeleteExperimentTag,
                ],
            ),
            (
                "reads its own",
                &[
                    Op::GetExperiment,
                    Op::GetExperimentByName,
                    Op::SearchExperiments,
                    Op::GetRun,
                    Op::SearchRuns,
                    Op::MetricHistory,
                    Op::MetricHistories,
                    Op::ListRunFiles,
                    Op::ListFiles,
                    Op::ReadFile,
                ],
            ),
            ("reads assets", &[Op::SearchModels, Op::GetModel, Op::ListModelFiles]),
            (
                "writes its own",
                &[
                    Op::CreateRun,
                    Op::UpdateRun,
                    Op::DeleteRun,
                    Op::RestoreRun,
                    Op::LogMetric,
                    Op::LogParameter,
                    Op::LogBatch,
                    Op::SetTag,
                    Op::DeleteTag,
                    Op::LogInputs,
                    Op::LogOutputs,
                    Op::RecordModel,
                    Op::CreateModel,
                    Op::FinishModel,
                    Op::DeleteModel,
                    Op::LogModelParams,
                    Op::SetModelTags,
                    Op::DeleteModelTag,
                    Op::WriteFile,
                    Op::DeleteFile,
                    Op::WriteParts,
                ],
            ),
        ]
    };

    const fn word(right: Right) -> &'static str {
        match right {
            Right::Everybody => "everybody",
            Right::OwnerOnly => "the owner only",
            Right::ReadExperiment
            | Right::ListExperiments
            | Right::ReadRun
            | Right::ReadRuns
            | Right::ListRuns
            | Right::ReadFile => "reads its own",
            Right::ReadModel => "reads assets",
            Right::BeginRun
            | Right::WriteRun
            | Right::WriteOutputs
            | Right::BeginModel
            | Right::WriteModel
            | Right::WriteFile => "writes its own",
        }
    }

    #[test]
    fn every_row_gives_the_right_that_was_agreed_on() {
        for row in TABLE {
            let agreed = AGREED.iter().find(|(_, operations)| operations.contains(&row.operation));
            let agreed = match (agreed, row.operation) {
                (Some((word, _)), _) => *word,
                (None, Operation::NotOffered(_)) => "everybody",
                (None, other) => panic!("{other:?} is in no list"),
            };
            assert_eq!(word(row.right), agreed, "{} {}", row.method, row.path);
        }
        for (_, operations) in AGREED {
            for operation in *operations {
                assert!(TABLE.iter().any(|row| row.operation == *operation), "{operation:?} has no row");
            }
        }
    }

    #[test]
    fn every_row_is_reached_by_a_request_and_by_nothing_that_is_like_it() {
        for row in TABLE {
            let method = if row.method == "*" { "PUT" } else { row.method };
            let path = row.path.replace("{*}", "a/b").replace("{}", "x");
            let found = operation(row.service, method, &path);
            assert_eq!(
                found.map(|(operation, right, _)| (operation, right)),
                Some((row.operation, row.right))
            );
            assert_ne!(
                operation(row.service, "TRACE", &path).map(|found| found.0),
                Some(row.operation).filter(|_| row.method != "*")
            );
        }
        for (method, path) in [
            ("POST", "runs"),
            ("POST", "runs/delete/x"),
            ("POST", "runs/Delete"),
            ("POST", "runs/delete "),
            ("GET", "runs/delete"),
            ("DELETE", "logged-models"),
            ("DELETE", "logged-models/m/tags"),
            ("POST", "logged-models/m/artifacts/directories"),
            ("GET", "experiments"),
            ("POST", "gateway/x"),
            ("GET", ""),
            ("PUT", "artifacts/x"),
        ] {
            assert_eq!(operation(Service::Tracking, method, path), None, "{method} {path}");
        }
        for (method, path) in
            [("POST", "artifacts/x"), ("PATCH", "artifacts/x"), ("GET", "mpu/create/x"), ("GET", "x")]
        {
            assert_eq!(operation(Service::Files, method, path), None, "{method} {path}");
        }
    }

    #[test]
    fn a_path_gives_what_stands_in_it() {
        let of = |service, method, path| operation(service, method, path).map(|(_, _, captured)| captured);
        let texts = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(Service::Tracking, "DELETE", "logged-models/m-1/tags/k"), texts(&["m-1", "k"]));
        assert_eq!(of(Service::Files, "GET", "artifacts/a/b"), texts(&["a/b"]));
        assert_eq!(of(Service::Files, "GET", "artifacts"), texts(&[]));
        assert_eq!(of(Service::Files, "POST", "mpu/create/a/b"), texts(&["create", "a/b"]));
        assert_eq!(of(Service::Tracking, "GET", "traces"), texts(&[""]));
    }
}
