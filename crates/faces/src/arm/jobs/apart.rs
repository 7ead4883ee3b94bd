//! Jobs whose compute is in another location than their data: allowed, and told at submission and in the job's log.
//!
//! The workspace's storage is where the workspace is. A datastore is there too, unless its tag `neap.location` says
//! otherwise. Of addresses that are no datastore nothing is known, and nothing is said.

use std::collections::{BTreeMap, BTreeSet};

use neap_core::documents::{BlobPath, InputDocument, JobDocument};
use neap_core::settings::Settings;
use neap_core::state::{State, Workspace};
use neap_core::{JobId, Refusal, names};
use neap_storage::foreign::{datastore_of_container, is_foreign};
use serde_json::Value;

use super::references::{LedgerShelf, Shelf};
use crate::app::App;
use crate::limits;

/// The tag of a datastore that says where it is.
const LOCATION_TAG: &str = "neap.location";

/// What a job reads and writes, by where that is.
type Places = BTreeMap<String, BTreeSet<String>>;

/// What is to be said of one job on a compute in `here`.
pub(super) fn notes(
    settings: &Settings,
    workspace: &Workspace,
    compute: (&str, &str),
    document: &JobDocument,
    datastore_location: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let (name, here) = compute;
    let places = places(workspace, document, datastore_location);
    let far = places.into_iter().filter(|(place, _)| place != here);
    far.map(|(place, what)| {
        let what: Vec<String> = what.into_iter().collect();
        format!(
            "Compute '{name}' is in {here} and {} in {place}: {}.",
            what.join(", "),
            settings.apart(here, &place)
        )
    })
    .collect()
}

fn places(
    workspace: &Workspace,
    document: &JobDocument,
    datastore_location: &dyn Fn(&str) -> Option<String>,
) -> Places {
    let mut out = Places::new();
    // Logs and `outputs/` always go there.
    let own = "the workspace's storage".to_owned();
    out.entry(workspace.location.to_string()).or_default().insert(own);
    let inputs = document.inputs.values().filter_map(InputDocument::at);
    let outputs = document.outputs.values().map(|output| output.at());
    let datastores = inputs.chain(outputs).filter_map(datastore);
    for name in datastores.collect::<BTreeSet<_>>() {
        let place = datastore_location(name).unwrap_or_else(|| workspace.location.to_string());
        out.entry(place).or_default().insert(format!("datastore '{name}'"));
    }
    out
}

fn datastore(at: &BlobPath) -> Option<&str> {
    datastore_of_container(&at.container).filter(|_| is_foreign(&at.container))
}

impl LedgerShelf<'_> {
    /// What is to be said of a job that is read for a cluster of this name.
    pub(super) fn notes_of(&self, cluster: &str, document: &JobDocument) -> Result<Vec<String>, Refusal> {
        let state = self.app.state();
        let Some(cluster) = state.cluster(self.workspace.id, cluster) else { return Ok(Vec::new()) };
        let everything_is_here = cluster.location == self.workspace.location;
        let foreign = document
            .inputs
            .values()
            .filter_map(InputDocument::at)
            .chain(document.outputs.values().map(|output| output.at()))
            .any(|at| datastore(at).is_some());
        if everything_is_here && !foreign {
            return Ok(Vec::new());
        }
        let datastores = if foreign { self.datastores()? } else { Vec::new() };
        let location_of = |name: &str| {
            let (_, properties) = datastores.iter().find(|(found, _)| found.eq_ignore_ascii_case(name))?;
            properties["tags"][LOCATION_TAG].as_str().map(names::canonical_location)
        };
        let compute = (&*cluster.name, &*cluster.location);
        Ok(notes(&state.settings, self.workspace, compute, document, &location_of))
    }
}

/// The same of a job, or of the members of a family, that was just taken.
pub(super) fn warnings(
    app: &App,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<Vec<String>, Refusal> {
    let state = app.state();
    let Some(id) = state.job_named(workspace.id, name) else { return Ok(Vec::new()) };
    let shelf = LedgerShelf { app, workspace };
    let mut out = BTreeSet::new();
    for id in members(&state, id) {
        let Some(job) = state.jobs.get(&id) else { continue };
        let Some(cluster) = state.clusters.get(&job.cluster) else { continue };
        out.extend(shelf.notes_of(&cluster.name, &app.document(&job.document)?)?);
    }
    // A sweep has no trials yet.
    if let Some(family) = state.families.get(&id).filter(|family| family.members.is_empty()) {
        let compute = body["properties"]["computeId"].as_str().unwrap_or_default();
        let compute = compute.rsplit('/').next().unwrap_or_default();
        out.extend(shelf.notes_of(compute, &app.document(&family.document)?)?);
    }
    Ok(out.into_iter().collect())
}

/// A job, or the jobs within a family, as many as are looked at.
fn members(state: &State, id: JobId) -> Vec<JobId> {
    let mut found = Vec::new();
    let mut left = vec![id];
    while let Some(id) = left.pop() {
        if found.len() >= limits::MEMBERS_WARNED_OF_MAX {
            break;
        }
        match state.families.get(&id) {
            Some(family) => left.extend(family.members.iter().copied()),
            None => found.push(id),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_core::documents::Delivery;
    use neap_core::{DocHash, Millis, WorkspaceId};
    use neap_storage::foreign::container_of_datastore;

    #[test]
    fn what_lies_elsewhere_is_named_with_what_it_costs() {
        let workspace = Workspace {
            id: WorkspaceId(1),
            subscription: "s".into(),
            group: "g".into(),
            name: "w".into(),
            location: "westus".into(),
            document: DocHash([0; 32]),
            created: Millis(0),
            modified: Millis(0),
            deleting: false,
        };
        let at =
            BlobPath { account: "a".into(), container: container_of_datastore("lake"), path: "x/".into() };
        let document = JobDocument {
            inputs: [("d".into(), InputDocument::Folder { at, how: Delivery::Copy })].into(),
            ..JobDocument::default()
        };
        let mut settings = Settings::default();
        settings.charges.transfer_gb = neap_core::MicroUsd(20_000);
        let said = |here: &str, lake: Option<&str>| {
            notes(&settings, &workspace, ("cpu", here), &document, &|_| lake.map(str::to_owned))
        };
        assert_eq!(said("westus", None), Vec::<String>::new());
        assert_eq!(
            said("eastus", None),
            [
                "Compute 'cpu' is in eastus and datastore 'lake', the workspace's storage in westus: each request takes longer, and a gigabyte across costs 0.02 USD."
            ]
        );
        assert_eq!(
            said("westus", Some("uksouth")),
            [
                "Compute 'cpu' is in westus and datastore 'lake' in uksouth: each request takes longer, and a gigabyte across costs 0.02 USD."
            ]
        );
        assert_eq!(said("eastus", Some("uksouth")).len(), 2);
    }
}
