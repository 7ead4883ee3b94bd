//! Drives what the core does not: sweeps, parallel jobs, schedules whose time has come, and when windows on clusters are
//! open; and removes clusters that serverless jobs left. It wakes when something changed, looks at each, and says by ordinary commands what is to start,
//! to stop, or to end.
//!
//! It keeps nothing that must outlive it. What has been decided is in the log as trials; after a crash the same look at
//! the same trials goes on where the last one stopped.

mod parallel;
mod schedule;
mod sweep;

use std::collections::BTreeMap;
use std::time::Duration;

use neap_core::documents::JobDocument;
use neap_core::family::{Family, FamilyKind};
use neap_core::{JobId, Refusal};

use crate::app::App;
use crate::arm::tidy_serverless;
use crate::ask::Caller;

/// Times that pass are looked at this often while something is driven.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Clusters that Neap made are looked at this often while there are any.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// Changes come in bursts: one look serves all that come within this.
const BURST: Duration = Duration::from_millis(20);

/// Who does what nobody asked for.
pub(crate) fn conductor() -> Caller {
    Caller { actor: "neap".into() }
}

/// Runs until the server ends.
pub async fn run(app: App) {
    let mut changes = app.control.changes();
    let mut metrics = app.tracking.changes();
    let mut seen: BTreeMap<JobId, sweep::Memory> = BTreeMap::new();
    let mut kept = parallel::kept(&app).await;
    loop {
        let state = app.state();
        let driven: Vec<_> = state
            .families
            .values()
            .filter(|family| family.kind == FamilyKind::Driven && !family.is_ending())
            .filter(|family| !state.waits.contains_key(&family.id))
            .cloned()
            .collect();
        seen.retain(|id, _| driven.iter().any(|family| family.id == *id));
        parallel::forget_ended(&app, &state, &mut kept).await;
        kept.extend(
            driven.iter().map(|family| family.id.0).filter(|id| !kept.contains(id)).collect::<Vec<_>>(),
        );
        for family in &driven {
            if let Err(refusal) = drive(&app, family, seen.entry(family.id).or_default()).await {
                tracing::warn!(job = %family.name, %refusal, "a job made of jobs cannot go on now; it is tried again");
            }
        }
        let mut waits = !driven.is_empty();
        for id in &state.schedules_due {
            waits |= !schedule::fire(&app, *id).await;
        }
        waits |= !crate::neap::windows::refill(&app, &conductor()).await;
        let tidied = tidy_serverless(&app, &conductor()).await.unwrap_or(true);
        let alarm = async {
            match (waits, tidied) {
                (true, _) => tokio::time::sleep(LOOK_EVERY).await,
                (false, true) => tokio::time::sleep(TIDY_EVERY).await,
                (false, false) => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            changed = metrics.changed() => if changed.is_err() { return },
            () = alarm => {}
        }
        tokio::time::sleep(BURST).await;
        changes.mark_unchanged();
        metrics.mark_unchanged();
    }
}

async fn drive(app: &App, family: &Family, memory: &mut sweep::Memory) -> Result<(), Refusal> {
    let document: JobDocument = app.document(&family.document)?;
    match document.asked["jobType"].as_str() {
        Some(kind) if kind.eq_ignore_ascii_case("Sweep") => {
            sweep::drive(app, family, &document, memory).await
        }
        Some(kind) if kind.eq_ignore_ascii_case("Parallel") => parallel::drive(app, family, &document).await,
        // Nothing else is submitted as a driven family.
        _ => Ok(()),
    }
}
