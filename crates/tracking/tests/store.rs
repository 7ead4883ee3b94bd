//! The store as its callers see it: what is logged is found again, in order, within limits, after a reopening.

use std::collections::BTreeMap;

use neap_core::{JobId, Millis, WorkspaceId};
use neap_tracking::{
    Batch, DatasetInput, Error, Lifecycle, Metric, ModelStatus, NewModel, NewRun, RunChange, RunStatus,
    Search, Tracking, View, limits,
};

const WS: WorkspaceId = WorkspaceId(1);
const OTHER: WorkspaceId = WorkspaceId(2);

struct World {
    folder: tempfile::TempDir,
    store: Tracking,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Tracking::open(folder.path()).unwrap();
        store.create_experiment(WS, "e1", "first", &[], Millis(1)).unwrap();
        Self { folder, store }
    }

    fn reopened(self) -> Self {
        drop(self.store);
        Self { store: Tracking::open(self.folder.path()).unwrap(), folder: self.folder }
    }

    fn run(&self, id: &str) {
        self.run_at(id, 10);
    }

    fn run_at(&self, id: &str, started: u64) {
        self.store.create_run(WS, &new_run(id, started)).unwrap();
    }

    fn log(&self, run: &str, points: &[(&str, f64, i64)]) {
        let metrics =
            points.iter().map(|(key, value, step)| metric(key, *value, 1_000 + step, *step)).collect();
        self.store.log(WS, run, &Batch { metrics, ..Batch::default() }).unwrap();
    }

    fn found(&self, filter: &str, order_by: &[&str]) -> Vec<String> {
        let page = self.store.search_runs(WS, &search(filter, order_by)).unwrap();
        page.items.into_iter().map(|run| run.id).collect()
    }
}

fn new_run(id: &str, started: u64) -> NewRun {
    NewRun {
        id: id.into(),
        experiment: "e1".into(),
        name: format!("name-{id}"),
        user: "ada".into(),
        status: RunStatus::Running,
        started: Millis(started),
        ended: None,
        job: None,
        made_by: None,
        tags: BTreeMap::new(),
    }
}

fn metric(key: &str, value: f64, timestamp: i64, step: i64) -> Metric {
    Metric { key: key.into(), value, timestamp, step, model: None, dataset: None }
}

fn search(filter: &str, order_by: &[&str]) -> Search {
    Search {
        experiments: vec!["e1".into()],
        filter: filter.into(),
        order_by: order_by.iter().map(|text| (*text).into()).collect(),
        ..Search::default()
    }
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.into(), value.into())
}

#[test]
fn the_last_value_is_the_highest_step_and_survives_a_reopening() {
    let world = World::new();
    world.run("r");
    world.log("r", &[("loss", 3.0, 1), ("loss", 1.0, 3)]);
    world.log("r", &[("loss", 2.0, 2), ("bad", f64::NAN, 0), ("wide", f64::INFINITY, 0)]);
    let world = world.reopened();
    let run = world.store.run(WS, "r").unwrap();
    let last: Vec<_> = run.metrics.iter().map(|m| (m.key.as_str(), m.last.step, m.points)).collect();
    assert_eq!(last, [("bad", 0, 1), ("loss", 3, 3), ("wide", 0, 1)]);
    assert_eq!(world.store.latest(WS, "r", "loss").unwrap().map(|p| p.value), Some(1.0));
    assert!(world.store.latest(WS, "r", "bad").unwrap().unwrap().value.is_nan());
    assert_eq!(world.store.latest(WS, "r", "wide").unwrap().unwrap().value, f64::INFINITY);
    assert_eq!(world.store.latest(WS, "r", "none").unwrap(), None);
    assert_eq!(world.store.latest(OTHER, "r", "loss").unwrap(), None);
    let steps: Vec<_> = world.store.history(WS, "r", "loss").unwrap().iter().map(|p| p.step).collect();
    assert_eq!(steps, [1, 2, 3]);
}

#[test]
fn the_same_batch_again_changes_nothing() {
    let world = World::new();
    world.run("r");
    for _ in 0..3 {
        world.log("r", &[("loss", 3.0, 1), ("loss", 2.0, 2), ("loss", f64::NAN, 3)]);
    }
    assert_eq!(world.store.history(WS, "r", "loss").unwrap().len(), 3);
    assert_eq!(world.store.latest_all(WS, "r").unwrap()[0].points, 3);
}

#[test]
fn a_history_comes_in_pages_that_do_not_move() {
    let world = World::new();
    world.run("r");
    let points: Vec<_> = (0..250).map(|step| ("loss", f64::from(step as i32), step)).collect();
    world.log("r", &points);
    let (mut seen, mut token) = (Vec::new(), None::<String>);
    loop {
        let page = world.store.history_page(WS, "r", "loss", token.as_deref(), 100).unwrap();
        seen.extend(page.items.iter().map(|p| p.step));
        // Comes in while somebody pages, before where they are.
        world.log("r", &[("loss", 0.5, -1)]);
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..250).collect::<Vec<_>>());
    assert!(matches!(world.store.history_page(WS, "r", "loss", Some("x"), 10), Err(Error::Invalid(_))));
}

#[test]
fn a_parameter_is_said_once() {
    let world = World::new();
    world.run("r");
    let params = |pairs: &[(&str, &str)]| Batch {
        params: pairs.iter().map(|(k, v)| pair(k, v)).collect(),
        ..Batch::default()
    };
    world.store.log(WS, "r", &params(&[("lr", "0.1"), ("n", "3")])).unwrap();
    world.store.log(WS, "r", &params(&[("lr", "0.1")])).unwrap();
    let mut batch = params(&[("lr", "0.2"), ("n", "4")]);
    batch.metrics.push(metric("loss", 1.0, 1, 1));
    let error = world.store.log(WS, "r", &batch).unwrap_err().to_string();
    assert!(error.contains("'lr'") && error.contains("'n'"), "{error}");
    assert_eq!(world.store.latest(WS, "r", "loss").unwrap(), None, "a batch is taken whole or not at all");
}

#[test]
fn limits_hold_and_all_problems_are_said_at_once() {
    let world = World::new();
    world.run("r");
    let batch = Batch {
        metrics: vec![metric("", 1.0, 0, 0), metric("../x", 1.0, 0, 0)],
        params: vec![pair("p", &"x".repeat(limits::PARAM_BYTES_MAX + 1))],
        tags: vec![pair(&"k".repeat(limits::KEY_BYTES_MAX + 1), "v")],
    };
    let error = world.store.log(WS, "r", &batch).unwrap_err().to_string();
    for word in ["''", "'../x'", "'p'", "'kkk"] {
        assert!(error.contains(word), "{word} in {error}");
    }
    let many = Batch { metrics: vec![metric("m", 1.0, 0, 0); 1_001], ..Batch::default() };
    assert!(matches!(world.store.log(WS, "r", &many), Err(Error::Invalid(_))));
    for batch in 0..=limits::TAGS_MAX / 100 {
        let tags = (0..100).map(|n| pair(&format!("t{batch}-{n}"), "v")).collect();
        let logged = world.store.log(WS, "r", &Batch { tags, ..Batch::default() });
        assert_eq!(logged.is_ok(), batch < limits::TAGS_MAX / 100, "{batch}: {logged:?}");
    }
    assert_eq!(world.store.run(WS, "r").unwrap().tags.len(), limits::TAGS_MAX as usize);
    assert!(matches!(world.store.log(WS, "nobody", &Batch::default()), Err(Error::NotFound(_))));
    assert!(matches!(world.store.log(OTHER, "r", &Batch::default()), Err(Error::NotFound(_))));
}

#[test]
fn searches_find_by_metrics_params_tags_and_attributes() {
    let world = World::new();
    for (id, started, loss) in [("a", 10, 0.3), ("b", 20, 0.1), ("c", 30, f64::NAN)] {
        world.run_at(id, started);
        world.log(id, &[("loss", loss, 1)]);
        let params = vec![pair("model", &format!("Tree-{id}"))];
        let tags = vec![pair("mlflow.parentRunId", "p")];
        world.store.log(WS, id, &Batch { params, tags, ..Batch::default() }).unwrap();
    }
    world.run_at("d", 40);
    world
        .store
        .update_run(WS, "b", &RunChange { status: Some(RunStatus::Finished), ..RunChange::default() })
        .unwrap();

    let check = |filter: &str, expect: &[&str]| assert_eq!(world.found(filter, &[]), expect, "{filter}");
    check("", &["d", "c", "b", "a"]);
    check("metrics.loss < 0.2", &["b"]);
    check("metrics.loss >= 0.1 and metrics.loss != 0.3", &["b"]);
    check("params.model = 'Tree-a'", &["a"]);
    check("params.model != 'Tree-a'", &["c", "b"]);
    check("params.model LIKE 'Tree-%'", &["c", "b", "a"]);
    check("params.model LIKE 'tree-%'", &[]);
    check("params.model ILIKE 'tree-%'", &["c", "b", "a"]);
    check("tags.mlflow.parentRunId = 'p' and status = 'FINISHED'", &["b"]);
    check("tags.mlflow.parentRunId IS NULL", &["d"]);
    check("run_id IN ('a', 'd', 'zz')", &["d", "a"]);
    check("run_id NOT IN ('a', 'd')", &["c", "b"]);
    check("attributes.start_time > 15 and start_time <= 30", &["c", "b"]);
    check("end_time IS NULL and run_name = 'name-a'", &["a"]);
    let ordered = |order: &[&str], expect: &[&str]| assert_eq!(world.found("", order), expect, "{order:?}");
    ordered(&["metrics.loss ASC"], &["b", "a", "d", "c"]);
    ordered(&["metrics.loss DESC"], &["a", "b", "d", "c"]);
    ordered(&["params.model DESC"], &["c", "b", "a", "d"]);
    ordered(&["attributes.start_time"], &["a", "b", "c", "d"]);
    ordered(&["status", "run_id DESC"], &["b", "d", "c", "a"]);
    for bad in
        ["metrics.loss = 'x'", "params.model > 'x'", "params.model = 1", "nothing = 'x'", "datasets.x = 'y'"]
    {
        assert!(matches!(world.store.search_runs(WS, &search(bad, &[])), Err(Error::Invalid(_))), "{bad}");
    }
    let elsewhere = Search { experiments: vec!["e2".into()], ..Search::default() };
    assert!(world.store.search_runs(WS, &elsewhere).unwrap().items.is_empty());
    assert!(world.store.search_runs(WS, &Search::default()).unwrap().items.is_empty(), "in no experiment");
}

#[test]
fn pages_of_runs_and_deleted_ones() {
    let world = World::new();
    for n in 0..25 {
        world.run_at(&format!("r{n:02}"), n);
    }
    world.store.set_run_lifecycle(WS, "r03", Lifecycle::Deleted).unwrap();
    let (mut seen, mut token) = (Vec::new(), None);
    loop {
        let asked = Search { limit: 10, token, ..search("", &["start_time ASC"]) };
        let page = world.store.search_runs(WS, &asked).unwrap();
        assert!(page.items.len() <= 10);
        seen.extend(page.items.into_iter().map(|run| run.id));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 24);
    assert!(!seen.contains(&"r03".into()));
    let deleted = Search { view: View::Deleted, ..search("", &[]) };
    assert_eq!(world.store.search_runs(WS, &deleted).unwrap().items[0].id, "r03");
    assert!(matches!(world.store.log(WS, "r03", &Batch::default()), Err(Error::Invalid(_))));
    world.store.set_run_lifecycle(WS, "r03", Lifecycle::Active).unwrap();
    assert!(world.store.log(WS, "r03", &Batch::default()).is_ok());
}

#[test]
fn experiments_have_names_and_lives() {
    let world = World::new();
    let store = &world.store;
    assert!(matches!(store.create_experiment(WS, "x", "first", &[], Millis(2)), Err(Error::Exists(_))));
    store.create_experiment(OTHER, "e1", "first", &[], Millis(2)).unwrap();
    store.create_experiment(WS, "e2", "second", &[pair("team", "a")], Millis(2)).unwrap();
    assert!(matches!(store.rename_experiment(WS, "e2", "first", Millis(3)), Err(Error::Exists(_))));
    store.rename_experiment(WS, "e2", "renamed", Millis(3)).unwrap();
    store.set_experiment_tag(WS, "e2", pair("k", "v"), Millis(4)).unwrap();
    let found = store.experiment_by_name(WS, "renamed").unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.tags.len(), found.updated), ("e2", 2, Millis(4)));
    assert_eq!(store.experiment_by_name(WS, "second").unwrap(), None);
    store.ensure_experiment(WS, "e2", "second", Millis(5)).unwrap();
    assert_eq!(store.experiment(WS, "e2").unwrap().unwrap().name, "renamed");
    store.set_experiment_lifecycle(WS, "e2", Lifecycle::Deleted, Millis(5)).unwrap();
    let names = |view, filter: &str| -> Vec<String> {
        let asked = Search { view, filter: filter.into(), ..Search::default() };
        store.search_experiments(WS, &asked).unwrap().items.into_iter().map(|e| e.name).collect()
    };
    assert_eq!(names(View::Active, ""), ["first"]);
    assert_eq!(names(View::All, "name LIKE 're%' and tags.k = 'v'"), ["renamed"]);
    assert!(matches!(
        store.search_experiments(WS, &Search { filter: "metrics.x > 1".into(), ..Search::default() }),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn jobs_are_runs_whose_end_is_the_jobs() {
    let world = World::new();
    let job = |status, ended: Option<u64>| NewRun {
        job: Some(JobId(7)),
        made_by: None,
        status,
        ended: ended.map(Millis),
        ..new_run("job_1", 5)
    };
    world.store.adopt_jobs(WS, &[job(RunStatus::Running, None)], Some(JobId(7))).unwrap();
    world.store.adopt_jobs(WS, &[job(RunStatus::Failed, None)], Some(JobId(6))).unwrap();
    assert_eq!(world.store.jobs_seen(WS).unwrap(), Some(JobId(7)));
    assert_eq!(world.store.run(WS, "job_1").unwrap().status, RunStatus::Running, "it was there already");
    assert_eq!(world.store.unsettled_jobs(WS).unwrap(), [JobId(7)]);
    world.store.settle_jobs(WS, &[job(RunStatus::Finished, Some(9))]).unwrap();
    let run = world.store.run(WS, "job_1").unwrap();
    assert_eq!((run.status, run.ended, run.job), (RunStatus::Finished, Some(Millis(9)), Some(JobId(7))));
    assert!(world.store.unsettled_jobs(WS).unwrap().is_empty());
    world.log("job_1", &[("loss", 1.0, 1)]);
    world.store.forget_run(WS, "job_1").unwrap();
    assert!(matches!(world.store.run(WS, "job_1"), Err(Error::NotFound(_))));
    world.store.forget_run(WS, "job_1").unwrap();
}

#[test]
fn inputs_and_models() {
    let world = World::new();
    let store = &world.store;
    world.run("r");
    let dataset = DatasetInput {
        name: "iris".into(),
        digest: "d1".into(),
        tags: [pair("mlflow.data.context", "training")].into(),
        ..DatasetInput::default()
    };
    store.log_inputs(WS, "r", &[dataset.clone(), dataset], &["m-0".into()]).unwrap();
    assert_eq!(world.found("datasets.name = 'iris' and dataset.context = 'training'", &[]), ["r"]);
    let new = NewModel {
        id: "m-1".into(),
        experiment: "e1".into(),
        name: "tree".into(),
        source_run: "r".into(),
        params: vec![pair("depth", "3")],
        ..NewModel::default()
    };
    assert_eq!(store.create_model(WS, &new, Millis(5)).unwrap().status, ModelStatus::Pending);
    store.log_outputs(WS, "r", &[("m-1".into(), 4)]).unwrap();
    let about = Metric { model: Some("m-1".into()), ..metric("acc", 0.9, 1, 1) };
    store.log(WS, "r", &Batch { metrics: vec![about], ..Batch::default() }).unwrap();
    store.finish_model(WS, "m-1", ModelStatus::Ready, Millis(6)).unwrap();
    store.set_model_tags(WS, "m-1", &[pair("k", "v")]).unwrap();
    let found =
        |filter: &str| store.search_models(WS, &search(filter, &["metrics.acc DESC"])).unwrap().items.len();
    assert_eq!(found("metrics.acc > 0.8 and params.depth = '3' and tags.k = 'v' and name = 'tree'"), 1);
    assert_eq!(found("metrics.acc > 0.95"), 0);
    let run = store.run(WS, "r").unwrap();
    assert_eq!(
        (run.datasets.len(), run.models_in, run.models_out),
        (1, vec!["m-0".into()], vec![("m-1".into(), 4)])
    );
    let model = store.model(WS, "m-1").unwrap();
    assert_eq!((model.metrics[0].last.value, model.metrics[0].run.as_str()), (0.9, "r"));
    store.delete_model(WS, "m-1").unwrap();
    assert!(matches!(store.model(WS, "m-1"), Err(Error::NotFound(_))));
    let unknown = Metric { model: Some("m-9".into()), ..metric("acc", 0.9, 1, 1) };
    assert!(matches!(
        store.log(WS, "r", &Batch { metrics: vec![unknown], ..Batch::default() }),
        Err(Error::NotFound(_))
    ));
}

#[test]
fn a_workspace_that_is_gone_leaves_nothing() {
    let world = World::new();
    world.run("r");
    world.log("r", &[("loss", 1.0, 1)]);
    world.store.forget_workspace(WS).unwrap();
    assert!(world.store.experiment(WS, "e1").unwrap().is_none());
    assert!(world.store.latest_all(WS, "r").unwrap().is_empty());
}

#[test]
fn who_waits_hears_of_a_write() {
    let world = World::new();
    let mut changes = world.store.changes();
    changes.mark_unchanged();
    world.run("r");
    assert!(changes.has_changed().unwrap());
}

#[test]
fn a_search_for_a_job_finds_its_run_and_those_that_it_began() {
    let world = World::new();
    let begin = |run: NewRun| world.store.create_run(WS, &run).unwrap();
    begin(NewRun { job: Some(JobId(7)), ..new_run("job_7", 1) });
    begin(NewRun { made_by: Some(JobId(7)), ..new_run("child_of_7", 2) });
    begin(NewRun { job: Some(JobId(8)), ..new_run("job_8", 3) });
    begin(NewRun { made_by: Some(JobId(8)), ..new_run("child_of_8", 4) });
    begin(new_run("outside", 5));
    let found = |of_job, filter: &str| {
        let asked = Search { of_job, ..search(filter, &["start_time ASC"]) };
        let page = world.store.search_runs(WS, &asked).unwrap();
        page.items.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(found(Some(JobId(7)), ""), ["job_7", "child_of_7"]);
    assert_eq!(found(Some(JobId(7)), "run_id = 'job_8'"), [""; 0]);
    assert_eq!(found(Some(JobId(9)), ""), [""; 0]);
    assert_eq!(found(None, "").len(), 5);
    let seen = |id| world.store.seen(WS, id).unwrap().map(|seen| (seen.job, seen.made_by));
    assert_eq!(seen("job_7"), Some((Some(JobId(7)), None)));
    assert_eq!(seen("child_of_7"), Some((None, Some(JobId(7)))));
    assert_eq!(seen("outside"), Some((None, None)));
    assert_eq!(seen("nobody"), None);
}
