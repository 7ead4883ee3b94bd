//! `model download`: the files of a model into a folder.

use crate::args::named;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::transfer::Datastore;
use clap::Args;
use neap_spec::Collection;
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct DownloadArgs {
    /// Name of the model
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Version
    #[arg(long, short = 'v', value_parser = named)]
    version: String,
    /// Folder to download to; the model lands in a folder with its name
    #[arg(long, short = 'p', value_name = "DIR", default_value = ".")]
    download_path: PathBuf,
}

pub async fn run(args: &DownloadArgs, session: &Session) -> Outcome<()> {
    let (_, model) = super::get(Collection::Models, &args.name, Some(&args.version), session).await?;
    let uri = model.pointer("/properties/modelUri").and_then(Value::as_str).unwrap_or_default();
    let place = uri.split_once("datastores/").and_then(|(_, rest)| rest.split_once("/paths/"));
    let Some((store, path)) = place else {
        return Err(Failure::failed(format!(
            "the model lies at {uri}, which is not a datastore of the workspace"
        ))
        .hint("fetch it from there with that store's own tools"));
    };
    let store = Datastore::open(store, session).await?;
    let folder = args.download_path.join(&args.name);
    let mut files = store.download(&format!("{}/", path.trim_end_matches('/')), &folder, session).await?;
    if files == 0 {
        // The model is a single file.
        files = store.download(path, &folder, session).await?;
    }
    session.terminal.note(&format!("{files} files downloaded to {}", folder.display()));
    Ok(())
}
