//! One file per command or group: its flags, what it asks the server, what it prints.

pub mod asset;
pub mod batch;
pub mod budget;
pub mod completion;
pub mod compute;
pub mod configure;
pub mod cost;
pub mod datastore;
pub mod diff;
pub mod down;
pub mod env;
pub mod explain;
pub mod job;
pub mod lock;
pub mod node;
pub mod plan;
pub mod queue;
pub mod quota;
pub mod resource;
pub mod schedule;
pub mod secret;
pub mod status;
pub mod waste;
pub mod workspace;

use crate::args::{Cli, Command, Global, MlCommand};
use crate::failure::{Failure, Outcome};
use crate::local;
use crate::session::Session;
use crate::terminal::Terminal;
use std::process::ExitCode;

pub fn run(cli: Cli, terminal: &Terminal) -> Outcome<ExitCode> {
    let Cli { global, command } = cli;
    match command {
        Command::Up(args) => local::up::run(&args, &global, terminal),
        Command::Attend(args) => local::attend::run(&args),
        Command::Launch(args) => local::launch::run(&args),
        Command::Agent(args) => local::agent::run(&args, &global, terminal),
        Command::Container(args) => local::container::run(&args),
        Command::Sim(args) => local::sim::run(&args, &global, terminal),
        Command::Verify(args) => local::verify::run(&args, &global, terminal),
        Command::Doctor(args) => local::doctor::run(args, &global, terminal),
        Command::Bench(command) => local::bench::run(command, &global, terminal),
        Command::Down(args) => block_on(down::run(&args, &global, terminal)),
        Command::Status(args) => block_on(status::run(&args, &global, terminal)),
        Command::Env(args) => env::run(&args, &global),
        Command::Configure(args) => configure::run(&args, &global, terminal),
        Command::Completion(args) => completion::run(&args),
        Command::Cost(args) => cost::run(&args, &global, terminal),
        Command::Waste(args) => waste::run(&args, &global, terminal),
        Command::Explain(command) => explain::run(&command, &global, terminal),
        Command::Queue(args) => queue::run(&args, &global, terminal),
        Command::Plan(args) => plan::run(&args, &global, terminal),
        Command::Node(command) => node::run(&command, &global, terminal),
        Command::Diff(args) => diff::run(&args, &global, terminal),
        Command::Quota(command) => quota::run(&command, &global, terminal),
        Command::Budget(command) => budget::run(&command, &global, terminal),
        Command::Secret(command) => secret::run(&command, &global, terminal),
        Command::Lock(command) => lock::run(&command, &global, terminal),
        Command::Version => {
            crate::output::emit(concat!("neap ", env!("CARGO_PKG_VERSION"), "\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Resources(command) | Command::Ml(command) => resources(command, &global, terminal),
    }
}

/// The groups that `az ml` has too.
fn resources(command: MlCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    match command {
        MlCommand::Compute(command) => compute::run(command, global, terminal),
        MlCommand::Job(command) => job::run(command, global, terminal),
        MlCommand::Component(command) => asset::component::run(&command, global, terminal),
        MlCommand::Environment(command) => asset::environment::run(&command, global, terminal),
        MlCommand::Data(command) => asset::data::run(&command, global, terminal),
        MlCommand::Model(command) => asset::model::run(&command, global, terminal),
        MlCommand::Datastore(command) => datastore::run(&command, global, terminal),
        MlCommand::Schedule(command) => schedule::run(&command, global, terminal),
        MlCommand::BatchEndpoint(command) => batch::endpoint::run(&command, global, terminal),
        MlCommand::BatchDeployment(command) => batch::deployment::run(&command, global, terminal),
        MlCommand::Workspace(command) => {
            let session = Session::open(global, terminal)?;
            block_on(workspace::run(&command, &session))
        }
    }
}

/// Runs one asynchronous command. The runtime is made here, so that commands that need none start without it.
pub fn block_on<T>(command: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the asynchronous runtime cannot start: {error}")))?;
    runtime.block_on(command)
}
