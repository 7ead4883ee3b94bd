//! A real agent against a small control plane and blob store made here: the same program, run with `agent`.

mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use neap_protocol::{
    CheckpointRecord, CheckpointSpec, Down, Exit, How, Input, Isolation, Keep, Output, Report, Secret,
    StopWhy, Up,
};
use world::{Heard, World, attempt, found, wait_until};

type Test = fn(&tokio::runtime::Runtime);

const TESTS: &[(&str, Test)] = &[
    ("a_job_goes_all_the_way", |rt| rt.block_on(a_job_goes_all_the_way())),
    ("small_jobs_need_no_blobs", |rt| rt.block_on(small_jobs_need_no_blobs())),
    ("reports_survive_a_lost_connection", |rt| rt.block_on(reports_survive_a_lost_connection())),
    ("stop_forget_and_refused", |rt| rt.block_on(stop_forget_and_refused())),
    ("the_lease_ends_node_and_attempt", |rt| rt.block_on(the_lease_ends_node_and_attempt())),
    ("nothing_is_left_to_the_next", |rt| rt.block_on(nothing_is_left_to_the_next())),
    ("large_files_are_stored_in_blocks", |rt| rt.block_on(large_files_are_stored_in_blocks())),
    ("what_is_kept_comes_back", |rt| rt.block_on(what_is_kept_comes_back())),
    ("what_is_kept_while_it_runs_is_of_one_moment", |rt| {
        rt.block_on(what_is_kept_while_it_runs_is_of_one_moment());
    }),
    ("an_expired_pass_is_waited_out", |rt| rt.block_on(an_expired_pass_is_waited_out())),
    ("a_certificate_is_renewed", |rt| rt.block_on(a_certificate_is_renewed())),
    ("what_cannot_be_prepared_says_why", |rt| rt.block_on(what_cannot_be_prepared_says_why())),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, dir] = args.as_slice()
        && word == "agent"
    {
        return match neap_agent::main(Path::new(dir)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => panic!("{e}"),
        };
    }
    #[allow(clippy::print_stdout, reason = "a test harness lists its tests")]
    if args.iter().any(|a| a == "--list") {
        for (name, _) in TESTS.iter().filter(|_| !args.iter().any(|a| a == "--ignored")) {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let wanted: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    for (name, test) in TESTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| name == w))
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        test(&runtime);
        #[allow(clippy::print_stdout, reason = "as above")]
        {
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

async fn a_job_goes_all_the_way() {
    for isolation in [Isolation::Full, Isolation::Off] {
        let mut world = World::new().await;
        world.put("code/main.sh", "cat sub/part & wait; cat $AZURE_ML_INPUT_data/x; ls");
        world.put("code/sub/part", "code\n");
        world.put("data/set/x", "data\n");
        world.put("data/one file & more.txt", "single\n");
        let mut spec = world.spec(
            "bash main.sh; cat '${{inputs.file}}'; echo lr ${{inputs.lr}} $[[no ${{inputs.absent}}]] $MINE $AZUREML_RUN_ID; \
             echo model > ${{outputs.model}}/m; echo solo > ${{outputs.solo}}; mkdir outputs/deep; echo a > outputs/deep/a; \
             ln -s deep/a outputs/link; ln -s /etc/shadow outputs/escape; echo l > logs/l; \
             python -c 'import sys; print(sys.prefix != sys.base_prefix)'; pip --version | cut -c1-4; echo >> /dev/stdout",
            isolation,
        );
        spec.code = Some(world.folder("code/"));
        spec.inputs = BTreeMap::from([
            ("data".into(), Input::Folder { at: world.folder("data/set/"), how: How::ReadOnly }),
            ("file".into(), Input::File { at: world.folder("data/one file & more.txt"), how: How::Copy }),
            ("lr".into(), Input::Literal { value: "0.1".into() }),
        ]);
        spec.outputs = BTreeMap::from([
            ("model".into(), Output::Folder { at: world.folder("named/model/"), keep: Keep::default() }),
            ("solo".into(), Output::File { at: world.folder("named/solo.txt"), keep: Keep::default() }),
        ]);
        spec.preamble = vec!["first line".into()];
        spec.environment = neap_protocol::Environment::Image { image: "img:1".into(), packages: None };
        let mut wire = world.welcome(60_000).await;
        let one = attempt(1);
        wire.send(&Down::Start { attempt: one, spec: Box::new(spec) }).await;
        let mut heard = Heard::default();
        world.hear(&mut wire, &mut heard, |heard| heard.exit(one).is_some()).await;
        let text = heard.text(one);
        assert_eq!(heard.exit(one), Some(&Exit::Success), "{text}\n{}", world.log());
        let mut lines = text.lines();
        assert!(lines.next().unwrap().contains("image img:1 is not used"), "{text}");
        assert_eq!(lines.next(), Some("first line"));
        let rest: Vec<&str> = lines.collect();
        let expect =
            ["code", "data", "logs", "main.sh", "outputs", "sub", "single", "lr 0.1 42 clever_name_1"];
        assert_eq!(rest[..8], expect, "{text}");
        assert_eq!(rest[8..], ["True", "pip ", ""], "{text}");
        for (blob, content) in [
            ("named/model/m", "model\n"),
            ("named/solo.txt", "solo\n"),
            ("artifacts/outputs/deep/a", "a\n"),
            ("artifacts/outputs/link", "a\n"),
            ("artifacts/logs/l", "l\n"),
        ] {
            assert_eq!(world.blob(blob), content);
        }
        assert!(!world.blobs.lock().unwrap().contains_key("artifacts/outputs/escape"));
        let kinds: Vec<&Report> = heard.reports.iter().map(|(_, _, body)| body).collect();
        assert!(
            matches!(kinds[..], [Report::Started { .. }, Report::Finalizing, Report::Ended { .. }]),
            "{kinds:?}"
        );
        wait_until("its folder is deleted", || found(&world, "main.sh").is_empty()).await;
        wire.send(&Down::Leave { grace_ms: 0 }).await;
        assert_eq!(world.exit_of_agent(), 0, "{}", world.log());
    }
}

async fn small_jobs_need_no_blobs() {
    let world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    let mut heard = Heard::default();
    for job in 1..=20 {
        let isolation = if job % 2 == 0 { Isolation::Off } else { Isolation::Full };
        let mut spec = world.spec(&format!("exit $(( {job} % 3 ))"), isolation);
        // Nobody answers there: a request would fail the job.
        spec.artifacts.container_url = "https://localhost:1/none".into();
        wire.send(&Down::Start { attempt: attempt(job), spec: Box::new(spec) }).await;
    }
    world.hear(&mut wire, &mut heard, |heard| (1..=20).all(|job| heard.exit(attempt(job)).is_some())).await;
    for job in 1..=20 {
        let expect = match job % 3 {
            0 => Exit::Success,
            code => Exit::Code { code: code as i32 },
        };
        assert_eq!(heard.exit(attempt(job)), Some(&expect), "{job}: {}", heard.text(attempt(job)));
    }
}

async fn reports_survive_a_lost_connection() {
    let world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    let go = world.dir.path().join("go");
    let command = format!("echo before; while [ ! -e {} ]; do sleep 0.01; done; echo after", go.display());
    wire.send(&Down::Start { attempt: attempt(1), spec: Box::new(world.spec(&command, Isolation::Off)) })
        .await;
    let mut heard = Heard::default();
    world.hear(&mut wire, &mut heard, |heard| heard.text(attempt(1)) == "before\n").await;
    drop(wire);
    std::fs::write(&go, "").unwrap();
    let after =
        |log: &std::path::PathBuf| std::fs::read_to_string(log).is_ok_and(|log| log.contains("after"));
    wait_until("it ends while nobody listens", || found(&world, "log").iter().any(after)).await;
    let mut wire = world.accept().await;
    let Up::Hello { attempts, .. } = wire.message().await else { panic!("no hello") };
    assert_eq!(attempts.iter().map(|known| known.attempt).collect::<Vec<_>>(), [attempt(1)]);
    wire.send(&Down::Welcome { lease_ttl_ms: 60_000, heartbeat_ms: 200, url_pass: Secret::default() }).await;
    world.hear(&mut wire, &mut heard, |heard| heard.exit(attempt(1)).is_some()).await;
    assert_eq!(heard.text(attempt(1)), "before\nafter\n");
    assert_eq!(heard.exit(attempt(1)), Some(&Exit::Success));
}

async fn stop_forget_and_refused() {
    let mut world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    let mut heard = Heard::default();
    for (job, isolation) in [(1, Isolation::Full), (2, Isolation::Full), (3, Isolation::Off)] {
        let mut spec = world
            .spec("touch mine-$MINE; trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait", isolation);
        spec.environment_variables.insert("MINE".into(), job.to_string());
        wire.send(&Down::Start { attempt: attempt(job), spec: Box::new(spec) }).await;
    }
    world.hear(&mut wire, &mut heard, |heard| (1..=3).all(|job| heard.text(attempt(job)) == "up\n")).await;
    wire.send(&Down::Stop { attempt: attempt(1), grace_ms: 30_000, why: StopWhy::End }).await;
    wire.send(&Down::Forget { attempt: attempt(2) }).await;
    wire.send(&Down::Stop { attempt: attempt(9), grace_ms: 0, why: StopWhy::End }).await;
    world
        .hear(&mut wire, &mut heard, |heard| [1, 9].iter().all(|job| heard.exit(attempt(*job)).is_some()))
        .await;
    assert_eq!(heard.exit(attempt(1)), Some(&Exit::Stopped));
    assert_eq!(heard.text(attempt(1)), "up\nbye\n");
    assert_eq!(heard.exit(attempt(9)), Some(&Exit::Stopped), "one it never knew");
    wait_until("the forgotten attempt's folder is deleted", || found(&world, "mine-2").is_empty()).await;
    assert_eq!(found(&world, "mine-3").len(), 1, "the other one's is there");
    assert_eq!(heard.exit(attempt(2)), None);
    wire.send(&Down::Refused { reason: "the node is gone".into() }).await;
    assert_eq!(world.exit_of_agent(), 0);
    assert!(world.log().contains("the node is gone"), "{}", world.log());
}

async fn the_lease_ends_node_and_attempt() {
    let mut world = World::new().await;
    let mut wire = world.welcome(1500).await;
    let mut heard = Heard::default();
    wire.send(&Down::Start {
        attempt: attempt(1),
        spec: Box::new(world.spec("echo up; sleep 1000", Isolation::Full)),
    })
    .await;
    world.hear(&mut wire, &mut heard, |heard| heard.text(attempt(1)) == "up\n").await;
    // Not one heartbeat is answered any more.
    assert_eq!(world.exit_of_agent(), 0);
    assert!(world.log().contains("LeaseLost"), "{}", world.log());
}

async fn what_cannot_be_prepared_says_why() {
    let world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    let mut heard = Heard::default();
    let mut spec = world.spec("true", Isolation::Full);
    spec.inputs = BTreeMap::from([(
        "data".into(),
        Input::Folder { at: world.folder("nothing/here/"), how: How::Copy },
    )]);
    wire.send(&Down::Start { attempt: attempt(1), spec: Box::new(spec) }).await;
    let spec = world.spec("echo ${{inputs.gone}}", Isolation::Full);
    wire.send(&Down::Start { attempt: attempt(2), spec: Box::new(spec) }).await;
    world.hear(&mut wire, &mut heard, |heard| (1..=2).all(|job| heard.exit(attempt(job)).is_some())).await;
    for (job, part) in [(1, "input data: there is nothing at nothing/here/"), (2, "${{inputs.gone}}")] {
        let Some(Exit::PrepareFailed { message, .. }) = heard.exit(attempt(job)) else { panic!("{heard:?}") };
        assert!(message.contains(part), "{message}");
        assert!(heard.text(attempt(job)).contains(part), "the log says it too");
    }
}

/// Attempts one after the other on one node, with and without isolation: what each finds, whatever the others did.
async fn nothing_is_left_to_the_next() {
    let world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    let mut heard = Heard::default();
    let look = "stat -c '%a %F' . .. outputs logs $TMPDIR $VIRTUAL_ENV $VIRTUAL_ENV/bin; \
                find . .. $TMPDIR $VIRTUAL_ENV -mindepth 1 | sed 's:.*/attempts/[0-9]*/::' | sort; cat $VIRTUAL_ENV/bin/pip";
    let dirty = [
        "echo x > left; mkdir -p outputs/deep; echo o > outputs/deep/o",
        "echo x > $TMPDIR/left",
        "rm -r logs; ln -s /etc logs",
        "chmod 777 . $TMPDIR",
        "printf '#!/bin/sh' > $VIRTUAL_ENV/bin/left; mkdir -p $VIRTUAL_ENV/lib/left",
        "cd $VIRTUAL_ENV/bin; rm pip; echo echo bad > pip",
        "mkfifo left; rmdir ../wd/outputs",
        "seq 100000",
        "echo a short line",
        "true",
        "kill -9 $$",
    ];
    let mut job = 0;
    for isolation in [Isolation::Full, Isolation::Off] {
        let mut clean = None;
        for command in ["true", "true", "true"].iter().chain(&dirty) {
            for command in [command, look] {
                job += 1;
                let one = attempt(job);
                let spec = world.spec(command, isolation);
                wire.send(&Down::Start { attempt: one, spec: Box::new(spec) }).await;
                world.hear(&mut wire, &mut heard, |heard| heard.exit(one).is_some()).await;
            }
            let seen = heard.text(attempt(job));
            assert_eq!(heard.exit(attempt(job)), Some(&Exit::Success), "{seen}");
            assert!(seen.contains("bin/python3") && !seen.contains("left"), "{seen}");
            assert_eq!(&seen, clean.get_or_insert(seen.clone()), "after {command}, {isolation:?}");
        }
    }
    // Attempts that leave nothing take each other's place.
    let folders = || std::fs::read_dir(world.dir.path().join("node/attempts")).unwrap().count();
    let before = folders();
    for _ in 0..30 {
        job += 1;
        let one = attempt(job);
        wire.send(&Down::Start { attempt: one, spec: Box::new(world.spec("true", Isolation::Off)) }).await;
        world.hear(&mut wire, &mut heard, |heard| heard.exit(one).is_some()).await;
    }
    assert!(folders() <= before + 4, "{} folders, before {before}", folders());
}

async fn large_files_are_stored_in_blocks() {
    let world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    let mut heard = Heard::default();
    let command =
        "seq 1 2500000 > outputs/many; head -c 8388608 /dev/zero > outputs/exact; printf '' > outputs/none";
    let one = attempt(1);
    wire.send(&Down::Start { attempt: one, spec: Box::new(world.spec(command, Isolation::Full)) }).await;
    world.hear(&mut wire, &mut heard, |heard| heard.exit(one).is_some()).await;
    assert_eq!(heard.exit(one), Some(&Exit::Success), "{}\n{}", heard.text(one), world.log());
    let many: String = (1..=2_500_000).map(|n| format!("{n}\n")).collect();
    assert!(many.len() > 2 * 8 * 1024 * 1024);
    assert!(world.blob("artifacts/outputs/many") == many, "every byte is there, in its place");
    assert!(world.blob("artifacts/outputs/exact") == "\0".repeat(8 * 1024 * 1024));
    assert_eq!(world.blob("artifacts/outputs/none"), "");
    let left: Vec<String> =
        world.blobs.lock().unwrap().keys().filter(|name| name.contains(" block ")).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn kept_at(world: &World, prefix: &str, restore: bool, interval_ms: u64) -> Option<CheckpointSpec> {
    Some(CheckpointSpec { at: world.folder(prefix), restore, interval_ms, after_failure: false })
}

fn record(world: &World, prefix: &str) -> Option<CheckpointRecord> {
    let blobs = world.blobs.lock().unwrap();
    blobs.get(&format!("{prefix}current.json")).map(|text| serde_json::from_slice(text).unwrap())
}

async fn what_is_kept_comes_back() {
    for (isolation, prefix) in [(Isolation::Full, "full/"), (Isolation::Off, "off/")] {
        let world = World::new().await;
        let mut wire = world.welcome(60_000).await;
        let mut heard = Heard::default();
        let first = attempt(1);
        let command = "f=$AZUREML_CHECKPOINT_DIR; mkdir -p $f/a/empty; echo one > $f/a/x; ln -s a/x $f/latest; \
                       chmod 640 $f/a/x; echo o > outputs/o; echo n > $AZURE_ML_OUTPUT_named/n; \
                       trap 'ls $NEAP_PREEMPTION_FILE >/dev/null && echo warned; echo two >> $f/a/x; exit 0' TERM; \
                       echo up; while :; do sleep 0.05; done";
        let mut spec = world.spec(command, isolation);
        spec.checkpoint = kept_at(&world, prefix, false, 0);
        let named = Output::Folder { at: world.folder("named/"), keep: Keep::default() };
        spec.outputs = BTreeMap::from([("named".to_owned(), named)]);
        wire.send(&Down::Start { attempt: first, spec: Box::new(spec.clone()) }).await;
        world.hear(&mut wire, &mut heard, |heard| heard.text(first).contains("up\n")).await;
        assert_eq!(record(&world, prefix), None);
        wire.send(&Down::Stop { attempt: first, grace_ms: 30_000, why: StopWhy::Preempt }).await;
        world.hear(&mut wire, &mut heard, |heard| heard.exit(first).is_some()).await;
        assert_eq!(heard.exit(first), Some(&Exit::Stopped), "{}", world.log());
        let said = heard.text(first);
        assert!(said.contains("warned\n[neap] Its node is taken back"), "{said}");
        let kept = record(&world, prefix).unwrap();
        assert_eq!((kept.attempt, kept.files.len(), kept.folders.len(), kept.links.len()), (1, 3, 1, 1));
        assert!(kept.lost_ms().is_some_and(|ms| ms < 30_000), "{kept:?}");
        assert_eq!(world.blob("artifacts/outputs/o"), "o\n", "the outputs can be seen");
        assert_eq!(world.blob("named/n"), "n\n");

        let second = neap_protocol::AttemptRef { attempt: 2, ..first };
        spec.command = "f=$AZUREML_CHECKPOINT_DIR; cat $f/latest outputs/o $AZURE_ML_OUTPUT_named/n; \
                        stat -c %a $f/a/x; ls -d $f/a/empty | wc -l; ls $NEAP_PREEMPTION_FILE 2>/dev/null; true"
            .into();
        spec.checkpoint = kept_at(&world, prefix, true, 0);
        wire.send(&Down::Start { attempt: second, spec: Box::new(spec.clone()) }).await;
        world.hear(&mut wire, &mut heard, |heard| heard.exit(second).is_some()).await;
        let said = heard.text(second);
        assert!(
            said.starts_with("[neap] The checkpoint folder and outputs of attempt 1 are here again"),
            "{said}\n{}",
            world.log()
        );
        assert!(said.ends_with("one\ntwo\no\nn\n640\n1\n"), "{said}");

        let content = &kept.files.iter().find(|file| file.name.ends_with("a/x")).unwrap().content;
        world.put(&format!("{prefix}files/{content}"), "other");
        let third = neap_protocol::AttemptRef { attempt: 3, ..first };
        wire.send(&Down::Start { attempt: third, spec: Box::new(spec) }).await;
        world.hear(&mut wire, &mut heard, |heard| heard.exit(third).is_some()).await;
        let Some(Exit::PrepareFailed { message, .. }) = heard.exit(third) else { panic!("it ran on damage") };
        assert!(message.contains("SHA-256"), "{message}");
    }
}

async fn what_is_kept_while_it_runs_is_of_one_moment() {
    let world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    let mut heard = Heard::default();
    let one = attempt(1);
    // Two files that are always written together, and then nothing for longer than a moment.
    let command = "cd $AZUREML_CHECKPOINT_DIR; for i in $(seq 1 1000); do echo $i > a.new; mv a.new a; echo $i > b.new; mv b.new b; \
                   echo $i; sleep 0.7; done";
    let mut spec = world.spec(command, Isolation::Full);
    spec.checkpoint = kept_at(&world, "k/", false, 100);
    wire.send(&Down::Start { attempt: one, spec: Box::new(spec) }).await;
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 3 {
        let before = heard.text(one).len();
        world.hear(&mut wire, &mut heard, |heard| heard.text(one).len() > before).await;
        let Some(kept) = record(&world, "k/") else { continue };
        let names: Vec<&str> = kept.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["checkpoint/a", "checkpoint/b"]);
        assert_eq!(kept.files[0].content, kept.files[1].content, "both are of one moment");
        assert_eq!(kept.ended_unix_ms, None);
        seen.insert(kept.files[0].content.clone());
    }
    wire.send(&Down::Stop { attempt: one, grace_ms: 0, why: StopWhy::End }).await;
    world.hear(&mut wire, &mut heard, |heard| heard.exit(one).is_some()).await;
    let blobs = world.blobs.lock().unwrap();
    let files = blobs.keys().filter(|name| name.starts_with("k/files/")).count();
    assert!(files <= 2, "what is no longer named is deleted: {:?}", blobs.keys());
}

/// URLs need the pass of the last lease renewal. One that has expired by the time it is used costs a retry, no job.
async fn an_expired_pass_is_waited_out() {
    let world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    world.put("code/run.sh", "mkdir -p outputs; echo kept > outputs/f");
    let one = attempt(1);
    let mut spec = world.spec("bash run.sh", Isolation::Off);
    spec.code = Some(world.folder("code/"));
    let mut heard = Heard::default();
    for pass in ["1.first", "2.second"] {
        world.want_pass(pass);
        if pass == "1.first" {
            wire.send(&Down::Start { attempt: one, spec: Box::new(spec.clone()) }).await;
        }
        world.hear(&mut wire, &mut heard, |heard| world.refused_a_pass() || heard.exit(one).is_some()).await;
        assert_eq!(heard.exit(one), None);
        world.blobs.lock().unwrap().remove("@refused");
        let url_pass = Secret::new(pass);
        wire.send(&Down::LeaseRenewed { sent_boot_ms: 0, heartbeat_ms: 0, url_pass }).await;
    }
    world.hear(&mut wire, &mut heard, |heard| heard.exit(one).is_some()).await;
    assert_eq!(heard.exit(one), Some(&Exit::Success), "{}", heard.text(one));
    assert_eq!(world.blob("artifacts/outputs/f"), "kept\n");
}

async fn a_certificate_is_renewed() {
    let world = World::new().await;
    let mut wire = world.welcome_for(60_000, 3).await;
    let files = ["node.pem", "node.key"].map(|name| world.dir.path().join("node").join(name));
    let read = || files.clone().map(|file| std::fs::read_to_string(file).unwrap());
    let before = read();
    let csr_pem = loop {
        match wire.message().await {
            Up::Renew { csr_pem } => break csr_pem,
            Up::Heartbeat { sent_boot_ms } => {
                wire.send(&Down::LeaseRenewed { sent_boot_ms, heartbeat_ms: 0, url_pass: Secret::default() })
                    .await;
            }
            other => panic!("{other:?}"),
        }
    };
    let renewed = world.certify(&csr_pem, 3600);
    wire.send(&renewed).await;
    let Down::Joined { certificate_pem, .. } = renewed else { panic!("{renewed:?}") };
    wait_until("the new certificate is kept", || read()[0] == certificate_pem).await;
    assert_ne!(read()[1], before[1], "with a key of its own");
    drop(wire);
    let mut wire = world.accept().await;
    let Up::Hello { .. } = wire.message().await else { panic!("it joins only once") };
}
