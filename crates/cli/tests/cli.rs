//! The command line from outside: exit code, stdout and stderr of the real program, without a server.

use insta::assert_snapshot;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A home of its own for each test: nothing of the machine's user is read or changed.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn neap(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_neap"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.path())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Exit code, stdout and stderr as one text, with the home's path taken out.
    fn run(&self, arguments: &[&str]) -> String {
        self.seen(self.neap(arguments))
    }

    fn seen(&self, mut command: Command) -> String {
        let output = command.output().unwrap();
        let mut text = String::new();
        write!(text, "exit: {}", output.status.code().unwrap()).unwrap();
        for (name, bytes) in [("stdout", output.stdout), ("stderr", output.stderr)] {
            let said = String::from_utf8(bytes).unwrap();
            write!(text, "\n----- {name}\n{said}").unwrap();
        }
        text.replace(&self.path().canonicalize().unwrap().display().to_string(), "[HOME]")
            .replace(&self.path().display().to_string(), "[HOME]")
    }
}

const BAD_CLUSTER: &str =
    "type: amlcompute\nname: c\nmin_instance: 1\nmax_instances: many\ntier: low\nssh_settings: {}\n";

const BAD_JOB: &str = "command: python t.py ${{inputs.epoch}}\nenvironment: {conda_file: no.yml, image: python}\n\
                       inputs: {epochs: 3}\nlimits: {timeout: soon}\ncomputes: azureml:c\n";

const BAD_PIPELINE: &str = "type: pipeline\njobs:\n  a:\n    component: ./step.yml\n    inputs: {words: 3}\n  b:\n    \
                            command: echo ${{inputs.i}}\n    environment: {image: python}\n    \
                            inputs: {i: \"${{parent.jobs.aa.outputs.o}}\"}\n";

#[test]
fn help_teaches() {
    let home = Home::new();
    assert_snapshot!("help", home.run(&["--help"]));
    assert_snapshot!("help_compute", home.run(&["compute", "--help"]));
    assert_snapshot!("help_compute_create", home.run(&["compute", "create", "--help"]));
    assert_snapshot!("help_job", home.run(&["job", "-h"]));
    assert_snapshot!("help_job_create", home.run(&["job", "create", "--help"]));
    assert_snapshot!("help_component", home.run(&["component", "-h"]));
    assert_snapshot!("help_schedule", home.run(&["schedule", "-h"]));
    assert_snapshot!("help_batch_endpoint_invoke", home.run(&["batch-endpoint", "invoke", "-h"]));
}

#[test]
fn every_command_has_help_with_an_example() {
    let home = Home::new();
    for path in [
        "up",
        "down",
        "status",
        "env",
        "doctor",
        "verify",
        "configure",
        "bench",
        "completion",
        "plan",
        "plan compute update",
        "queue",
        "explain job",
        "compute create",
        "compute show",
        "compute list",
        "compute update",
        "compute delete",
        "compute list-nodes",
        "compute list-sizes",
        "compute list-usage",
        "compute node-log",
        "compute history",
        "compute rollback",
        "cost",
        "quota list",
        "quota set",
        "quota request",
        "quota approve",
        "budget create",
        "budget list",
        "budget show",
        "budget delete",
        "secret create",
        "secret list",
        "secret show",
        "secret delete",
        "lock create",
        "lock list",
        "lock delete",
        "job create",
        "job show",
        "job list",
        "job stream",
        "job cancel",
        "job download",
        "job update",
        "job archive",
        "job restore",
        "job validate",
        "job show-services",
        "job open-service",
        "job connect-ssh",
        "job tunnel",
        "component create",
        "component list",
        "component show",
        "component update",
        "component archive",
        "component restore",
        "environment create",
        "environment list",
        "environment show",
        "environment update",
        "environment archive",
        "environment restore",
        "data create",
        "data list",
        "data show",
        "data update",
        "data archive",
        "data restore",
        "model create",
        "model list",
        "model show",
        "model update",
        "model archive",
        "model restore",
        "model download",
        "datastore create",
        "datastore list",
        "datastore show",
        "datastore delete",
        "schedule create",
        "schedule list",
        "schedule show",
        "schedule update",
        "schedule enable",
        "schedule disable",
        "schedule trigger",
        "schedule delete",
        "batch-endpoint create",
        "batch-endpoint list",
        "batch-endpoint show",
        "batch-endpoint update",
        "batch-endpoint delete",
        "batch-endpoint invoke",
        "batch-endpoint list-jobs",
        "batch-deployment create",
        "batch-deployment list",
        "batch-deployment show",
        "batch-deployment update",
        "batch-deployment delete",
        "batch-deployment list-jobs",
        "workspace create",
        "workspace show",
        "workspace delete",
        "ml compute create",
        "ml job create",
        "ml component create",
        "ml batch-endpoint invoke",
    ] {
        let mut arguments: Vec<&str> = path.split(' ').collect();
        arguments.push("--help");
        let seen = home.run(&arguments);
        assert!(seen.starts_with("exit: 0") && seen.contains("Examples:"), "{path}: {seen}");
    }
}

#[test]
fn wrong_usage_is_said() {
    let home = Home::new();
    assert_snapshot!("usage_nothing_given", home.run(&["compute", "create"]));
    assert_snapshot!("usage_unknown_flag", home.run(&["compute", "create", "--min-instance", "3"]));
    assert_snapshot!("usage_unknown_command", home.run(&["compute", "creat"]));
    assert_snapshot!("usage_bad_query", home.run(&["compute", "list", "--query", "[?"]));
    assert_snapshot!(
        "usage_bad_set",
        home.run(&["compute", "create", "-n", "c1", "-t", "amlcompute", "--set", "x"])
    );
    assert_snapshot!("usage_empty_name", home.run(&["compute", "show", "-n", ""]));
    assert_snapshot!("usage_not_a_number", home.run(&["budget", "create", "-n", "b", "--threshold", "12.5"]));
    assert_snapshot!("usage_below_zero", home.run(&["queue", "cpu", "--top", "-1"]));
    assert_snapshot!("usage_no_times", home.run(&["cost", "--from", "x", "--to", "y", "--at", "z"]));
    assert_snapshot!("usage_no_value", home.run(&["secret", "create", "-n", "TOKEN"]));
    assert_snapshot!("usage_refused_command", home.run(&["ml", "compute", "start", "-n", "ci1"]));
}

#[test]
fn every_problem_of_a_file_is_said_at_once() {
    let home = Home::new();
    home.write("cluster.yml", BAD_CLUSTER);
    home.write("job.yml", BAD_JOB);
    home.write("instance.yml", "name: ci\ntype: computeinstance\n");
    home.write("pipeline.yml", BAD_PIPELINE);
    home.write(
        "step.yml",
        "type: command\ncommand: echo ${{inputs.words}}\ninputs: {word: {type: string}}\n",
    );
    home.write(
        "schedule.yml",
        "name: s\ntrigger: {type: cron, expression: hourly}\ncreate_job: ./pipeline.yml\n",
    );
    home.write("good.yml", "command: ls\nenvironment: {image: python}\n");
    home.write("broken.yml", "name: [\n");
    home.write("code.yml", "command: ls\ncode: ./src\nenvironment: {image: python}\n");
    assert_snapshot!("bad_cluster", home.run(&["compute", "create", "-f", "cluster.yml"]));
    assert_snapshot!("bad_job", home.run(&["job", "create", "-f", "job.yml"]));
    assert_snapshot!("bad_type", home.run(&["compute", "create", "-f", "instance.yml"]));
    assert_snapshot!("bad_pipeline", home.run(&["ml", "job", "create", "-f", "pipeline.yml"]));
    assert_snapshot!("bad_component", home.run(&["component", "create", "-f", "step.yml"]));
    assert_snapshot!("bad_schedule", home.run(&["schedule", "create", "-f", "schedule.yml"]));
    assert_snapshot!("bad_nothing_to_create", home.run(&["data", "create"]));
    assert_snapshot!("bad_web", home.run(&["job", "create", "-f", "good.yml", "--web"]));
    assert_snapshot!("bad_from_and_file", home.run(&["job", "create", "-f", "good.yml", "--from", "j"]));
    assert_snapshot!("validate_good", home.run(&["job", "validate", "-f", "good.yml"]));
    assert_snapshot!(
        "validate_bad",
        home.run(&["job", "validate", "-f", "good.yml", "--set", "limits.timeout=soon"])
    );
    assert_snapshot!("bad_yaml", home.run(&["compute", "create", "-f", "broken.yml"]));
    assert_snapshot!("bad_no_file", home.run(&["job", "create", "-f", "nowhere.yml"]));
    assert_snapshot!("bad_no_code", home.run(&["job", "create", "-f", "code.yml"]));
}

#[test]
fn without_a_server_the_way_to_start_one_is_named() {
    let home = Home::new();
    home.write("cluster.yml", "name: cpu-cluster\ntype: amlcompute\n");
    assert_snapshot!("no_server", home.run(&["compute", "create", "-f", "cluster.yml"]));
    assert_snapshot!("no_server_env", home.run(&["env"]));
    assert_snapshot!("no_server_down", home.run(&["down"]));
    let seen = home.run(&["status", "--data", "elsewhere"]);
    assert!(seen.starts_with("exit: 4") && seen.contains("elsewhere has no client.json"), "{seen}");
}

/// A certificate that nothing here trusts anything with; it only has to be one.
const SOME_CA: &str = include_str!("ca.pem");

fn client_json(home: &Home, url: &str) -> String {
    format!(
        "{{\"url\":\"{url}\",\"ca_bundle\":\"{}/d/ca.pem\",\"identity_secret\":\"it's\",\"subscription_id\":\"s-1\",\
         \"resource_group\":\"neap\",\"workspace\":\"default\"}}",
        home.path().display()
    )
}

#[test]
fn a_server_that_does_not_answer_is_exit_4() {
    let home = Home::new();
    home.write("d/ca.pem", SOME_CA);
    // Port 1 is nobody's; the connection is refused at once.
    home.write("d/client.json", &client_json(&home, "https://127.0.0.1:1"));
    assert_snapshot!("no_answer", home.run(&["compute", "list", "--data", "d"]));
}

#[test]
fn env_prints_what_the_sdk_needs() {
    let home = Home::new();
    home.write("d/client.json", &client_json(&home, "https://127.0.0.1:8443"));
    assert_snapshot!("env_sh", home.run(&["env", "--data", "d"]));
    assert_snapshot!("env_dotenv", home.run(&["env", "--data", "d", "--format", "dotenv"]));
    assert_snapshot!("env_json", home.run(&["env", "--data", "d", "--format", "json"]));
    home.write("d/client.json", "{");
    assert_snapshot!("env_damaged", home.run(&["env", "--data", "d"]));
}

#[test]
fn defaults_are_stored_and_shown() {
    let home = Home::new();
    assert_snapshot!("configure_wrong", home.run(&["configure", "--defaults", "grop=x", "colour"]));
    assert_snapshot!(
        "configure",
        home.run(&["configure", "--defaults", "group=lab", "workspace=vision", "output=table"])
    );
    assert_snapshot!("configure_list", home.run(&["configure", "--list-defaults"]));
    home.run(&["configure", "--defaults", "workspace="]);
    assert_snapshot!("configure_list_tsv", home.run(&["configure", "-l", "-o", "tsv"]));
    assert_snapshot!("configure_bad_output", home.run(&["configure", "--defaults", "output=xml"]));
}

#[test]
fn completions_know_the_commands() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let seen = home.run(&["completion", shell]);
        assert!(seen.starts_with("exit: 0") && seen.contains("list-nodes"), "{shell}");
    }
    assert_snapshot!("version", home.run(&["version"]).replace(env!("CARGO_PKG_VERSION"), "[VERSION]"));
}

#[test]
fn a_password_on_the_command_line_is_warned_of_and_never_shown() {
    let home = Home::new();
    let flags = ["compute", "create", "-n", "c1", "-t", "amlcompute", "--admin-username", "u"];
    let seen = home.run(&[&flags[..], &["--admin-password", "s3cret", "--debug"]].concat());
    assert!(seen.contains("warning: a password given as a flag") && !seen.contains("s3cret"), "{seen}");
    let mut command = home.neap(&flags);
    command.env("NEAP_ADMIN_PASSWORD", "s3cret");
    let seen = home.seen(command);
    assert!(!seen.contains("warning") && !seen.contains("s3cret"), "{seen}");
}
