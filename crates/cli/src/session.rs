//! One command's view of the world: the client, the workspace it speaks of, how to print.

use crate::args::{Global, named};
use crate::client::{Client, segment};
use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::output::{Column, Printer};
use crate::settings::{Settings, data_folder};
use crate::terminal::Terminal;
use neap_spec::Scope;
use serde_json::Value;

#[derive(Debug)]
pub struct Session {
    pub client: Client,
    pub scope: Scope,
    pub terminal: Terminal,
    pub settings: Settings,
    /// Whether the resource group was named on the command line.
    pub group_given: bool,
    printer: Printer,
}

impl Session {
    /// Finds the server and settles the defaults: flag, then environment, then `neap configure`, then the installation's.
    pub fn open(global: &Global, terminal: &Terminal) -> Outcome<Self> {
        let settings = Settings::load()?;
        let printer = Printer::new(global, &settings)?;
        let connection = Connection::find(&data_folder(global.data.as_deref())?)?;
        let pick = |flag: &Option<String>, key: &str, fallback: &str| {
            let chosen = flag
                .as_deref()
                .filter(|flag| !flag.is_empty())
                .or_else(|| settings.default_of(key))
                .unwrap_or(fallback);
            chosen.to_owned()
        };
        let scope = Scope {
            subscription_id: pick(&global.subscription, "subscription", &connection.subscription_id),
            resource_group: pick(&global.resource_group, "group", &connection.resource_group),
            workspace: pick(&global.workspace_name, "workspace", &connection.workspace),
        };
        if scope.subscription_id.is_empty() {
            return Err(Failure::usage("no subscription id is known")
                .hint("give --subscription, set NEAP_SUBSCRIPTION_ID, or use the server's data folder"));
        }
        for name in [&scope.subscription_id, &scope.resource_group, &scope.workspace] {
            named(name).map_err(Failure::usage)?;
        }
        if global.change_reference.as_deref().is_some_and(|text| text.contains(char::is_control)) {
            return Err(Failure::usage("--change-reference is one line, without control characters")
                .hint("name the ticket, or say it in a sentence"));
        }
        let client = Client::new(connection, terminal.clone(), global.change_reference.clone())?;
        let group_given = global.resource_group.is_some();
        Ok(Self { client, scope, terminal: terminal.clone(), settings, group_given, printer })
    }

    /// A path below the workspace, as ARM has it.
    pub fn path(&self, below: &str) -> String {
        format!("{}/{below}", self.workspace_path())
    }

    pub fn workspace_path(&self) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.MachineLearningServices/workspaces/{}",
            segment(&self.scope.subscription_id),
            segment(&self.scope.resource_group),
            segment(&self.scope.workspace)
        )
    }

    /// A path below the workspace in Neap's own API.
    pub fn own_path(&self, below: &str) -> String {
        format!(
            "/neap/v1/subscriptions/{}/resourceGroups/{}/workspaces/{}/{below}",
            segment(&self.scope.subscription_id),
            segment(&self.scope.resource_group),
            segment(&self.scope.workspace)
        )
    }

    /// A path of the run history.
    pub fn history_path(&self, below: &str) -> String {
        format!("/history/v1.0{}/{below}", self.workspace_path())
    }

    /// The region of a command that takes one: the flag, the configured default, the workspace's own.
    pub async fn location(&self, given: Option<&str>) -> Outcome<String> {
        if let Some(location) = given.or_else(|| self.settings.default_of("location")) {
            return named(location).map_err(|why| Failure::usage(format!("--location: {why}")));
        }
        let workspace = self.client.get(&self.workspace_path()).await?;
        let location = workspace.get("location").and_then(Value::as_str).unwrap_or_default();
        if location.is_empty() {
            return Err(Failure::failed("the workspace has no location").hint("give one with --location"));
        }
        Ok(location.to_owned())
    }

    /// Prints the warnings that an answer carries, on stderr.
    pub fn warn_of(&self, resource: &Value) {
        // Properties of jobs are text, those of clusters are anything.
        match resource.pointer("/properties/properties/neapWarnings") {
            Some(Value::String(warning)) => self.terminal.warning(warning),
            Some(Value::Array(warnings)) => {
                for warning in warnings.iter().filter_map(Value::as_str) {
                    self.terminal.warning(warning);
                }
            }
            _ => {}
        }
    }

    /// Prints an answer whose rows, in a table, are what it has under this key.
    pub fn print_rows(&self, value: &Value, key: &str, columns: &'static [Column]) -> Outcome<()> {
        self.printer.print(if self.printer.has_rows() { &value[key] } else { value }, columns)
    }

    /// Prints the command's answer.
    pub fn print(&self, value: &Value, columns: &'static [Column]) -> Outcome<()> {
        self.printer.print(value, columns)
    }
}
