//! Content on its way from the network to the disk: pieces go through a short queue to the one thread that
//! writes them, so a fast client waits for the disk and memory stays small.

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::StreamExt;
use neap_storage::Upload;
use tokio::sync::mpsc;

use super::answer::Failure;
use super::{BlobFace, blocking};

/// Pieces between the network and the disk.
const PIECES: usize = 8;
/// Content of a refused request that is read and dropped. Clients put up to 64 MiB in one request.
const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;

enum Piece {
    Bytes(Bytes),
    /// The client sent all of it. Without this word the content was cut off.
    End,
}

/// The receiving end, for the thread that writes.
pub(super) struct Incoming(mpsc::Receiver<Piece>);

impl Incoming {
    /// Writes everything into the upload. Content that was cut off is an error.
    pub fn write_to(mut self, upload: &mut Upload) -> Result<(), Failure> {
        loop {
            match self.0.blocking_recv() {
                Some(Piece::Bytes(bytes)) => upload.write(&bytes)?,
                Some(Piece::End) => return Ok(()),
                None => return Err(cut_off()),
            }
        }
    }
}

fn cut_off() -> Failure {
    let message = "The content ended before all of it was there. Upload it again.";
    Failure::new(StatusCode::BAD_REQUEST, "IncompleteBody", message)
}

/// Takes what the client still sends, up to a limit, so that it gets to read why its request was refused.
pub(super) async fn discard(mut pieces: BodyDataStream) {
    let mut left = DISCARD_BYTES_MAX;
    while let Some(Ok(bytes)) = pieces.next().await {
        match left.checked_sub(bytes.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// Runs `work` on a thread that may block, while the body flows to it.
pub(super) async fn take_in<T: Send + 'static>(
    face: &BlobFace,
    body: Body,
    work: impl FnOnce(Incoming) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let _permit = face.uploads.acquire().await.map_err(|_| Failure::internal())?;
    let (send, receive) = mpsc::channel(PIECES);
    let feed = async move {
        let mut pieces = body.into_data_stream();
        loop {
            let piece = match pieces.next().await {
                Some(Ok(bytes)) => Piece::Bytes(bytes),
                Some(Err(_)) => return,
                None => Piece::End,
            };
            let last = matches!(piece, Piece::End);
            if send.send(piece).await.is_err() {
                // The writer has given up; its answer is lost if the client is cut off in its sentence.
                return discard(pieces).await;
            }
            if last {
                return;
            }
        }
    };
    let (result, ()) = tokio::join!(blocking(move || work(Incoming(receive))), feed);
    result
}
