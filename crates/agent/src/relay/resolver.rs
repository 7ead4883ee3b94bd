//! Questions about names by UDP: each goes to the machine's resolvers from a socket of its own, and the answer back.
//! Nothing is understood of either but its first bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::limits::{ACCEPT_PAUSE, ANSWER, ANSWER_BYTES_MAX, QUESTION_BYTES_MAX, QUESTIONS_MAX};

const HEADER: usize = 12;
/// In the third byte: it is an answer.
const IS_ANSWER: u8 = 0x80;
/// In the fourth byte: the resolver could not find out.
const SERVER_FAILED: u8 = 2;

pub(super) async fn serve(socket: UdpSocket, resolvers: Vec<SocketAddr>) {
    let (socket, resolvers) = (Arc::new(socket), Arc::new(resolvers));
    let room = Arc::new(Semaphore::new(QUESTIONS_MAX));
    let mut under_way = JoinSet::new();
    let mut buffer = vec![0; QUESTION_BYTES_MAX + 1];
    loop {
        while under_way.try_join_next().is_some() {}
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(_) => {
                // An answer that nobody waited for any more comes back as an error of the socket.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let question = &buffer[..length];
        if !(HEADER..=QUESTION_BYTES_MAX).contains(&length) || question[2] & IS_ANSWER != 0 {
            continue;
        }
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (question, socket, resolvers) = (question.to_vec(), Arc::clone(&socket), Arc::clone(&resolvers));
        under_way.spawn(async move {
            let _permit = permit;
            let answer = ask_all(&question, &resolvers).await.unwrap_or_else(|| failure(&question));
            let _ = socket.send_to(&answer, from).await;
        });
    }
}

async fn ask_all(question: &[u8], resolvers: &[SocketAddr]) -> Option<Vec<u8>> {
    for resolver in resolvers {
        if let Ok(Ok(answer)) = timeout(ANSWER, ask(question, *resolver)).await {
            return Some(answer);
        }
    }
    None
}

/// From a port that nobody can guess, connected, so that only the resolver can answer.
async fn ask(question: &[u8], resolver: SocketAddr) -> io::Result<Vec<u8>> {
    let any = if resolver.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(resolver).await?;
    socket.send(question).await?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    loop {
        let length = socket.recv(&mut answer).await?;
        if length >= HEADER && answer[..2] == question[..2] && answer[2] & IS_ANSWER != 0 {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

/// The question's header as an answer without content: it could not be found out.
fn failure(question: &[u8]) -> Vec<u8> {
    let mut answer = question[..HEADER].to_vec();
    answer[2] |= IS_ANSWER;
    answer[3] = (answer[3] & 0xf0) | SERVER_FAILED;
    // No questions, answers, authorities or additions follow.
    answer[4..].fill(0);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_answers_its_question() {
        let mut question = vec![0xab, 0xcd, 0x01, 0x20, 0, 1, 0, 0, 0, 0, 0, 1];
        question.extend_from_slice(b"\x07example\0\0\x01\0\x01");
        assert_eq!(failure(&question), [0xab, 0xcd, 0x81, 0x22, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
