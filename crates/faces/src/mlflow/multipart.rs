//! Large files in parts: signed URLs for the blocks of one blob, and their putting together.

use base64::{Engine, engine::general_purpose::STANDARD};
use neap_core::state::Workspace;
use neap_storage::sas::Permission;
use neap_storage::{BLOCKS_MAX, BlobAddress, BlockKind, BlockRef, Bound, Condition, Headers};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::artifacts::{signed_path, writable};
use super::faults::Fault;
use super::given::Given;
use crate::app::App;
use crate::workspace_files;

/// `mpu/{create,complete,abort}/{folder}`, with the file's path on the client's side in the body.
pub(super) fn answer(
    app: &App,
    workspace: &Workspace,
    base: &str,
    step: &str,
    folder: &str,
    given: &Given,
    bound: Option<Bound>,
) -> Result<Value, Fault> {
    let file = given.need("path")?.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = writable(&format!("{folder}/{file}"))?;
    match step {
        "create" => {
            let target = signed_path(app, workspace, &name, &[Permission::Create, Permission::Write], bound);
            create(&format!("{base}{target}"), given)
        }
        "complete" => complete(app, workspace, &name, given),
        // Blocks that nobody puts together are forgotten by the store after some days.
        "abort" => Ok(json!({})),
        _ => Err(Fault::no_endpoint("POST", &format!("mpu/{step}"))),
    }
}

fn create(target: &str, given: &Given) -> Result<Value, Fault> {
    let parts = given.integer("num_parts")?.and_then(|parts| usize::try_from(parts).ok()).unwrap_or(1);
    if !(1..=BLOCKS_MAX).contains(&parts) {
        return Err(Fault::invalid(format!("A file has 1 to {BLOCKS_MAX} parts; {parts} are asked for.")));
    }
    let upload = neap_identity::random_guid().map_err(|e| Fault::internal(e.to_string()))?;
    let credentials: Vec<Value> = (1..=parts)
        .map(|part| {
            let block = block_id(&upload, part);
            let block = utf8_percent_encode(&block, NON_ALPHANUMERIC);
            json!({"url": format!("{target}&comp=block&blockid={block}"), "part_number": part, "headers": {}})
        })
        .collect();
    Ok(json!({"upload_id": upload, "credentials": credentials}))
}

fn complete(app: &App, workspace: &Workspace, name: &str, given: &Given) -> Result<Value, Fault> {
    let upload = given.need("upload_id")?;
    let mut parts = Vec::new();
    for part in given.list("parts") {
        let number = part.integer("part_number")?.and_then(|number| usize::try_from(number).ok());
        parts.push(number.ok_or_else(|| Fault::invalid("Every part has a 'part_number'."))?);
    }
    parts.sort_unstable();
    let blocks: Vec<BlockRef> = parts
        .into_iter()
        .map(|part| BlockRef { kind: BlockKind::Latest, id: block_id(upload, part) })
        .collect();
    let address =
        BlobAddress::new(workspace_files::account(workspace.id), workspace_files::ARTIFACT_CONTAINER, name)
            .map_err(workspace_files::storage)?;
    app.store
        .commit_blocks(&address, &blocks, Headers::default(), &Condition::default())
        .map_err(workspace_files::storage)?;
    Ok(json!({}))
}

/// All ids of a blob's blocks must be equally long.
fn block_id(upload: &str, part: usize) -> String {
    STANDARD.encode(format!("{upload}-{part:05}"))
}
