//! Conversations as data: what goes in, what must come out.

use neap_protocol::{BlobFolder, Isolation, Limits};

use super::*;

const A: AttemptRef = AttemptRef { job: 1, attempt: 1 };

fn spec() -> Box<AttemptSpec> {
    Box::new(AttemptSpec {
        job_name: "j".into(),
        experiment: "e".into(),
        command: "true".into(),
        environment_variables: BTreeMap::new(),
        code: None,
        inputs: BTreeMap::new(),
        outputs: BTreeMap::new(),
        artifacts: BlobFolder::default(),
        timeout_ms: None,
        limits: Limits::default(),
        isolation: Isolation::Off,
        image: None,
        packages: None,
        environment: Default::default(),
        container: Default::default(),
        log_bytes_max: 1000,
        preamble: vec![],
        ranks: None,
        distribution: None,
        tracking: None,
        services: Vec::new(),
        checkpoint: None,
        count_bytes: false,
        disk: Default::default(),
        masked: Vec::new(),
    })
}

struct Talk {
    session: Session,
    now_ms: u64,
}

impl Talk {
    fn new() -> Self {
        Self { session: Session::new(7, NodeFacts::default(), 0), now_ms: 0 }
    }

    fn welcomed() -> Self {
        let mut talk = Self::new();
        talk.say(Input::Connected);
        talk.say(Input::Down(Down::Welcome {
            lease_ttl_ms: 10_000,
            heartbeat_ms: 500,
            url_pass: Secret::default(),
        }));
        talk
    }

    fn say(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.session.step(self.now_ms, input, &mut out);
        out
    }

    fn at(&mut self, now_ms: u64, input: Input) -> Vec<Output> {
        self.now_ms = now_ms;
        self.say(input)
    }

    fn run_one(&mut self, log_bytes: u64) {
        self.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
        self.say(Input::Started { attempt: A, properties: BTreeMap::new() });
        self.say(Input::Ended { attempt: A, exit: Exit::Success, log_bytes });
    }
}

fn report(number: u64, body: Report) -> Output {
    Output::Send(Up::Report { attempt: A, number, body })
}

fn started() -> Report {
    Report::Started { properties: BTreeMap::new() }
}

fn ended() -> Report {
    Report::Ended { exit: Exit::Success }
}

fn ship(offset: u64, bytes: usize, last: bool) -> Output {
    Output::ShipLog { attempt: A, offset, bytes, last }
}

#[test]
fn a_short_attempt_from_start_to_discard() {
    let mut talk = Talk::welcomed();
    let start = || Input::Down(Down::Start { attempt: A, spec: spec() });
    assert_eq!(talk.say(start()), [Output::Launch { attempt: A, spec: spec() }]);
    assert_eq!(talk.say(start()), [], "a second start of a known attempt is ignored");
    assert_eq!(talk.say(Input::Started { attempt: A, properties: BTreeMap::new() }), [report(1, started())]);
    assert_eq!(talk.say(Input::LogGrew { attempt: A, bytes: 5 }), [ship(0, 5, false)]);
    assert_eq!(
        talk.say(Input::Ended { attempt: A, exit: Exit::Success, log_bytes: 8 }),
        [ship(5, 3, true), report(2, ended())]
    );
    assert_eq!(talk.say(Input::Down(Down::ReportAcknowledged { attempt: A, number: 2 })), []);
    assert_eq!(
        talk.say(Input::Down(Down::LogAcknowledged { attempt: A, offset: 8 })),
        [Output::Discard { attempt: A }]
    );
    assert_eq!(talk.say(start()).len(), 1, "once discarded it is unknown again");
}

#[test]
fn an_empty_log_still_has_a_last_chunk() {
    let mut talk = Talk::welcomed();
    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    assert_eq!(
        talk.say(Input::Ended { attempt: A, exit: Exit::Success, log_bytes: 0 }),
        [ship(0, 0, true), report(1, ended())]
    );
    assert_eq!(
        talk.say(Input::Down(Down::ReportAcknowledged { attempt: A, number: 1 })),
        [Output::Discard { attempt: A }]
    );
}

#[test]
fn what_was_not_acknowledged_is_sent_again_after_a_reconnect() {
    let mut talk = Talk::welcomed();
    talk.run_one(10);
    talk.say(Input::Down(Down::ReportAcknowledged { attempt: A, number: 1 }));
    talk.say(Input::Down(Down::LogAcknowledged { attempt: A, offset: 4 }));
    talk.say(Input::Disconnected);
    let hello = talk.say(Input::Connected);
    let [Output::Send(Up::Hello { attempts, .. })] = hello.as_slice() else { panic!("{hello:?}") };
    assert_eq!(attempts, &[KnownAttempt { attempt: A, last_report: 2, running: false }]);
    let welcome = Down::Welcome { lease_ttl_ms: 10_000, heartbeat_ms: 500, url_pass: Secret::default() };
    assert_eq!(talk.say(Input::Down(welcome))[1..], [ship(4, 6, true), report(2, ended())]);
}

#[test]
fn what_happens_while_disconnected_is_told_later() {
    let mut talk = Talk::welcomed();
    talk.say(Input::Disconnected);
    talk.session.attempts.insert(A, Attempt::default());
    assert_eq!(talk.say(Input::Started { attempt: A, properties: BTreeMap::new() }), []);
    assert_eq!(talk.say(Input::Ended { attempt: A, exit: Exit::Success, log_bytes: 1 }), []);
    talk.say(Input::Connected);
    let welcome = Down::Welcome { lease_ttl_ms: 10_000, heartbeat_ms: 500, url_pass: Secret::default() };
    assert_eq!(
        talk.say(Input::Down(welcome))[1..],
        [report(1, started()), ship(0, 1, true), report(2, ended())]
    );
}

#[test]
fn the_window_bounds_what_is_under_way() {
    let mut talk = Talk::welcomed();
    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    let total = LOG_WINDOW_BYTES + 10;
    let sent = talk.say(Input::LogGrew { attempt: A, bytes: total });
    let chunks = LOG_WINDOW_BYTES as usize / LOG_CHUNK_BYTES_MAX;
    assert_eq!(sent.len(), chunks);
    assert_eq!(
        talk.say(Input::Ended { attempt: A, exit: Exit::Success, log_bytes: total }),
        [],
        "the end waits"
    );
    assert_eq!(
        talk.say(Input::Down(Down::LogAcknowledged { attempt: A, offset: 10 })),
        [ship(LOG_WINDOW_BYTES, 10, true), report(1, ended())]
    );
}

#[test]
fn the_lease_counts_from_when_the_renewal_was_sent() {
    let mut talk = Talk::welcomed();
    assert_eq!(talk.session.lease_until_ms, 10_000);
    assert_eq!(talk.at(500, Input::Timer), [Output::Send(Up::Heartbeat { sent_boot_ms: 500 })]);
    assert_eq!(
        talk.at(
            900,
            Input::Down(Down::LeaseRenewed {
                sent_boot_ms: 500,
                heartbeat_ms: 0,
                url_pass: Secret::default()
            })
        ),
        [Output::Lease { until_boot_ms: 10_500 }]
    );
    assert_eq!(talk.session.wake_at_ms(), 1000);
    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    talk.say(Input::Disconnected);
    assert_eq!(talk.at(10_499, Input::Timer), []);
    assert_eq!(
        talk.at(10_500, Input::Timer),
        [Output::Stop { attempt: A, grace_ms: 0, why: StopWhy::End }, Output::Exit(ExitReason::LeaseLost)]
    );
    assert_eq!(talk.at(10_501, Input::Timer), [], "over is over");
}

#[test]
fn the_server_says_how_often_heartbeats_are_sent() {
    let mut talk = Talk::welcomed();
    assert_eq!(talk.at(500, Input::Timer), [Output::Send(Up::Heartbeat { sent_boot_ms: 500 })]);
    talk.at(
        520,
        Input::Down(Down::LeaseRenewed {
            sent_boot_ms: 500,
            heartbeat_ms: 2_500,
            url_pass: Secret::default(),
        }),
    );
    assert_eq!(talk.session.wake_at_ms(), 1_000, "slower after the next");
    assert_eq!(talk.at(1_000, Input::Timer), [Output::Send(Up::Heartbeat { sent_boot_ms: 1_000 })]);
    assert_eq!(talk.session.wake_at_ms(), 3_500);
    talk.at(
        1_020,
        Input::Down(Down::LeaseRenewed {
            sent_boot_ms: 1_000,
            heartbeat_ms: 400,
            url_pass: Secret::default(),
        }),
    );
    assert_eq!(talk.session.wake_at_ms(), 1_420, "faster at once");
    assert_eq!(talk.at(1_420, Input::Timer), [Output::Send(Up::Heartbeat { sent_boot_ms: 1_420 })]);
    talk.at(
        1_430,
        Input::Down(Down::LeaseRenewed { sent_boot_ms: 1_420, heartbeat_ms: 0, url_pass: Secret::default() }),
    );
    assert_eq!(talk.session.wake_at_ms(), 1_820, "as before");
}

#[test]
fn a_silent_connection_is_dialled_again() {
    let mut talk = Talk::welcomed();
    for beat in 1..=4 {
        assert_eq!(talk.at(beat * 500, Input::Timer).len(), 1);
    }
    assert_eq!(talk.at(2500, Input::Timer), [Output::Reconnect]);
    assert_eq!(talk.session.wake_at_ms(), 10_000);
}

#[test]
fn a_node_that_is_never_welcomed_ends() {
    let mut talk = Talk::new();
    assert_eq!(talk.session.wake_at_ms(), JOIN_MS_MAX);
    assert_eq!(talk.at(JOIN_MS_MAX, Input::Timer), [Output::Exit(ExitReason::NeverWelcomed)]);
}

#[test]
fn stop_forget_refused_and_leave() {
    let stop = |grace_ms| Input::Down(Down::Stop { attempt: A, grace_ms, why: StopWhy::Preempt });
    let mut talk = Talk::welcomed();
    assert_eq!(talk.say(stop(9)), [report(1, Report::Ended { exit: Exit::Stopped })], "unknown");
    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    assert_eq!(talk.say(stop(9)), [Output::Stop { attempt: A, grace_ms: 9, why: StopWhy::Preempt }]);
    talk.say(Input::Ended { attempt: A, exit: Exit::Success, log_bytes: 0 });
    assert_eq!(talk.say(stop(9)), [report(1, ended())], "already ended: its last report again");

    assert_eq!(talk.say(Input::Down(Down::Forget { attempt: A })), [Output::Discard { attempt: A }]);
    assert_eq!(talk.say(Input::Started { attempt: A, properties: BTreeMap::new() }), [], "reports nothing");

    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    assert_eq!(
        talk.say(Input::Down(Down::Leave { grace_ms: 50 })),
        [Output::Stop { attempt: A, grace_ms: 50, why: StopWhy::End }]
    );
    let other = AttemptRef { job: 2, attempt: 1 };
    assert_eq!(talk.say(Input::Down(Down::Start { attempt: other, spec: spec() })), [], "nothing new");
    talk.say(Input::Ended { attempt: A, exit: Exit::Stopped, log_bytes: 0 });
    assert_eq!(
        talk.say(Input::Down(Down::ReportAcknowledged { attempt: A, number: 1 })),
        [Output::Discard { attempt: A }, Output::Exit(ExitReason::Left)]
    );

    let mut talk = Talk::welcomed();
    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    assert_eq!(
        talk.say(Input::Down(Down::Refused { reason: "gone".into() })),
        [
            Output::Stop { attempt: A, grace_ms: 0, why: StopWhy::End },
            Output::Exit(ExitReason::Refused("gone".into()))
        ]
    );
}

#[test]
fn an_unacknowledged_leave_has_an_end() {
    let mut talk = Talk::welcomed();
    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    talk.say(Input::Down(Down::Welcome {
        lease_ttl_ms: 1_000_000,
        heartbeat_ms: 500_000,
        url_pass: Secret::default(),
    }));
    talk.say(Input::Down(Down::Leave { grace_ms: 50 }));
    let by = 50 + LEAVE_MARGIN_MS;
    assert_eq!(talk.at(by - 1, Input::Timer), []);
    assert_eq!(talk.at(by, Input::Timer).last(), Some(&Output::Exit(ExitReason::Left)));
}

#[test]
fn a_full_disk_and_a_closed_store_are_told_apart_from_missing_data() {
    for (message, expect) in [
        ("input x: fetching a/b: the server answered 404 Not Found", FailureClass::InputData),
        (
            "input x: listing a/: the server answered 403 Forbidden <Code>AuthorizationFailure</Code>",
            FailureClass::Identity,
        ),
        ("input x: writing /w/x: No space left on device (os error 28)", FailureClass::Capacity),
    ] {
        let Exit::PrepareFailed { class, .. } = prepare_failed(FailureClass::InputData, message) else {
            panic!("{message}");
        };
        assert_eq!(class, expect, "{message}");
    }
}

#[test]
fn services_are_told_at_each_change_and_after_each_welcome() {
    use neap_protocol::ServiceStatus;
    let state = |status| ServiceState {
        name: "lab".into(),
        status,
        port: None,
        message: None,
        whole_path: false,
        user: None,
        host_key: None,
    };
    let told = |status| Output::Send(Up::Services { attempt: A, services: vec![state(status)] });
    let change = |status| Input::Services { attempt: A, services: vec![state(status)] };
    let mut talk = Talk::welcomed();
    assert_eq!(talk.say(change(ServiceStatus::Starting)), [], "of an attempt that nobody knows");
    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    assert_eq!(talk.say(change(ServiceStatus::Starting)), [told(ServiceStatus::Starting)]);
    talk.say(Input::Disconnected);
    assert_eq!(talk.say(change(ServiceStatus::Running)), [], "nobody is there to hear it");
    talk.say(Input::Connected);
    let welcome = talk.say(Input::Down(Down::Welcome {
        lease_ttl_ms: 10_000,
        heartbeat_ms: 500,
        url_pass: Secret::default(),
    }));
    assert!(welcome.contains(&told(ServiceStatus::Running)), "{welcome:?}");
}

#[test]
fn streams_are_opened_to_attempts_that_run() {
    let ask = || {
        let stream = Secret::new("s");
        Input::Down(Down::OpenStream { stream, attempt: A, service: "lab".into() })
    };
    let is_refused = |out: &[Output]| matches!(out, [Output::Send(Up::StreamFailed { .. })]);
    let mut talk = Talk::welcomed();
    assert!(is_refused(&talk.say(ask())));
    talk.say(Input::Down(Down::Start { attempt: A, spec: spec() }));
    let open = Output::OpenStream { attempt: A, stream: Secret::new("s"), service: "lab".into() };
    assert_eq!(talk.say(ask()), [open]);
    talk.say(Input::Started { attempt: A, properties: BTreeMap::new() });
    talk.say(Input::Ended { attempt: A, exit: Exit::Success, log_bytes: 0 });
    assert!(is_refused(&talk.say(ask())));
}
