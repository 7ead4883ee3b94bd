//! The connection to the control plane: dial, join, read frames, write frames, dial again.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use neap_identity::NodeKey;
use neap_protocol::{ALPN, Decoder, Down, Frame, PROTOCOL_VERSION, STREAM_ALPN, Up, encode_message};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::boot_log;
use crate::config::NodeConfig;
use crate::driver::Happening;
use crate::{Error, session::Input};

const FIRST_PAUSE_MS: u64 = 50;
const PAUSE_MS_MAX: u64 = 2000;
const DIAL_S_MAX: u64 = 10;
/// Orders are short.
const READ_BYTES: usize = 16 * 1024;
const WRITE_BYTES: usize = 256 * 1024;
const KEY_FILE: &str = "node.key";
const CERTIFICATE_FILE: &str = "node.pem";

/// The node's key and certificate, kept in its folder.
#[derive(Debug)]
pub(crate) struct Credentials {
    dir: PathBuf,
    ca_pem: Vec<u8>,
    /// A key whose certificate has been asked for.
    asked: RefCell<Option<NodeKey>>,
}

impl Credentials {
    pub(crate) fn new(dir: &Path, ca_pem: Vec<u8>) -> Self {
        Self { dir: dir.to_owned(), ca_pem, asked: RefCell::new(None) }
    }

    /// Makes a fresh key; the request to certify it comes back.
    pub(crate) fn request(&self) -> Result<String, Error> {
        let key = NodeKey::generate()?;
        let csr_pem = key.csr_pem.clone();
        *self.asked.borrow_mut() = Some(key);
        Ok(csr_pem)
    }

    /// Keeps a certificate with the key it was asked for.
    pub(crate) fn keep(&self, certificate_pem: &str) -> Result<(), Error> {
        let Some(key) = self.asked.borrow_mut().take() else { return Ok(()) };
        // The key goes first: a certificate never lies beside a key that is not its own for long, and a
        // failed handshake is tried again.
        neap_identity::write_private(&self.dir.join(KEY_FILE), key.key_pem.as_bytes())?;
        neap_identity::write_private(&self.dir.join(CERTIFICATE_FILE), certificate_pem.as_bytes())?;
        Ok(())
    }

    fn has_certificate(&self) -> bool {
        self.dir.join(CERTIFICATE_FILE).exists()
    }

    fn tls(&self, alpn: &[u8]) -> Result<rustls::ClientConfig, Error> {
        let bad = |e: &dyn std::fmt::Display| Error::Tls(e.to_string());
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.ca_pem) {
            roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?
            .with_root_certificates(roots);
        let mut config = if self.has_certificate() {
            let chain = CertificateDer::pem_file_iter(self.dir.join(CERTIFICATE_FILE))
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|e| bad(&e))?;
            let key = PrivateKeyDer::from_pem_file(self.dir.join(KEY_FILE)).map_err(|e| bad(&e))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| bad(&e))?
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        Ok(config)
    }
}

/// Keeps a connection as long as the agent lives. What happens on it goes to the driver.
pub(crate) async fn keep(
    config: NodeConfig,
    credentials: Rc<Credentials>,
    hang_up: Rc<Notify>,
    say: UnboundedSender<Happening>,
) {
    let mut pause_ms = FIRST_PAUSE_MS;
    let mut last_trouble = String::new();
    loop {
        let dialled =
            tokio::time::timeout(Duration::from_secs(DIAL_S_MAX), dial(&config, &credentials, ALPN)).await;
        let trouble = match dialled {
            Ok(Ok(stream)) => {
                boot_log::line(&format!("connected to {}", config.server));
                last_trouble.clear();
                let talked = talk(stream, &config, &credentials, &hang_up, &say).await;
                if talked.welcome {
                    pause_ms = FIRST_PAUSE_MS;
                }
                if say.send(Happening::Session(Input::Disconnected)).is_err() {
                    return;
                }
                talked.why
            }
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {DIAL_S_MAX} s"),
        };
        if trouble != last_trouble {
            boot_log::line(&format!("not connected to {}: {trouble}; trying again", config.server));
            last_trouble = trouble;
        }
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
    }
}

/// A connection for one stream of a service.
pub(crate) async fn dial_stream(
    config: &NodeConfig,
    credentials: &Credentials,
) -> Result<TlsStream<TcpStream>, String> {
    let dialling = dial(config, credentials, STREAM_ALPN);
    let dialled = tokio::time::timeout(Duration::from_secs(DIAL_S_MAX), dialling).await;
    dialled.unwrap_or_else(|_| Err(format!("no answer within {DIAL_S_MAX} s")))
}

async fn dial(
    config: &NodeConfig,
    credentials: &Credentials,
    alpn: &[u8],
) -> Result<TlsStream<TcpStream>, String> {
    let tls = credentials.tls(alpn).map_err(|e| e.to_string())?;
    let name = ServerName::try_from(config.server_name.clone())
        .map_err(|e| format!("server_name {:?}: {e}", config.server_name))?;
    let tcp = TcpStream::connect(&config.server).await.map_err(|e| e.to_string())?;
    tcp.set_nodelay(true).map_err(|e| e.to_string())?;
    TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.map_err(|e| distrusted(&e, config))
}

/// A server whose certificate is not trusted: most likely its authority has another key than when this node was made.
fn distrusted(error: &std::io::Error, config: &NodeConfig) -> String {
    let text = error.to_string();
    if !text.contains("invalid peer certificate") {
        return format!("TLS: {text}");
    }
    format!(
        "TLS: {text}. The server's certificate authority changed, or {} is another server: {} does not vouch for it. \
         Remove this node, so that a new one is made with the new authority",
        config.server,
        config.ca_pem_path.display()
    )
}

struct Talked {
    why: String,
    /// It came as far as hearing something.
    welcome: bool,
}

/// Joins if need be, then passes frames both ways until the connection ends.
async fn talk(
    stream: TlsStream<TcpStream>,
    config: &NodeConfig,
    credentials: &Credentials,
    hang_up: &Notify,
    say: &UnboundedSender<Happening>,
) -> Talked {
    let (mut read, write) = tokio::io::split(stream);
    let (send, queue) = unbounded_channel();
    let mut joining = !credentials.has_certificate();
    if joining {
        boot_log::line("joining: asking for a certificate");
        let csr_pem = match credentials.request() {
            Ok(csr_pem) => csr_pem,
            Err(e) => return Talked { why: e.to_string(), welcome: false },
        };
        let mut frame = Vec::new();
        let token = config.join_token.clone();
        encode_message(
            &Up::Join { protocol: PROTOCOL_VERSION, node: config.node, token, csr_pem },
            &mut frame,
        );
        let _ = send.send(frame);
    } else {
        let _ = say.send(Happening::Connected(send.clone()));
    }
    let writing = tokio::task::spawn_local(write_frames(write, queue));
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; READ_BYTES];
    let mut welcome = false;
    let why = 'talk: loop {
        let read = tokio::select! {
            read = read.read(&mut buffer) => read,
            () = hang_up.notified() => break "no heartbeat was answered".to_owned(),
        };
        match read {
            Ok(0) => break "the server closed the connection".to_owned(),
            Ok(n) => decoder.feed(&buffer[..n]),
            Err(e) => break e.to_string(),
        }
        loop {
            match decoder.next::<Down>() {
                Ok(Some(Frame::Message(down))) => {
                    welcome = true;
                    let joined = matches!(down, Down::Joined { .. });
                    let _ = say.send(Happening::Down(down));
                    if joined && joining {
                        joining = false;
                        let _ = say.send(Happening::Connected(send.clone()));
                    }
                }
                Ok(Some(Frame::Log(_))) => {}
                Ok(None) => break,
                Err(e) => break 'talk e.to_string(),
            }
        }
    };
    writing.abort();
    Talked { why, welcome }
}

async fn write_frames(
    mut write: tokio::io::WriteHalf<TlsStream<TcpStream>>,
    mut queue: UnboundedReceiver<Vec<u8>>,
) {
    while let Some(mut frames) = queue.recv().await {
        while frames.len() < WRITE_BYTES
            && let Ok(more) = queue.try_recv()
        {
            frames.extend_from_slice(&more);
        }
        // A broken connection is noticed by the reader.
        if write.write_all(&frames).await.is_err() || write.flush().await.is_err() {
            return;
        }
    }
}
