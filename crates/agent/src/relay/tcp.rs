//! Connections from inside an attempt's network to one place outside it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::limits::{ACCEPT_PAUSE, CHUNK_BYTES, CONNECT};

/// Accepts, and carries each connection to the first of `targets` that takes it.
pub(super) async fn serve(
    listener: TcpListener,
    targets: Vec<String>,
    connections_max: usize,
    idle: Duration,
) {
    let targets = Arc::new(targets);
    let room = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        // Accepted only when there is room: the rest waits in the kernel's queue, which is bounded.
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let near = match listener.accept().await {
            Ok((near, _)) => near,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let targets = Arc::clone(&targets);
        connections.spawn(async move {
            let _permit = permit;
            // However it ends, both sides see that it has ended.
            if let Some(far) = connect(&targets).await {
                let _ = carry(near, far, idle).await;
            }
        });
    }
}

async fn connect(targets: &[String]) -> Option<TcpStream> {
    for target in targets {
        if let Ok(Ok(stream)) = timeout(CONNECT, TcpStream::connect(target)).await {
            return Some(stream);
        }
    }
    None
}

/// Carries bytes both ways until both sides have ended theirs, one fails, or nothing moves.
pub(super) async fn carry(near: TcpStream, far: TcpStream, idle: Duration) -> io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let moved = AtomicU64::new(0);
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::try_join!(carry_half(near_in, far_out, &moved, idle), carry_half(far_in, near_out, &moved, idle))?;
    Ok(())
}

async fn carry_half(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    moved: &AtomicU64,
    idle: Duration,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let before = moved.load(Ordering::Relaxed);
        let length = match timeout(idle, from.read(&mut buffer)).await {
            Ok(read) => read?,
            // The other direction is alive.
            Err(_) if moved.load(Ordering::Relaxed) != before => continue,
            Err(late) => return Err(late.into()),
        };
        if length == 0 {
            // This direction only: the other may go on.
            return to.shutdown().await;
        }
        timeout(idle, to.write_all(&buffer[..length])).await??;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}
