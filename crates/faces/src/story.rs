//! The log of a job made of jobs: what became of its members, in the order it happened. It is told anew from the tables
//! each time, so that nothing has to be kept; lines are only ever added at the end.

use neap_core::documents::JobMeta;
use neap_core::job::Status;
use neap_core::{Millis, Refusal};
use neap_ledger::{Archived, JobFilter, JobRow, Members};

use crate::app::{App, unreadable};

/// As many members as a family can have.
pub(crate) const MEMBERS_MAX: u32 = neap_core::limits::FAMILY_MEMBERS_MAX as u32;

/// Newest last.
pub(crate) fn members(app: &App, family: &JobRow) -> Result<Vec<JobRow>, Refusal> {
    let filter =
        JobFilter { archived: Archived::All, members: Members::Of(family.id), ..JobFilter::default() };
    let mut rows =
        app.control.reader().jobs(family.workspace, &filter, None, MEMBERS_MAX).map_err(unreadable)?;
    rows.reverse();
    Ok(rows)
}

pub(crate) fn tell(app: &App, family: &JobRow) -> Result<String, Refusal> {
    let mut lines = Vec::new();
    collect(app, family, &mut lines)?;
    lines.push((family.created, 0, format!("The job '{}' was opened.", family.name)));
    if let Some(ended) = family.ended {
        lines.push((ended, u8::MAX, format!("The job '{}' ended: {}.", family.name, how(family))));
    }
    lines.sort_by_key(|a| (a.0, a.1));
    Ok(lines.into_iter().map(|(at, _, text)| format!("[{}] {text}\n", at.rfc3339())).collect())
}

/// Each line with its time and, at the same time, its rank.
fn collect(app: &App, family: &JobRow, lines: &mut Vec<(Millis, u8, String)>) -> Result<(), Refusal> {
    for row in members(app, family)? {
        let meta: JobMeta = app.document(&row.meta)?;
        let shown = meta.display_name.as_deref().unwrap_or(&row.name);
        let step = format!("'{shown}' ({})", row.name);
        if let Some(earlier) = meta.properties.get("azureml.reusedrunid") {
            lines.push((
                row.created,
                1,
                format!("{step} takes the outputs of '{earlier}', which did the same."),
            ));
            continue;
        }
        if let Some(started) = row.started {
            let on = row.node.map(|node| format!(" on node n-{node}")).unwrap_or_default();
            lines.push((started, 2, format!("{step} runs{on}.")));
        }
        if row.is_family {
            collect(app, &row, lines)?;
        }
        if let Some(ended) = row.ended {
            lines.push((ended, 3, format!("{step} ended: {}.", how(&row))));
        }
    }
    Ok(())
}

fn how(row: &JobRow) -> String {
    match (&row.failure, row.status) {
        (Some(failure), Status::Failed | Status::Canceled) => {
            format!("{} ({})", row.status.word(), failure.message.trim_end_matches('.'))
        }
        _ => row.status.word().into(),
    }
}
