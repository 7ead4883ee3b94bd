//! One stream: from a service of an attempt, through a connection of its own, to the server. It ends with either side, or
//! with the attempt.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use neap_protocol::{STREAM_NAME_BYTES, Secret, Up};
use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream};

use super::script::{self, SOCKET};
use super::{DIR, Desk, Service, Target};
use crate::config::NodeConfig;
use crate::connection::{self, Credentials};
use crate::relay;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// Opens the stream that the server asked for and carries it to its end. What is to be said if it cannot be opened comes back.
pub(crate) async fn carry(
    desk: Option<Rc<Desk>>,
    config: NodeConfig,
    credentials: Rc<Credentials>,
    stream: Secret,
    service: String,
) -> Option<Up> {
    let failed = |reason: String| Some(Up::StreamFailed { stream: stream.clone(), reason });
    let Some(desk) = desk else { return failed("the attempt does not run here".into()) };
    let mut closed = desk.closed.subscribe();
    if *closed.borrow() {
        return failed("the attempt is over".into());
    }
    let Some(found) = desk.find(&service) else {
        return failed(format!("the attempt has no service '{service}' on this node"));
    };
    let near = match desk.connect(found).await {
        Ok(near) => near,
        Err(e) => return failed(format!("the service '{service}' takes no connection: {e}")),
    };
    let mut far = match connection::dial_stream(&config, &credentials).await {
        Ok(far) => far,
        Err(why) => return failed(why),
    };
    if stream.reveal().len() != STREAM_NAME_BYTES || far.write_all(stream.reveal().as_bytes()).await.is_err()
    {
        return None;
    }
    let mut near = near;
    tokio::select! {
        // However it ends, both sides see it.
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = closed.wait_for(|closed| *closed) => {}
    }
    None
}

impl Desk {
    pub(super) async fn connect(&self, service: &Service) -> io::Result<Box<dyn Duplex>> {
        match &service.target {
            Target::Port(at) => {
                let stream = self.dial(*at).await;
                let stream =
                    stream.map_err(|e| io::Error::new(e.kind(), format!("port {}: {e}", at.port())))?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Target::Socket => {
                let socket = self.socket(&script::name(service.number, SOCKET))?;
                // By its descriptor: a path could lead elsewhere by now.
                let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
                Ok(Box::new(UnixStream::connect(path).await?))
            }
        }
    }

    async fn dial(&self, at: SocketAddr) -> io::Result<TcpStream> {
        match (self.door.get(), at) {
            (Some(door), SocketAddr::V4(at)) => relay::established(door.connect(at).await?).await,
            (Some(_), SocketAddr::V6(_)) | (None, _) => TcpStream::connect(at).await,
        }
    }

    /// A socket of the attempt's own and nobody else's: the job could have put anything in its place.
    fn socket(&self, name: &str) -> io::Result<OwnedFd> {
        let socket = self.tmp.name(&format!("{DIR}/{name}"))?;
        let found = rustix::fs::fstat(&socket)?;
        let owner = self.tmp.user().unwrap_or_else(|| rustix::process::getuid().as_raw());
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_uid != owner {
            return Err(io::Error::other("what lies in its place is not a socket of the job's"));
        }
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;
    use neap_protocol::{AttemptRef, ServiceKind, ServiceSpec};
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn only_a_socket_of_the_jobs_own_is_connected_to() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join(DIR);
        std::fs::create_dir(&dir).unwrap();
        let spec =
            ServiceSpec { name: "lab".into(), what: ServiceKind::JupyterLab, port: None, path: "/".into() };
        let service = Service { spec, number: 0, target: Target::Socket };
        let desk = |owner| Desk {
            attempt: AttemptRef { job: 1, attempt: 1 },
            services: vec![service.clone()],
            tmp: Tree::open(tmp.path(), None).unwrap().with_user(owner),
            door: std::cell::OnceCell::new(),
            closed: tokio::sync::watch::Sender::new(false),
        };
        assert!(desk(None).connect(&service).await.is_err(), "nothing is there");
        let listener = tokio::net::UnixListener::bind(tmp.path().join("s")).unwrap();
        std::os::unix::fs::symlink(tmp.path().join("s"), dir.join("0.sock")).unwrap();
        assert!(desk(None).connect(&service).await.is_err(), "a link");
        std::fs::remove_file(dir.join("0.sock")).unwrap();
        std::fs::rename(tmp.path().join("s"), dir.join("0.sock")).unwrap();
        assert!(desk(Some(54_321)).connect(&service).await.is_err(), "somebody else's");
        let mut near = desk(None).connect(&service).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        far.write_all(b"hello").await.unwrap();
        drop(far);
        let mut heard = String::new();
        near.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "hello");
    }
}
