//! What the query tables answer.

use neap_core::event::{AssetDeleted, AssetPut, ClusterDeleted, JobUpdated};
use neap_core::{ClusterId, JobId};
use neap_ledger::{Archived, JobFilter, JobRow, Reader};

use crate::story::{CLUSTER, Story, WORKSPACE, node, open};

#[test]
fn pages_are_stable_while_jobs_come_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    let mut expected: Vec<JobId> = (0..30).map(|_| story.submit()).collect();
    expected.reverse();
    story.commit(&mut opened.ledger);
    let reader = opened.ledger.reader();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = reader.jobs(WORKSPACE, &JobFilter::default(), before, 7).unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        seen.extend(page.iter().map(|row| row.id));
        for _ in 0..5 {
            story.submit();
        }
        story.commit(&mut opened.ledger);
    }
    assert_eq!(seen, expected);
}

#[test]
fn a_new_job_reads_the_same_from_the_state_and_from_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    let id = story.submit();
    story.commit(&mut opened.ledger);
    let row = opened.ledger.reader().job_by_id(id).unwrap().unwrap();
    let (job, cluster) = (&story.state.jobs[&id], &story.state.clusters[&CLUSTER]);
    assert_eq!(JobRow::submitted(job, &cluster.name, row.meta), Some(row.clone()));
    let placed = neap_core::job::Job { attempts_made: 1, ..(**job).clone() };
    assert_eq!(JobRow::submitted(&placed, &cluster.name, row.meta), None);
}

#[test]
fn filters_by_archive_and_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    let jobs: Vec<JobId> = (0..6).map(|_| story.submit()).collect();
    for id in [jobs[1], jobs[4]] {
        let meta = story.document("m");
        story.tell(JobUpdated { id, meta, archived: true });
    }
    story.commit(&mut opened.ledger);
    let reader = opened.ledger.reader();
    let ids = |archived, cluster| -> Vec<JobId> {
        let rows = reader
            .jobs(WORKSPACE, &JobFilter { archived, cluster, ..JobFilter::default() }, None, 100)
            .unwrap();
        rows.into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids(Archived::ActiveOnly, None), [jobs[5], jobs[3], jobs[2], jobs[0]]);
    assert_eq!(ids(Archived::ArchivedOnly, None), [jobs[4], jobs[1]]);
    assert_eq!(ids(Archived::All, Some(CLUSTER)).len(), 6);
    assert_eq!(ids(Archived::ArchivedOnly, Some(CLUSTER)), [jobs[4], jobs[1]]);
    assert_eq!(ids(Archived::All, Some(ClusterId(99))), []);
}

#[test]
fn a_cluster_that_is_deleted_is_still_listed() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    story.tell(ClusterDeleted { id: CLUSTER });
    story.commit(&mut opened.ledger);
    let rows = opened.ledger.reader().cluster_rows(WORKSPACE, "CPU").unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((&*rows[0].name, rows[0].deleted), ("Cpu", Some(story.now())));
}

#[test]
fn a_node_that_is_gone_is_listed_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    // Two nodes come up one after the other; the first leaves.
    for choice in [3, 4, 4, 4, 18, 4, 3] {
        story.step(choice);
    }
    story.commit(&mut opened.ledger);
    let reader = opened.ledger.reader();
    let states = |gone| -> Vec<String> {
        reader.nodes(CLUSTER, gone, 100).unwrap().into_iter().map(|row| row.state).collect()
    };
    assert_eq!(states(false), ["requested"]);
    assert_eq!(states(true), ["requested", "gone"]);
    let gone = reader.node(node(1)).unwrap().unwrap();
    assert_eq!(
        (&*gone.reason, gone.isolation.as_deref(), gone.gone.is_some()),
        ("removed", Some("cgroup"), true)
    );
}

#[test]
fn assets_by_version_name_and_content() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    let mut story = Story::begin();
    let mut put = |name: &str, version: &str, content: &str| {
        let document = story.document(content);
        story.tell(AssetPut {
            workspace: WORKSPACE,
            kind: "codes".into(),
            name: name.into(),
            version: version.into(),
            document,
            content: Some(content.into()),
        });
    };
    put("b", "1", "x");
    put("a", "10", "y");
    put("a", "9", "x");
    put("b", "1", "z");
    put("c", "1", "q");
    story.tell(AssetDeleted {
        workspace: WORKSPACE,
        kind: "codes".into(),
        name: "c".into(),
        version: "1".into(),
    });
    story.commit(&mut opened.ledger);
    let reader: Reader = opened.ledger.reader();
    let first = reader.asset(WORKSPACE, "codes", "b", "1").unwrap().unwrap();
    assert_eq!(first.content.as_deref(), Some("z"), "the same version again replaces what it says");
    assert!(first.created < story.now(), "and keeps when it was created");
    let versions: Vec<_> =
        reader.asset_versions(WORKSPACE, "codes", "a", 10).unwrap().into_iter().map(|r| r.version).collect();
    assert_eq!(versions, ["9", "10"], "newest first, not by what it is called");
    let latest: Vec<_> =
        reader.asset_names(WORKSPACE, "codes").unwrap().into_iter().map(|r| (r.name, r.version)).collect();
    assert_eq!(latest, [("a".into(), "9".into()), ("b".into(), "1".into())]);
    let by_content = reader.asset_by_content(WORKSPACE, "codes", "x").unwrap().unwrap();
    assert_eq!((&*by_content.name, &*by_content.version), ("a", "9"));
    assert_eq!(reader.asset_by_content(WORKSPACE, "codes", "q").unwrap(), None);
}
