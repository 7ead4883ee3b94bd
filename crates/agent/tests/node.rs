//! A real agent against a small control plane and blob store made here: the same program, run with `agent`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use neap_agent::{NODE_FILE, NodeConfig};
use neap_identity::Authority;
use neap_protocol::{
    ALPN, AttemptRef, AttemptSpec, BlobFolder, Decoder, Down, Exit, Frame, Input, Isolation, Limits,
    LogChunk, Output, Report, Up, encode_message,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

type Blobs = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

const INSTALLATION: &str = "agent-tests";

type Test = fn(&tokio::runtime::Runtime);

const TESTS: &[(&str, Test)] = &[
    ("a_job_goes_all_the_way", |rt| rt.block_on(a_job_goes_all_the_way())),
    ("small_jobs_need_no_blobs", |rt| rt.block_on(small_jobs_need_no_blobs())),
    ("reports_survive_a_lost_connection", |rt| rt.block_on(reports_survive_a_lost_connection())),
    ("stop_forget_and_refused", |rt| rt.block_on(stop_forget_and_refused())),
    ("the_lease_ends_node_and_attempt", |rt| rt.block_on(the_lease_ends_node_and_attempt())),
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

/// The server's side: one port for agents and blobs, as the real one has.
struct World {
    dir: tempfile::TempDir,
    authority: Authority,
    port: u16,
    agents: tokio::sync::Mutex<UnboundedReceiver<Wire>>,
    blobs: Blobs,
    agent: Child,
    node: u64,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now_s = now_s();
        let authority = Authority::open(&dir.path().join("identity"), &[], now_s).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = authority.server();
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(server.chain.clone(), server.key.clone_key())
            .unwrap();
        tls.alpn_protocols = vec![ALPN.to_vec(), b"http/1.1".to_vec()];
        let node = u64::from(std::process::id());
        let node_dir = dir.path().join("node");
        std::fs::create_dir(&node_dir).unwrap();
        let ca_pem_path = dir.path().join("identity/ca.pem");
        let config = NodeConfig {
            node,
            installation: INSTALLATION.into(),
            server: listener.local_addr().unwrap().to_string(),
            server_name: "localhost".into(),
            ca_pem_path,
            join_token: "the token".into(),
            cpus_milli: 1500,
            memory_mb: 500,
            gpus: 0,
            hide_paths: vec![dir.path().into()],
            work_dir: node_dir.clone(),
        };
        std::fs::write(node_dir.join(NODE_FILE), serde_json::to_vec(&config).unwrap()).unwrap();
        let log = std::fs::File::create(node_dir.join("agent.log")).unwrap();
        let agent = Command::new(std::env::current_exe().unwrap())
            .arg("agent")
            .arg(&node_dir)
            .stderr(log)
            .spawn()
            .unwrap();
        let blobs = Blobs::default();
        let (send, agents) = unbounded_channel();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), blobs.clone(), send));
        Self { dir, authority, port, agents: tokio::sync::Mutex::new(agents), blobs, agent, node }
    }

    /// The agent's next connection, after it was welcomed.
    async fn welcome(&self, lease_ttl_ms: u64) -> Wire {
        let mut wire = self.accept().await;
        if let Up::Join { node, token, csr_pem, .. } = wire.message().await {
            assert_eq!((node, token.as_str()), (self.node, "the token"));
            let issued = self.authority.issue_node(&csr_pem, node, 3600, now_s()).unwrap();
            let not_after_unix_s = issued.not_after_s as u64;
            wire.send(&Down::Joined { certificate_pem: issued.cert_pem, not_after_unix_s }).await;
            let Up::Hello { facts, .. } = wire.message().await else { panic!("a hello comes after joining") };
            assert!(facts.cpus_milli <= 1500 && facts.memory_mb <= 500, "{facts:?}");
        }
        wire.send(&Down::Welcome { lease_ttl_ms, heartbeat_ms: 200 }).await;
        wire
    }

    async fn accept(&self) -> Wire {
        self.agents.lock().await.recv().await.unwrap()
    }

    /// Hears the agent out until `done`, and renews its lease.
    async fn hear(&self, wire: &mut Wire, heard: &mut Heard, done: impl Fn(&Heard) -> bool) {
        let limit = tokio::time::sleep(Duration::from_secs(30));
        tokio::pin!(limit);
        while !done(heard) {
            tokio::select! {
                frame = wire.frame() => {
                    let Some(frame) = frame else { panic!("the agent hung up; {heard:?}\n{}", self.log()) };
                    let answer = heard.take(frame);
                    if let Some(answer) = answer {
                        wire.send(&answer).await;
                    }
                }
                () = &mut limit => panic!("not within 30 s; {heard:?}\n{}", self.log()),
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("node/agent.log")).unwrap_or_default()
    }

    fn folder(&self, prefix: &str) -> BlobFolder {
        BlobFolder {
            container_url: format!("https://localhost:{}/acc/box", self.port),
            prefix: prefix.into(),
            sas: "sig=x".into(),
        }
    }

    fn put(&self, name: &str, text: &str) {
        self.blobs.lock().unwrap().insert(name.into(), text.into());
    }

    fn blob(&self, name: &str) -> String {
        let blobs = self.blobs.lock().unwrap();
        let found = blobs.get(name).unwrap_or_else(|| panic!("{name} among {:?}", blobs.keys()));
        String::from_utf8(found.clone()).unwrap()
    }

    fn spec(&self, command: &str, isolation: Isolation) -> AttemptSpec {
        AttemptSpec {
            job_name: "clever_name_1".into(),
            experiment: "exp".into(),
            command: command.into(),
            environment_variables: BTreeMap::from([("MINE".into(), "42".into())]),
            code: None,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            artifacts: self.folder("artifacts/"),
            timeout_ms: None,
            limits: Limits::default(),
            isolation,
            image: None,
            packages: None,
            log_bytes_max: 1 << 20,
            preamble: vec![],
        }
    }

    fn exit_of_agent(&mut self) -> i32 {
        self.agent.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let _ = neap_sandbox::fence_node(INSTALLATION, self.node, &self.dir.path().join("node"));
    }
}

struct Wire {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
    pending: Vec<u8>,
}

impl Wire {
    async fn send(&mut self, down: &Down) {
        self.pending.clear();
        encode_message(down, &mut self.pending);
        self.stream.write_all(&self.pending).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next frame; none when the agent has hung up.
    async fn frame(&mut self) -> Option<Frame<Up>> {
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return Some(frame);
            }
            let mut buffer = vec![0; 65536];
            match self.stream.read(&mut buffer).await {
                Ok(n) if n > 0 => self.decoder.feed(&buffer[..n]),
                Ok(_) | Err(_) => return None,
            }
        }
    }

    async fn message(&mut self) -> Up {
        match self.frame().await {
            Some(Frame::Message(up)) => up,
            other => panic!("{other:?}"),
        }
    }
}

/// Takes connections: agents' go to the test, the others are for blobs.
async fn accept(listener: TcpListener, acceptor: TlsAcceptor, blobs: Blobs, agents: UnboundedSender<Wire>) {
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, blobs, agents) = (acceptor.clone(), blobs.clone(), agents.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(tcp).await else { return };
            if stream.get_ref().1.alpn_protocol() == Some(ALPN) {
                let _ = agents.send(Wire { stream, decoder: Decoder::default(), pending: Vec::new() });
            } else {
                serve_blobs(stream, blobs).await;
            }
        });
    }
}

/// What was heard, with what a control plane answers.
#[derive(Debug, Default)]
struct Heard {
    reports: Vec<(AttemptRef, u64, Report)>,
    log: BTreeMap<AttemptRef, Vec<u8>>,
    complete: Vec<AttemptRef>,
}

impl Heard {
    fn take(&mut self, frame: Frame<Up>) -> Option<Down> {
        match frame {
            Frame::Message(Up::Heartbeat { sent_boot_ms }) => Some(Down::LeaseRenewed { sent_boot_ms }),
            Frame::Message(Up::Report { attempt, number, body }) => {
                if matches!(body, Report::Ended { exit: Exit::Success }) {
                    assert!(self.complete.contains(&attempt), "the end comes after the last of the log");
                }
                self.reports.push((attempt, number, body));
                Some(Down::ReportAcknowledged { attempt, number })
            }
            Frame::Message(other) => panic!("{other:?}"),
            Frame::Log(LogChunk { attempt, offset, last, bytes }) => {
                let log = self.log.entry(attempt).or_default();
                log.truncate(offset as usize);
                assert_eq!(log.len() as u64, offset, "no gap");
                log.extend_from_slice(&bytes);
                if last {
                    self.complete.push(attempt);
                }
                Some(Down::LogAcknowledged { attempt, offset: log.len() as u64 })
            }
        }
    }

    fn text(&self, attempt: AttemptRef) -> String {
        String::from_utf8_lossy(self.log.get(&attempt).map_or(&[], Vec::as_slice)).into_owned()
    }

    fn exit(&self, attempt: AttemptRef) -> Option<&Exit> {
        self.reports.iter().find_map(|(of, _, body)| match body {
            Report::Ended { exit } if *of == attempt => Some(exit),
            _ => None,
        })
    }
}

fn attempt(job: u64) -> AttemptRef {
    AttemptRef { job, attempt: 1 }
}

fn now_s() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

/// Enough of a blob store: list, get, put.
async fn serve_blobs(mut stream: TlsStream<TcpStream>, blobs: Blobs) {
    let mut buffer = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&buffer[..head_end]).to_ascii_lowercase();
        let target = String::from_utf8_lossy(&buffer[..head_end]).split(' ').nth(1).unwrap().to_owned();
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |n| n.trim().parse().unwrap());
        while buffer.len() < head_end + length {
            assert!(stream.read_buf(&mut buffer).await.unwrap() > 0);
        }
        let body = buffer[head_end..head_end + length].to_vec();
        buffer.drain(..head_end + length);
        let decoded = percent_encoding::percent_decode_str(&target).decode_utf8().unwrap().into_owned();
        let (path, query) = decoded.split_once('?').unwrap();
        assert!(query.contains("sig=x"));
        let name = path.trim_start_matches("/acc/box").trim_start_matches('/').to_owned();
        let (status, answer) = if head.starts_with("put") {
            assert!(head.contains("content-md5: ") && head.contains("x-ms-blob-type: blockblob"));
            blobs.lock().unwrap().insert(name, body);
            ("201 Created", Vec::new())
        } else if query.contains("comp=list") {
            let prefix = query.split('&').find_map(|q| q.strip_prefix("prefix=")).unwrap();
            let names: String = blobs
                .lock()
                .unwrap()
                .keys()
                .filter(|name| name.starts_with(prefix))
                .map(|name| format!("<Blob><Name>{}</Name></Blob>", name.replace('&', "&amp;")))
                .collect();
            (
                "200 OK",
                format!("<EnumerationResults><Blobs>{names}</Blobs><NextMarker/></EnumerationResults>")
                    .into(),
            )
        } else {
            match blobs.lock().unwrap().get(&name) {
                Some(found) => ("200 OK", found.clone()),
                None => ("404 Not Found", Vec::new()),
            }
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", answer.len());
        if stream.write_all(&[head.as_bytes(), &answer].concat()).await.is_err()
            || stream.flush().await.is_err()
        {
            return;
        }
    }
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
            ("data".into(), Input::Folder { at: world.folder("data/set/") }),
            ("file".into(), Input::File { at: world.folder("data/one file & more.txt") }),
            ("lr".into(), Input::Literal { value: "0.1".into() }),
        ]);
        spec.outputs = BTreeMap::from([
            ("model".into(), Output::Folder { at: world.folder("named/model/") }),
            ("solo".into(), Output::File { at: world.folder("named/solo.txt") }),
        ]);
        spec.preamble = vec!["first line".into()];
        spec.image = Some("img:1".into());
        let mut wire = world.welcome(60_000).await;
        let one = attempt(1);
        wire.send(&Down::Start { attempt: one, spec: Box::new(spec) }).await;
        let mut heard = Heard::default();
        world.hear(&mut wire, &mut heard, |heard| heard.exit(one).is_some()).await;
        let text = heard.text(one);
        assert_eq!(heard.exit(one), Some(&Exit::Success), "{text}\n{}", world.log());
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("first line"));
        assert!(lines.next().unwrap().contains("image img:1 is not used"), "{text}");
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
        let folder = world.dir.path().join("node/attempts/1.1");
        wait_until("the folder is deleted", || !folder.exists()).await;
        wire.send(&Down::Leave { grace_ms: 0 }).await;
        assert_eq!(world.exit_of_agent(), 0, "{}", world.log());
    }
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..3000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within 30 s");
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
    let exit = world.dir.path().join("node/attempts/1.1/exit.json");
    wait_until("it ends while nobody listens", || exit.exists()).await;
    let mut wire = world.accept().await;
    let Up::Hello { attempts, .. } = wire.message().await else { panic!("no hello") };
    assert_eq!(attempts.iter().map(|known| known.attempt).collect::<Vec<_>>(), [attempt(1)]);
    wire.send(&Down::Welcome { lease_ttl_ms: 60_000, heartbeat_ms: 200 }).await;
    world.hear(&mut wire, &mut heard, |heard| heard.exit(attempt(1)).is_some()).await;
    assert_eq!(heard.text(attempt(1)), "before\nafter\n");
    assert_eq!(heard.exit(attempt(1)), Some(&Exit::Success));
}

async fn stop_forget_and_refused() {
    let mut world = World::new().await;
    let mut wire = world.welcome(60_000).await;
    let mut heard = Heard::default();
    for (job, isolation) in [(1, Isolation::Full), (2, Isolation::Full), (3, Isolation::Off)] {
        let spec = world.spec("trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait", isolation);
        wire.send(&Down::Start { attempt: attempt(job), spec: Box::new(spec) }).await;
    }
    world.hear(&mut wire, &mut heard, |heard| (1..=3).all(|job| heard.text(attempt(job)) == "up\n")).await;
    wire.send(&Down::Stop { attempt: attempt(1), grace_ms: 30_000 }).await;
    wire.send(&Down::Forget { attempt: attempt(2) }).await;
    wire.send(&Down::Stop { attempt: attempt(9), grace_ms: 0 }).await;
    world
        .hear(&mut wire, &mut heard, |heard| [1, 9].iter().all(|job| heard.exit(attempt(*job)).is_some()))
        .await;
    assert_eq!(heard.exit(attempt(1)), Some(&Exit::Stopped));
    assert_eq!(heard.text(attempt(1)), "up\nbye\n");
    assert_eq!(heard.exit(attempt(9)), Some(&Exit::Stopped), "one it never knew");
    let forgotten = world.dir.path().join("node/attempts/2.1");
    wait_until("the forgotten attempt's folder is deleted", || !forgotten.exists()).await;
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
    spec.inputs = BTreeMap::from([("data".into(), Input::Folder { at: world.folder("nothing/here/") })]);
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
