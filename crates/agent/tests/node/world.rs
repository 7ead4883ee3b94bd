//! The server's side of a test: a port for agents and blobs, and what the agent says there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use neap_agent::{NODE_FILE, NodeConfig};
use neap_identity::Authority;
use neap_protocol::{
    ALPN, AttemptRef, AttemptSpec, BlobFolder, Decoder, Down, Exit, Frame, Isolation, Limits, LogChunk,
    Report, Secret, Up, encode_message,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub type Blobs = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

const INSTALLATION: &str = "agent-tests";
/// The pass that every request for blobs must carry, kept among them; and whether one came without it.
const PASS: &str = "@pass";
const REFUSED: &str = "@refused";

/// The server's side: one port for agents and blobs, as the real one has.
pub struct World {
    pub dir: tempfile::TempDir,
    pub authority: Authority,
    pub port: u16,
    pub agents: tokio::sync::Mutex<UnboundedReceiver<Wire>>,
    pub blobs: Blobs,
    pub agent: Child,
    pub node: u64,
}

impl World {
    pub async fn new() -> Self {
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
            url: String::new(),
            isolation_off: false,
            visible_paths: Vec::new(),
            shared_paths: Vec::new(),
            node,
            installation: INSTALLATION.into(),
            server: listener.local_addr().unwrap().to_string(),
            server_name: "localhost".into(),
            ca_pem_path,
            join_token: "the token".into(),
            cpus_milli: 1500,
            memory_mb: 500,
            gpus: 0,
            gpu_devices: Vec::new(),
            hide_paths: vec![dir.path().into()],
            work_dir: node_dir.clone(),
            cache_dir: None,
            engine: neap_agent::EngineSettings { kind: neap_agent::EngineKind::None, socket: None },
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
    pub async fn welcome(&self, lease_ttl_ms: u64) -> Wire {
        self.welcome_for(lease_ttl_ms, 3600).await
    }

    /// The same, with a certificate that lasts this long.
    pub async fn welcome_for(&self, lease_ttl_ms: u64, certificate_s: i64) -> Wire {
        let mut wire = self.accept().await;
        if let Up::Join { node, token, csr_pem, .. } = wire.message().await {
            assert_eq!((node, token.as_str()), (self.node, "the token"));
            wire.send(&self.certify(&csr_pem, certificate_s)).await;
            let Up::Hello { facts, .. } = wire.message().await else { panic!("a hello comes after joining") };
            assert!(facts.cpus_milli <= 1500 && facts.memory_mb <= 500, "{facts:?}");
        }
        wire.send(&Down::Welcome { lease_ttl_ms, heartbeat_ms: 200, url_pass: Secret::default() }).await;
        wire
    }

    pub fn certify(&self, csr_pem: &str, lifetime_s: i64) -> Down {
        let issued = self.authority.issue_node(csr_pem, self.node, lifetime_s, now_s()).unwrap();
        Down::Joined { certificate_pem: issued.cert_pem, not_after_unix_s: issued.not_after_s as u64 }
    }

    pub async fn accept(&self) -> Wire {
        self.agents.lock().await.recv().await.unwrap()
    }

    /// Hears the agent out until `done`, and renews its lease.
    pub async fn hear(&self, wire: &mut Wire, heard: &mut Heard, done: impl Fn(&Heard) -> bool) {
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

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("node/agent.log")).unwrap_or_default()
    }

    pub fn folder(&self, prefix: &str) -> BlobFolder {
        BlobFolder {
            container_url: format!("https://localhost:{}/acc/box", self.port),
            prefix: prefix.into(),
            sas: "sig=x".into(),
            whole: false,
        }
    }

    pub fn put(&self, name: &str, text: &str) {
        self.blobs.lock().unwrap().insert(name.into(), text.into());
    }

    /// From now on the blob store wants this pass.
    pub fn want_pass(&self, pass: &str) {
        self.put(PASS, pass);
    }

    /// Whether a request came without it.
    pub fn refused_a_pass(&self) -> bool {
        self.blobs.lock().unwrap().contains_key(REFUSED)
    }

    pub fn blob(&self, name: &str) -> String {
        let blobs = self.blobs.lock().unwrap();
        let found = blobs.get(name).unwrap_or_else(|| panic!("{name} among {:?}", blobs.keys()));
        String::from_utf8(found.clone()).unwrap()
    }

    pub fn spec(&self, command: &str, isolation: Isolation) -> AttemptSpec {
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
            environment: Default::default(),
            container: Default::default(),
            log_bytes_max: 1 << 20,
            preamble: vec![],
            ranks: None,
            distribution: None,
            tracking: None,
            services: Vec::new(),
            checkpoint: None,
            count_bytes: false,
            disk: Default::default(),
            masked: Vec::new(),
        }
    }

    pub fn exit_of_agent(&mut self) -> i32 {
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

pub struct Wire {
    pub stream: TlsStream<TcpStream>,
    pub decoder: Decoder,
    pub pending: Vec<u8>,
}

impl Wire {
    pub async fn send(&mut self, down: &Down) {
        self.pending.clear();
        encode_message(down, &mut self.pending);
        self.stream.write_all(&self.pending).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next frame; none when the agent has hung up.
    pub async fn frame(&mut self) -> Option<Frame<Up>> {
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

    pub async fn message(&mut self) -> Up {
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
pub struct Heard {
    pub reports: Vec<(AttemptRef, u64, Report)>,
    pub log: BTreeMap<AttemptRef, Vec<u8>>,
    pub complete: Vec<AttemptRef>,
}

impl Heard {
    fn take(&mut self, frame: Frame<Up>) -> Option<Down> {
        match frame {
            Frame::Message(Up::Heartbeat { sent_boot_ms }) => {
                Some(Down::LeaseRenewed { sent_boot_ms, heartbeat_ms: 0, url_pass: Secret::default() })
            }
            Frame::Message(Up::Report { attempt, number, body }) => {
                if matches!(body, Report::Ended { exit: Exit::Success }) {
                    assert!(self.complete.contains(&attempt), "the end comes after the last of the log");
                }
                self.reports.push((attempt, number, body));
                Some(Down::ReportAcknowledged { attempt, number })
            }
            Frame::Message(other) => panic!("{other:?}"),
            Frame::Log(LogChunk { attempt, offset, last, bytes, .. }) => {
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

    pub fn text(&self, attempt: AttemptRef) -> String {
        String::from_utf8_lossy(self.log.get(&attempt).map_or(&[], Vec::as_slice)).into_owned()
    }

    pub fn exit(&self, attempt: AttemptRef) -> Option<&Exit> {
        self.reports.iter().find_map(|(of, _, body)| match body {
            Report::Ended { exit } if *of == attempt => Some(exit),
            _ => None,
        })
    }
}

pub fn attempt(job: u64) -> AttemptRef {
    AttemptRef { job, attempt: 1 }
}

pub fn now_s() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

/// Enough of a blob store: list, get, head, put, delete, and put by blocks.
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
        let pass = blobs.lock().unwrap().get(PASS).map(|pass| String::from_utf8_lossy(pass).into_owned());
        let expired =
            pass.is_some_and(|pass| !query.split('&').any(|q| q.strip_prefix("neap-pass=") == Some(&pass)));
        let (status, answer) = if expired {
            blobs.lock().unwrap().insert(REFUSED.into(), Vec::new());
            ("403 Forbidden\r\nx-ms-error-code: AttemptUrlExpired", Vec::new())
        } else if head.starts_with("put") && query.contains("comp=blocklist") {
            let mut blobs = blobs.lock().unwrap();
            let list = String::from_utf8(body).unwrap();
            let mut whole = Vec::new();
            for id in list.split("<Latest>").skip(1).map(|part| part.split('<').next().unwrap()) {
                whole.extend(blobs.remove(&format!("{name} block {id}")).unwrap());
            }
            blobs.insert(name, whole);
            ("201 Created", Vec::new())
        } else if let Some(id) = query.split('&').find_map(|q| q.strip_prefix("blockid=")) {
            assert!(
                head.starts_with("put") && head.contains("content-md5: ") && query.contains("comp=block&")
            );
            blobs.lock().unwrap().insert(format!("{name} block {id}"), body);
            ("201 Created", Vec::new())
        } else if head.starts_with("put") {
            assert!(head.contains("content-md5: ") && head.contains("x-ms-blob-type: blockblob"));
            blobs.lock().unwrap().insert(name, body);
            ("201 Created", Vec::new())
        } else if head.starts_with("delete") {
            match blobs.lock().unwrap().remove(&name) {
                Some(_) => ("202 Accepted", Vec::new()),
                None => ("404 Not Found", Vec::new()),
            }
        } else if head.starts_with("head") {
            match blobs.lock().unwrap().contains_key(&name) {
                true => ("200 OK", Vec::new()),
                false => ("404 Not Found", Vec::new()),
            }
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

pub async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..3000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within 30 s");
}

/// Every file or folder of this name among the attempts' folders.
pub fn found(world: &World, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![world.dir.path().join("node/attempts")];
    while let Some(folder) = folders.pop() {
        // One that is being deleted may be gone at any time.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name() == name {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    found
}
