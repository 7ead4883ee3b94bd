//! Creating, changing and deleting clusters. A create is whole when it is answered; a delete goes on behind it.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::command::{PutCluster, RemakeCluster};
use neap_core::documents::ClusterDocument;
use neap_core::state::{GroupKey, Workspace};
use neap_core::{Command, Refusal};
use neap_identity::PasswordHash;
use neap_ledger::Document;
use serde_json::Value;

use super::super::{errors, lro};
use super::preview;
use super::read::{self, Asked, Form};
use crate::app::{self, App, internal};
use crate::ask::Ask;
use crate::neap::dependents;
use crate::{limits, reply};

pub(crate) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let written = write(app, ask, workspace, name, &ask.json()?, Form::Put).await?;
    answer(app, ask, workspace, name, written)
}

/// The whole resource, and the operation that made it so.
fn answer(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    written: Written,
) -> Result<Response, Refusal> {
    let status = match written {
        Written::Created => StatusCode::CREATED,
        Written::Changed => StatusCode::OK,
        Written::Planned(plan) => return Ok(reply::ok(&plan)),
    };
    let mut response = reply::json(status, &super::resource(app, workspace, name)?);
    if let Some(cluster) = app.state().cluster(workspace.id, name) {
        let operation = lro::Operation::PutCluster(cluster.id);
        lro::track(&mut response, ask, &workspace.subscription, &cluster.location, operation);
    }
    Ok(response)
}

/// Creates or updates from a resource body; says whether it was created. Also used by template deployments.
pub(crate) async fn put_body(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<bool, Refusal> {
    let written = write(app, ask, workspace, name, body, Form::Put).await?;
    Ok(matches!(written, Written::Created))
}

pub(crate) async fn patch(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    if app.state().cluster(workspace.id, name).is_none() {
        return Err(errors::not_found("Compute", name));
    }
    let written = write(app, ask, workspace, name, &ask.json()?, Form::Patch).await?;
    answer(app, ask, workspace, name, written)
}

/// Neap's own: also what Azure keeps for ever may change; nodes are then replaced one by one.
pub(crate) async fn remake(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    if app.state().cluster(workspace.id, name).is_none() {
        return Err(errors::not_found("Compute", name));
    }
    let written = write(app, ask, workspace, name, &ask.json()?, Form::Remake).await?;
    answer(app, ask, workspace, name, written)
}

/// What of a definition is in its nodes and not in their shape, as one name. Only that it differs is ever asked.
fn make_of(document: &ClusterDocument) -> String {
    let parts = (
        &document.subnet,
        document.public_ip,
        &document.remote_login,
        document.local_auth_disabled,
        &document.admin_user,
        &document.admin_key,
        &document.admin_password_hash,
    );
    let body = serde_json::to_vec(&parts).unwrap_or_default();
    neap_core::DocHash::of(b"make", &body).to_string().chars().take(MAKE_CHARS).collect()
}

const MAKE_CHARS: usize = 16;

/// What a PUT with this body would ask for; nothing if all of it is so.
pub(crate) async fn command(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Option<Command>, Refusal> {
    let change = change(app, ask, workspace, name, &ask.json()?, Form::Put).await?;
    Ok(change.map(|change| change.command))
}

/// A write that would change something.
struct Change {
    command: Command,
    document: Document,
    before: ClusterDocument,
    after: ClusterDocument,
}

async fn change(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    body: &Value,
    form: Form,
) -> Result<Option<Change>, Refusal> {
    let state = app.state();
    let current = state.cluster(workspace.id, name);
    let kept: Option<ClusterDocument> = current.map(|cluster| app.document(&cluster.document)).transpose()?;
    let mut asked = read::read(body, kept.as_ref(), form);
    settle_password(&mut asked, kept.as_ref(), form).await?;
    if let (Some(cluster), Some(kept)) = (current, &kept)
        && asked.changes_nothing(cluster, kept)
    {
        return Ok(None);
    }
    let reference = ask.change_reference();
    if let Some(chars) =
        reference.map(|text| text.chars().count()).filter(|n| *n > limits::CHANGE_REFERENCE_CHARS_MAX)
    {
        asked.problems.push(errors::bad(
            format!(
                "The change reference has {chars} characters; {} is the limit.",
                limits::CHANGE_REFERENCE_CHARS_MAX
            ),
            "x-neap-change-reference",
        ));
    }
    let document = app::document(&asked.document)?;
    let before = kept.unwrap_or_default();
    let put = PutCluster {
        workspace: workspace.id,
        // The name keeps the case it was created with.
        name: current.map_or_else(|| name.into(), |cluster| cluster.name.clone()),
        location: asked.location.map(Into::into),
        size: asked.size.map(Into::into),
        tier: asked.tier.map(Into::into),
        network: asked.document.subnet.as_deref().and_then(group_of),
        // Of an existing cluster what is not asked for stays; a new one gets the defaults.
        min: asked.min.or(current.map(|cluster| cluster.declared.min.into())),
        max: asked.max.or(current.map(|cluster| cluster.declared.max.into())),
        idle_ms: asked.idle_ms.or(current.and_then(|cluster| i64::try_from(cluster.declared.idle_ms).ok())),
        dedicated: asked.dedicated,
        document: document.hash,
        reference: reference.map(Into::into),
        problems: asked.problems,
    };
    let command = match form {
        Form::Put | Form::Patch => Command::PutCluster(put),
        Form::Remake => {
            let (old, new) = (make_of(&before), make_of(&asked.document));
            Command::RemakeCluster(RemakeCluster { put, make: (old != new).then(|| new.into()) })
        }
    };
    Ok(Some(Change { command, document, before, after: asked.document }))
}

async fn write(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    body: &Value,
    form: Form,
) -> Result<Written, Refusal> {
    let state = app.state();
    let current = state.cluster(workspace.id, name);
    let dry = ask.query.flag("neapDryRun");
    let Some(change) = change(app, ask, workspace, name, body, form).await? else {
        let nothing = current.filter(|_| dry).map(|cluster| preview::nothing(cluster));
        return Ok(nothing.map_or(Written::Changed, Written::Planned));
    };
    if dry {
        let documents = (&change.before, &change.after);
        let mut plan = preview::put(&state, workspace.id, name, change.command, documents, app.now())?;
        if let Some(cluster) = current {
            plan["dependents"] = dependents::of(app, &state, workspace, cluster)?;
        }
        return Ok(Written::Planned(plan));
    }
    app.submit(&ask.caller, change.command, vec![change.document]).await?;
    Ok(if current.is_none() { Written::Created } else { Written::Changed })
}

/// What a write came to.
enum Written {
    Created,
    Changed,
    /// Nothing was done: this is what it would do.
    Planned(Value),
}

/// The resource group that an ARM id lies in.
fn group_of(id: &str) -> Option<GroupKey> {
    let mut segments = id.split('/').filter(|segment| !segment.is_empty());
    let mut after = |word: &str| {
        segments.find(|segment| segment.eq_ignore_ascii_case(word)).and_then(|_| segments.next())
    };
    Some(GroupKey::new(after("subscriptions")?, after("resourceGroups")?))
}

/// A new cluster keeps the password's hash, as one does whose nodes are replaced; an existing one only compares.
async fn settle_password(
    asked: &mut Asked,
    kept: Option<&ClusterDocument>,
    form: Form,
) -> Result<(), Refusal> {
    let Some(password) = asked.password.take() else { return Ok(()) };
    let stored = kept.map(|document| document.admin_password_hash.clone());
    // Hashing is slow on purpose, so it has a thread to itself.
    let settled = tokio::task::spawn_blocking(move || match stored {
        None => PasswordHash::make(&password).map(|hash| Some(hash.as_str().to_owned())),
        Some(Some(hash)) if PasswordHash::from_stored(hash.as_str()).verify(&password) => Ok(Some(hash)),
        Some(_) if form == Form::Remake => {
            PasswordHash::make(&password).map(|hash| Some(hash.as_str().to_owned()))
        }
        Some(_) => Ok(None),
    })
    .await
    .map_err(|e| internal(format!("A password could not be hashed: {e}.")))?
    .map_err(|e| internal(format!("A password could not be hashed: {e}.")))?;
    match settled {
        Some(hash) => asked.document.admin_password_hash = Some(hash),
        None => asked.problems.push(read::password_changed()),
    }
    Ok(())
}

pub(crate) async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    if ask.query.get("underlyingResourceAction").is_some_and(|action| action.eq_ignore_ascii_case("Detach")) {
        return Err(errors::not_supported(
            "A compute cluster belongs to its workspace and cannot be detached; use the action 'Delete'.",
        ));
    }
    let state = app.state();
    let Some(cluster) = state.cluster(workspace.id, name) else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    if !cluster.is_deleting() {
        let reason = format!("The cluster was deleted by {}.", ask.caller.actor);
        app.submit(
            &ask.caller,
            Command::DeleteCluster { cluster: cluster.id, reason: reason.into() },
            Vec::new(),
        )
        .await?;
    }
    Ok(lro::accepted(
        ask,
        &workspace.subscription,
        &cluster.location,
        lro::Operation::DeleteCluster(cluster.id),
    ))
}
