//! What the groups of unversioned resources share: put, show, list, change, delete.

use crate::args::named;
use crate::client::segment;
use crate::failure::{Failure, Outcome};
use crate::output::Column;
use crate::session::Session;
use clap::Args;
use neap_spec::{remove_path, set_path, typed_value};
use reqwest::Method;
use serde_json::Value;

/// One kind of resource.
#[derive(Clone, Copy)]
pub struct Resource {
    /// What people call one.
    pub word: &'static str,
    pub entity: fn(&Value) -> Value,
    pub columns: &'static [Column],
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// Name
    #[arg(long, short = 'n', value_parser = named)]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Name
    #[arg(long, short = 'n', value_parser = named)]
    pub name: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Return when the request is accepted
    #[arg(long)]
    pub no_wait: bool,
}

/// `--set` and `--remove`, on the paths of a file.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Set a property, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Remove a property, by path
    #[arg(long, num_args = 1.., value_name = "PATH")]
    pub remove: Vec<String>,
    #[arg(long, hide = true)]
    pub force_string: bool,
    #[arg(long, hide = true)]
    pub no_wait: bool,
}

impl ChangeArgs {
    /// Changes `tree`, whose keys are those of a file.
    pub fn apply(&self, tree: &mut Value) -> Outcome<()> {
        for assignment in &self.set {
            let (path, value) = assignment
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("--set {assignment}: write it as path=value")))?;
            set_path(tree, path, typed_value(value, self.force_string))
                .map_err(|message| Failure::usage(format!("--set {path}: {message}")))?;
        }
        for path in &self.remove {
            if !remove_path(tree, path).map_err(Failure::usage)? {
                return Err(Failure::usage(format!("--remove {path}: there is no such property")));
            }
        }
        Ok(())
    }
}

/// The path of one resource below the workspace.
pub fn path(session: &Session, plural: &str, name: &str) -> String {
    session.path(&format!("{plural}/{}", segment(name)))
}

impl Resource {
    pub fn print(&self, session: &Session, resource: &Value) -> Outcome<()> {
        session.warn_of(resource);
        session.print(&(self.entity)(resource), self.columns)
    }

    pub async fn show(&self, session: &Session, path: &str) -> Outcome<()> {
        self.print(session, &session.client.get(path).await?)
    }

    pub async fn list(&self, session: &Session, path: &str, limit: Option<usize>) -> Outcome<()> {
        let rows = session.client.list(path, limit).await?;
        session.print(&Value::Array(rows.iter().map(self.entity).collect()), self.columns)
    }

    /// Puts the resource, waits until it is so unless told otherwise, and prints it.
    pub async fn put(&self, session: &Session, path: &str, body: &Value, wait: bool) -> Outcome<()> {
        let answer = session.client.call(Method::PUT, path, Some(body)).await?;
        if !wait {
            return self.print(session, &answer.body);
        }
        let spinner = session.terminal.spinner(&format!("creating the {}", self.word));
        let waited = session.client.wait(&answer).await;
        spinner.finish_and_clear();
        waited?;
        self.show(session, path).await
    }

    pub async fn delete(&self, session: &Session, path: &str, args: &DeleteArgs, lost: &str) -> Outcome<()> {
        // What does not exist is said, and before anything is asked.
        session.client.get(path).await?;
        if !args.yes {
            session.terminal.confirm(&format!("Delete the {} {}?{lost}", self.word, args.name))?;
        }
        let answer = session.client.call(Method::DELETE, path, None).await?;
        if args.no_wait {
            return Ok(());
        }
        let spinner = session.terminal.spinner(&format!("deleting {}", args.name));
        let waited = session.client.wait(&answer).await;
        spinner.finish_and_clear();
        waited
    }
}
