//! MPI, by the Open MPI of the job's environment. The head runs `mpirun` over all nodes. Where that would use ssh it
//! calls `neap launch rsh`, which asks the head's launcher, which tells the node's launcher over their link. In place of
//! each process it starts `neap launch process`, which runs the command and puts its output into the node's own log.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::link::{Head, Node, Word, patience};
use super::note::Note;
use super::output::Output;
use super::plan::{Plan, Process};
use super::run::{code_of, find_program, note_of, shell, start, user_command};
use super::{Failed, PROGRAM, WORD, own_program};

const INSTALL: &str =
    "install Open MPI (Debian: openmpi-bin) on the nodes, or use an environment that has it";
const HOSTS_FILE: &str = "hosts";
/// What the shell and this program say when something could not be run at all.
const NOT_RUN: u8 = 255;

pub(super) async fn run(plan: &Plan, per_node: u32, output: &Output) -> Result<(), Failed> {
    let wanted = if plan.is_head() { "mpirun" } else { "orted" };
    if find_program(wanted).is_none() {
        let message = format!("This job asks for MPI, but there is no '{wanted}' on its PATH: {INSTALL}.");
        return Err(Failed::Missing(message));
    }
    if plan.is_head() { lead(plan, per_node, output).await } else { serve(plan).await }
}

/// The head: `mpirun`, and whatever it wants to be run elsewhere.
async fn lead(plan: &Plan, per_node: u32, output: &Output) -> Result<(), Failed> {
    let mut head = if plan.nodes() > 1 { Some(Head::listen(plan).await?) } else { None };
    let program = own_program()?;
    let mut command = tokio::process::Command::new("mpirun");
    command.args(arguments(plan, per_node)?).env(PROGRAM, &program).current_dir(&plan.cwd);
    let mut mpirun = std::pin::pin!(start(command)?.follow(0, output));
    let mut lost = false;
    let status = loop {
        let heard = async {
            match &mut head {
                Some(head) => head.hear().await,
                None => std::future::pending().await,
            }
        };
        let heard = tokio::select! {
            biased;
            status = &mut mpirun => break status?,
            heard = heard => heard,
        };
        let Some(head) = &mut head else { continue };
        match heard.word {
            // The connection's number is the errand's.
            Some(Word::Ask { address, line }) => {
                let id = heard.connection;
                let node = plan.ranks.addresses.iter().position(|known| *known == address);
                match node.and_then(|node| u32::try_from(node).ok()).filter(|node| *node > 0) {
                    Some(node) => head.say(node, Word::Run { id, line }).await,
                    None => head.answer(id, &Word::Ended { id, code: NOT_RUN }).await,
                }
            }
            Some(Word::Ended { id, code }) => head.answer(id, &Word::Ended { id, code }).await,
            Some(_) => {}
            None => lost = true,
        }
    };
    let mut notes: Vec<Note> = Note::read(&plan.run_dir).into_iter().collect();
    if let Some(head) = &mut head {
        notes.extend(head.end(plan).await);
    }
    if status.success() {
        return Ok(());
    }
    if lost {
        patience().await;
    }
    if let Some(first) = notes.into_iter().min_by_key(Note::at_ms) {
        let _ = first.replace(&plan.run_dir);
    }
    Err(Failed::Process(code_of(status)))
}

/// Another node: runs what the head wants, until it is over.
async fn serve(plan: &Plan) -> Result<(), Failed> {
    let mut node = Node::connect(plan).await?;
    let mut daemons = FuturesUnordered::new();
    loop {
        let word = tokio::select! {
            word = node.hear() => word?,
            Some((id, code)) = daemons.next() => {
                node.say(&Word::Ended { id, code }).await?;
                continue;
            }
        };
        match word {
            Word::Run { id, line } => daemons.push(async move { (id, run_daemon(&line).await) }),
            Word::End => {
                let note = Note::read(&plan.run_dir);
                // The head has it, and says it.
                let _ = node.say(&Word::Goodbye { note }).await;
                return Ok(());
            }
            Word::Ended { .. } | Word::Ask { .. } | Word::Done | Word::Goodbye { .. } => {}
        }
    }
}

/// Open MPI's daemon. It stays for as long as the job runs, and complains into the node's log.
async fn run_daemon(line: &str) -> u8 {
    let Ok(program) = own_program() else { return NOT_RUN };
    let mut command = shell(&OsString::from(line));
    command.env(PROGRAM, program).stdin(Stdio::null());
    match command.status().await {
        Ok(status) => code_of(status),
        Err(_) => NOT_RUN,
    }
}

fn arguments(plan: &Plan, per_node: u32) -> Result<Vec<String>, Failed> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |some: &[&str]| words.extend(some.iter().map(|word| (*word).to_owned()));
    if rustix::process::geteuid().is_root() {
        add(&["--allow-run-as-root"]);
    }
    add(&["-n", &plan.world().to_string(), "--bind-to", "none"]);
    let hosts = plan.run_dir.join(HOSTS_FILE);
    write_hosts(plan, per_node, &hosts)?;
    add(&["--hostfile", &hosts.display().to_string()]);
    if plan.nodes() > 1 {
        // Every daemon looks for the agent too, though only mpirun uses it: it must begin with what is on every node.
        let agent = format!("/bin/sh {}", write_agent(plan)?.display());
        add(&["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", &agent]);
        add(&["--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "orte_keep_fqdn_hostnames", "1"]);
        // A daemon that cannot start must not be waited for: its end is told, since it stays in the foreground.
        add(&["--leave-session-attached"]);
    }
    if plan.loopback {
        add(&["--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo"]);
        add(&["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"]);
        // Nodes share the machine's cores: who waits must let the others run.
        add(&["--mca", "mpi_yield_when_idle", "1"]);
    }
    // The path is each node's own.
    add(&["/bin/sh", "-c", &format!("exec \"${PROGRAM}\" {WORD} process")]);
    Ok(words)
}

fn write_agent(plan: &Plan) -> std::io::Result<std::path::PathBuf> {
    let path = plan.run_dir.join("rsh");
    std::fs::write(&path, format!("exec \"${PROGRAM}\" {WORD} rsh \"$@\"\n"))?;
    Ok(path)
}

fn write_hosts(plan: &Plan, per_node: u32, to: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::create(to)?;
    // What runs on the head is started by mpirun itself: two daemons in one place get in each other's way.
    writeln!(file, "localhost slots={per_node}")?;
    plan.ranks.addresses.iter().skip(1).try_for_each(|address| writeln!(file, "{address} slots={per_node}"))
}

/// `neap launch rsh ADDRESS WORDS…`: has a command run on another node, as ssh would.
pub(super) async fn reach(plan: &Plan, words: &[OsString]) -> u8 {
    let [address, words @ ..] = words else { return NOT_RUN };
    let address = address.to_string_lossy().into_owned();
    let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let Ok(mut node) = Node::ask(plan).await else { return NOT_RUN };
    if node.say(&Word::Ask { address, line }).await.is_err() {
        return NOT_RUN;
    }
    loop {
        match node.hear().await {
            Ok(Word::Ended { code, .. }) => return code,
            Ok(_) => {}
            Err(_) => return NOT_RUN,
        }
    }
}

/// `neap launch process`: one process of the job, in place of itself as far as MPI can see.
pub(super) async fn process(plan: &Plan) -> u8 {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    let program = std::env::var(PROGRAM).unwrap_or_default();
    let (Some(rank), Some(local_rank), Ok(output)) =
        (number("OMPI_COMM_WORLD_RANK"), number("OMPI_COMM_WORLD_LOCAL_RANK"), Output::of_launcher(&program))
    else {
        super::eprint_line("neap launch process: not started by mpirun");
        return NOT_RUN;
    };
    let mut variables = plan.node_variables();
    variables.extend(plan.process_variables(Process { rank, local_rank, serves: false }));
    if plan.loopback && !plan.apart {
        // Open MPI calls its shared memory by the host's name, which is that of all nodes here.
        let place = plan.run_dir.display().to_string();
        variables.push(("OMPI_MCA_btl_vader_backing_directory".to_owned(), place));
    }
    let ended = match user_command(plan, variables) {
        Ok(running) => running.follow(rank, &output).await,
        Err(e) => Err(e),
    };
    match ended {
        Ok(status) => {
            use std::os::unix::process::ExitStatusExt;
            // mpirun ends the others so: they did not fail.
            if !status.success() && status.signal() != Some(15) {
                let _ = note_of(rank, status).leave(&plan.run_dir);
            }
            code_of(status)
        }
        Err(e) => {
            output.say(rank, &e.to_string());
            NOT_RUN
        }
    }
}
