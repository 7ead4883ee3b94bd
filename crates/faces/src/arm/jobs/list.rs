//! `GET jobs`: newest first, paged by creation order, so that a page never shifts under its reader.

use axum::response::Response;
use neap_core::documents::JobMeta;
use neap_core::state::Workspace;
use neap_core::{Code, JobId, Refusal};
use neap_ledger::{Archived, JobFilter, JobRow};
use serde_json::{Value, json};

use crate::app::{App, unreadable};
use crate::ask::Ask;
use crate::limits;
use crate::reply;

pub(crate) fn list(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let archived = view(ask.query.get("listViewType"))?;
    let limit = ask
        .query
        .get("$top")
        .and_then(|top| top.parse().ok())
        .unwrap_or(limits::PAGE_ROWS)
        .clamp(1, limits::PAGE_ROWS_MAX);
    let mut before = ask.query.get("$skip").map(cursor).transpose()?;
    let filter = JobFilter { archived, ..JobFilter::default() };
    let wanted = Wanted {
        kind: ask.query.get("jobType").map(String::from),
        tag: ask.query.get("tag").map(pair),
        property: ask.query.get("properties").map(pair),
    };
    let (mut value, mut looked_at, mut more) = (Vec::new(), 0, true);
    while value.len() < limit && looked_at < limits::PAGE_SCAN_ROWS_MAX {
        let rows = app
            .control
            .reader()
            .jobs(workspace.id, &filter, before, u32::try_from(limit).unwrap_or(u32::MAX))
            .map_err(unreadable)?;
        let full = rows.len() == limit;
        for row in rows {
            if value.len() == limit {
                break;
            }
            before = Some(row.id);
            looked_at += 1;
            if !wanted.keeps(app, &row)? {
                continue;
            }
            let answer = super::answer(app, &ask.base, workspace, &row)?;
            if wanted.is_kind(&answer) {
                value.push(answer);
            }
        }
        if !full {
            more = false;
            break;
        }
    }
    let next = before.filter(|_| more).map(|id| {
        let path = format!("{}/jobs", crate::arm::paths::workspace_id(workspace));
        format!("{}{path}?{}", ask.base, ask.query.with("$skip", &format!("j{id}")))
    });
    Ok(reply::ok(&json!({"value": Value::Array(value), "nextLink": next})))
}

fn view(word: Option<&str>) -> Result<Archived, Refusal> {
    match word.unwrap_or("ActiveOnly").to_ascii_lowercase().as_str() {
        "activeonly" => Ok(Archived::ActiveOnly),
        "archivedonly" => Ok(Archived::ArchivedOnly),
        "all" => Ok(Archived::All),
        other => Err(Refusal::because(
            Code::BadArgument,
            format!("'{other}' is not a listViewType: ActiveOnly, ArchivedOnly or All."),
        )),
    }
}

/// The place where the last page ended. Clients carry it and do not look inside.
pub(crate) fn cursor(text: &str) -> Result<JobId, Refusal> {
    text.strip_prefix('j').and_then(|id| id.parse().ok()).map(JobId).ok_or_else(|| {
        Refusal::because(
            Code::BadArgument,
            format!("'{text}' is not a $skip that this server gave out; take it from nextLink."),
        )
    })
}

fn pair(text: &str) -> (String, Option<String>) {
    match text.split_once('=') {
        Some((key, value)) => (key.into(), Some(value.into())),
        None => (text.into(), None),
    }
}

#[derive(Debug, Default)]
struct Wanted {
    kind: Option<String>,
    tag: Option<(String, Option<String>)>,
    property: Option<(String, Option<String>)>,
}

impl Wanted {
    fn is_kind(&self, answer: &Value) -> bool {
        let kind = answer["properties"]["jobType"].as_str().unwrap_or("");
        self.kind.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
    }

    fn keeps(&self, app: &App, row: &JobRow) -> Result<bool, Refusal> {
        if self.tag.is_none() && self.property.is_none() {
            return Ok(true);
        }
        let meta: JobMeta = app.document(&row.meta)?;
        let has = |map: &std::collections::BTreeMap<String, String>,
                   wanted: &Option<(String, Option<String>)>| match wanted {
            None => true,
            Some((key, value)) => {
                map.get(key).is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
            }
        };
        Ok(has(&meta.tags, &self.tag) && has(&meta.properties, &self.property))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_and_views() {
        assert_eq!(cursor("j42").unwrap(), JobId(42));
        assert!(cursor("42").is_err());
        assert_eq!(view(None).unwrap(), Archived::ActiveOnly);
        assert_eq!(view(Some("all")).unwrap(), Archived::All);
        assert!(view(Some("some")).is_err());
        assert_eq!(pair("a=b=c"), ("a".into(), Some("b=c".into())));
        assert_eq!(pair("a"), ("a".into(), None));
    }
}
