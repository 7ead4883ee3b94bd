//! What the groups of versioned assets share: create, list, show, update, archive, restore.
//!
//! `component.rs`, `data.rs`, `environment.rs` and `model.rs` each say which kind they are and which flags their `create`
//! has beside these.

pub mod component;
pub mod data;
mod download;
pub mod environment;
pub mod model;

use crate::args::{Global, named, whole};
use crate::client::segment;
use crate::commands::block_on;
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::output::Column;
use crate::preparation;
use crate::session::Session;
use crate::specification::Specification;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::{Collection, Context, Document, Error, Request, remove_path, set_path, typed_value};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Most rows of a list unless more are asked for.
const ROWS_DEFAULT: usize = 50;

/// What is done with versions that are there, of whatever kind.
#[derive(Debug, Subcommand)]
pub enum RegisteredCommand {
    /// List the names, or the versions of one
    List(ListArgs),
    /// Show a version
    Show(ShowArgs),
    /// Change the description, tags or properties of a version
    Update(UpdateArgs),
    /// Hide a version, or a name with all its versions, from lists
    Archive(ArchiveArgs),
    /// Show in lists again what is archived
    Restore(ArchiveArgs),
}

/// Examples in the words of one group.
fn with_examples(command: clap::Command, word: &str) -> clap::Command {
    let lines: &[&str] = match command.get_name() {
        "list" => &["-o table", "-n mine -o table"],
        "show" => &["-n mine", "-n mine --version 2"],
        "update" => &["-n mine --version 2 --set tags.stage=good"],
        "archive" => &["-n mine --version 1", "-n mine"],
        "restore" => &["-n mine --version 1"],
        _ => return command,
    };
    let name = command.get_name();
    let examples: Vec<String> = lines.iter().map(|line| format!("  neap {word} {name} {line}")).collect();
    command.after_help(format!("Examples:\n{}", examples.join("\n")))
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Name of the asset
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Version [default: the newest]
    #[arg(long, short = 'v', conflicts_with = "label", value_parser = named)]
    version: Option<String>,
    /// Label of the version; the only one is latest
    #[arg(long, short = 'l', value_parser = ["latest"])]
    label: Option<String>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// List the versions of this name [default: the names]
    #[arg(long, short = 'n', value_parser = named)]
    name: Option<String>,
    /// Most results to return
    #[arg(long, short = 'r', value_name = "N", default_value_t = ROWS_DEFAULT, allow_negative_numbers = true, value_parser = whole::<usize>)]
    max_results: usize,
    /// Only what is archived
    #[arg(long)]
    archived_only: bool,
    /// What is archived too
    #[arg(long, conflicts_with = "archived_only")]
    include_archived: bool,
}

#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// Name of the asset
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Only this version [default: all of the name]
    #[arg(long, short = 'v', conflicts_with = "label", value_parser = named)]
    version: Option<String>,
    /// Only the version with this label
    #[arg(long, short = 'l', value_parser = ["latest"])]
    label: Option<String>,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    which: ShowArgs,
    /// Set description, tags.KEY or properties.KEY
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Remove a tag or property, by path
    #[arg(long, num_args = 1.., value_name = "PATH")]
    remove: Vec<String>,
    #[arg(long, hide = true)]
    force_string: bool,
}

/// The flags of every `create`.
#[derive(Debug, Args)]
pub struct RegisterArgs {
    /// YAML file with the specification
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name [default: the file's]
    #[arg(long, short = 'n', value_parser = named)]
    name: Option<String>,
    /// Version [default: the file's, else the next one]
    #[arg(long, short = 'v', value_parser = named)]
    version: Option<String>,
    /// Description
    #[arg(long, short = 'd')]
    description: Option<String>,
    /// Tags
    #[arg(long, num_args = 1.., value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    #[arg(long, hide = true)]
    skip_validation: bool,
    #[arg(long, hide = true)]
    no_wait: bool,
}

/// How the YAML of a kind becomes a request.
type Build = fn(&Document, &Context<'_>) -> Result<Request, Error>;

const VERSION_COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Version", "version"),
    ("Type", "type"),
    ("Created", "creation_context.created_at"),
    ("Description", "description"),
];

const NAME_COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Latest", "latest_version"),
    ("Created", "creation_context.created_at"),
    ("Description", "description"),
];

fn run(
    collection: Collection,
    command: &RegisteredCommand,
    global: &Global,
    terminal: &Terminal,
) -> Outcome<()> {
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            RegisteredCommand::List(args) => list(collection, args, &session).await,
            RegisteredCommand::Show(args) => show(collection, args, &session).await,
            RegisteredCommand::Update(args) => update(collection, args, &session).await,
            RegisteredCommand::Archive(args) => set_archived(collection, args, true, &session).await,
            RegisteredCommand::Restore(args) => set_archived(collection, args, false, &session).await,
        }
    })
}

/// Checks the file, does what must be done before, registers the version, prints it.
fn create(
    collection: Collection,
    build: Build,
    args: &RegisterArgs,
    more: &[(&str, Option<Value>)],
    global: &Global,
    terminal: &Terminal,
) -> Outcome<()> {
    let mut flags: Vec<(&str, Option<Value>)> = vec![
        ("name", args.name.clone().map(Value::from)),
        ("version", args.version.clone().map(Value::from)),
        ("description", args.description.clone().map(Value::from)),
    ];
    flags.extend(more.iter().cloned());
    if args.file.is_none() && flags.iter().all(|(_, value)| value.is_none()) {
        return Err(Failure::usage("nothing says what to create").hint("give a YAML file with -f FILE"));
    }
    if !args.tags.is_empty() {
        flags.push(("tags", Some(tags(&args.tags)?)));
    }
    let specification = Specification::load(args.file.as_deref(), &flags, &args.set)?;
    specification.check(build)?;
    let session = Session::open(global, terminal)?;
    block_on(async {
        let mut request = specification.plan(&session.scope, build)?;
        preparation::perform(&mut request, &session).await?;
        let name = Some(request.name.as_str());
        let version = request.version.as_deref();
        let resource = preparation::put_version(collection, name, version, &request.body, &session).await?;
        session.warn_of(&resource);
        session.print(&entity::version(&resource, collection), VERSION_COLUMNS)
    })
}

fn tags(pairs: &[String]) -> Outcome<Value> {
    let mut map = serde_json::Map::new();
    for pair in pairs.iter().flat_map(|pair| pair.split(' ')).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--tags {pair}: write it as key=value")))?;
        map.insert(key.to_owned(), value.into());
    }
    Ok(Value::Object(map))
}

async fn list(collection: Collection, args: &ListArgs, session: &Session) -> Outcome<()> {
    let view = match (args.archived_only, args.include_archived) {
        (true, _) => "ArchivedOnly",
        (false, true) => "All",
        (false, false) => "ActiveOnly",
    };
    let plural = collection.plural();
    let limit = Some(args.max_results);
    match &args.name {
        Some(name) => {
            let path = format!("{plural}/{}/versions?listViewType={view}", segment(name));
            let rows = session.client.list(&session.path(&path), limit).await?;
            let rows = rows.iter().map(|row| entity::version(row, collection)).collect();
            session.print(&Value::Array(rows), VERSION_COLUMNS)
        }
        None => {
            let rows =
                session.client.list(&session.path(&format!("{plural}?listViewType={view}")), limit).await?;
            session.print(&Value::Array(rows.iter().map(entity::container).collect()), NAME_COLUMNS)
        }
    }
}

/// The resource of one version: the one named, else the newest.
async fn get(
    collection: Collection,
    name: &str,
    version: Option<&str>,
    session: &Session,
) -> Outcome<(String, Value)> {
    let path = match version {
        Some(version) => {
            session.path(&format!("{}/{}/versions/{}", collection.plural(), segment(name), segment(version)))
        }
        None => preparation::latest(collection, name, session).await?,
    };
    let resource = session.client.get(&path).await?;
    Ok((path, resource))
}

async fn show(collection: Collection, args: &ShowArgs, session: &Session) -> Outcome<()> {
    let (_, resource) = get(collection, &args.name, args.version.as_deref(), session).await?;
    session.print(&entity::version(&resource, collection), VERSION_COLUMNS)
}

const CHANGEABLE: &[&str] = &["description", "tags", "properties"];

async fn update(collection: Collection, args: &UpdateArgs, session: &Session) -> Outcome<()> {
    let (path, mut resource) =
        get(collection, &args.which.name, args.which.version.as_deref(), session).await?;
    let changeable = |path: &str| {
        let top = path.split(['.', '[']).next().unwrap_or(path).to_owned();
        if CHANGEABLE.contains(&top.as_str()) {
            return Ok(());
        }
        Err(Failure::usage(format!("{top} of a registered {} cannot change", collection.word()))
            .hint(format!("what can: {}", CHANGEABLE.join(", ")))
            .hint("create a new version for another definition"))
    };
    for assignment in &args.set {
        let (place, value) = assignment
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {assignment}: write it as path=value")))?;
        changeable(place)?;
        let text = args.force_string || place.contains('.');
        set_path(&mut resource["properties"], place, typed_value(value, text))
            .map_err(|message| Failure::usage(format!("--set {place}: {message}")))?;
    }
    for place in &args.remove {
        changeable(place)?;
        if !remove_path(&mut resource["properties"], place).map_err(Failure::usage)? {
            return Err(Failure::usage(format!("--remove {place}: there is no such property")));
        }
    }
    let body = json!({"properties": resource["properties"]});
    let changed = session.client.call(Method::PUT, &path, Some(&body)).await?.body;
    session.print(&entity::version(&changed, collection), VERSION_COLUMNS)
}

/// Archives or restores one version, or the whole name.
async fn set_archived(
    collection: Collection,
    args: &ArchiveArgs,
    archived: bool,
    session: &Session,
) -> Outcome<()> {
    if args.version.is_none() && args.label.is_none() {
        let path = session.path(&format!("{}/{}", collection.plural(), segment(&args.name)));
        let container = session.client.get(&path).await?;
        let mut properties = container.get("properties").cloned().unwrap_or_else(|| json!({}));
        properties["isArchived"] = archived.into();
        session.client.call(Method::PUT, &path, Some(&json!({ "properties": properties }))).await?;
        return Ok(());
    }
    let (path, mut resource) = get(collection, &args.name, args.version.as_deref(), session).await?;
    resource["properties"]["isArchived"] = archived.into();
    session.client.call(Method::PUT, &path, Some(&json!({"properties": resource["properties"]}))).await?;
    Ok(())
}
