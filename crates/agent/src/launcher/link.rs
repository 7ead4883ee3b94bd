//! The link between the launchers of one attempt: nodes dial the head, and each knows the other by the attempt's
//! secret, which itself is never sent. Every message carries a code made with a key of this connection and its
//! number, so that nobody on the way can add, change, repeat or drop one unseen. It is not encrypted: nothing secret
//! is said here.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::note::Note;
use super::plan::Plan;

const NONCE_BYTES: usize = 32;
const CODE_BYTES: usize = 32;
const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// The head may still be fetching its inputs.
const DIAL_AGAIN_MS: u64 = 100;
const INTRODUCTION_MS_MAX: u64 = 10_000;
/// What nodes still have to say when all is over is waited for this long.
const GOODBYE_MS_MAX: u64 = 2_000;
/// Who loses a link did not cause it: another process, or a whole node, ended first. Its own agent says so, and the job
/// ends for that; this one waits to be told.
const LOST_PATIENCE_MS: u64 = 15_000;

/// What launchers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Word {
    /// Head to node: run this command line, and tell how it ended.
    Run { id: u64, line: String },
    /// Node to head, and head to whoever asked.
    Ended { id: u64, code: u8 },
    /// Somebody on the head's node asks for a command to be run on the node with this address.
    Ask { address: String, line: String },
    /// The workers of this node have ended well.
    Done,
    /// The job is over.
    End,
    /// The answer to that, with what went wrong here.
    Goodbye { note: Option<Note> },
}

/// Who dials: a node by its number, or somebody on the head's node who only asks.
const ASKER: u32 = u32::MAX;

struct Sender {
    half: OwnedWriteHalf,
    key: hmac::Key,
    side: u8,
    number: u64,
}

struct Receiver {
    half: OwnedReadHalf,
    key: hmac::Key,
    side: u8,
    number: u64,
}

fn mac(key: &hmac::Key, parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    parts.iter().for_each(|part| context.update(part));
    context.sign()
}

impl Sender {
    async fn say(&mut self, word: &Word) -> io::Result<()> {
        let body = serde_json::to_vec(word)?;
        let code = mac(&self.key, &[&[self.side], &self.number.to_be_bytes(), &body]);
        self.number += 1;
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        frame.extend_from_slice(code.as_ref());
        self.half.write_all(&frame).await
    }
}

impl Receiver {
    async fn hear(&mut self) -> io::Result<Word> {
        let bytes = self.half.read_u32().await? as usize;
        if bytes > MESSAGE_BYTES_MAX {
            return Err(io::Error::other("a message that is too large"));
        }
        let mut body = vec![0; bytes];
        self.half.read_exact(&mut body).await?;
        let mut code = [0; CODE_BYTES];
        self.half.read_exact(&mut code).await?;
        let signed = [&[self.side][..], &self.number.to_be_bytes(), &body].concat();
        hmac::verify(&self.key, &signed, &code)
            .map_err(|_| io::Error::other("a message of somebody else's"))?;
        self.number += 1;
        Ok(serde_json::from_slice(&body)?)
    }
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if got == NONCE_BYTES { Ok(bytes) } else { Err(io::Error::other("too little randomness")) }
}

fn secret_of(plan: &Plan) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, plan.ranks.secret.reveal().as_bytes())
}

/// Both ends of a connection whose sides have proven that they know the secret.
fn ends(stream: TcpStream, secret: &hmac::Key, a: &[u8], b: &[u8], is_head: bool) -> (Sender, Receiver) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, mac(secret, &[b"messages", a, b]).as_ref());
    let (read, write) = stream.into_split();
    let (ours, theirs) = if is_head { (0, 1) } else { (1, 0) };
    (
        Sender { half: write, key: key.clone(), side: ours, number: 0 },
        Receiver { half: read, key, side: theirs, number: 0 },
    )
}

/// The dialling side of the introduction.
async fn introduce(mut stream: TcpStream, plan: &Plan, who: u32) -> io::Result<(Sender, Receiver)> {
    let (secret, a, who) = (secret_of(plan), nonce()?, who.to_be_bytes());
    stream.set_nodelay(true)?;
    stream.write_all(&[&a[..], &who].concat()).await?;
    let mut answer = [0; NONCE_BYTES + CODE_BYTES];
    stream.read_exact(&mut answer).await?;
    let (b, proof) = answer.split_at(NONCE_BYTES);
    hmac::verify(&secret, &[&b"head"[..], &a, b, &who].concat(), proof)
        .map_err(|_| io::Error::other("somebody else listens there"))?;
    stream.write_all(mac(&secret, &[b"node", &a, b, &who]).as_ref()).await?;
    Ok(ends(stream, &secret, &a, b, false))
}

/// The listening side.
async fn welcome(mut stream: TcpStream, secret: &hmac::Key) -> io::Result<(u32, Sender, Receiver)> {
    stream.set_nodelay(true)?;
    let mut a = [0; NONCE_BYTES];
    stream.read_exact(&mut a).await?;
    let mut who = [0; 4];
    stream.read_exact(&mut who).await?;
    let b = nonce()?;
    stream.write_all(&[&b[..], mac(secret, &[b"head", &a, &b, &who]).as_ref()].concat()).await?;
    let mut proof = [0; CODE_BYTES];
    stream.read_exact(&mut proof).await?;
    hmac::verify(secret, &[&b"node"[..], &a, &b, &who].concat(), &proof)
        .map_err(|_| io::Error::other("it does not know the secret"))?;
    let (sender, receiver) = ends(stream, secret, &a, &b, true);
    Ok((u32::from_be_bytes(who), sender, receiver))
}

/// A node's end of the link. What comes is read by a task of its own, so that waiting for it can be given up.
pub(super) struct Node {
    sender: Sender,
    heard: UnboundedReceiver<Word>,
}

impl Node {
    /// Dials the head until it answers.
    pub(super) async fn connect(plan: &Plan) -> io::Result<Self> {
        Self::dial(plan, plan.ranks.rank).await
    }

    /// For somebody on the head's own node.
    pub(super) async fn ask(plan: &Plan) -> io::Result<Self> {
        Self::dial(plan, ASKER).await
    }

    async fn dial(plan: &Plan, who: u32) -> io::Result<Self> {
        loop {
            if let Ok(stream) = TcpStream::connect((plan.head(), plan.link_port())).await {
                let introduced =
                    timeout(Duration::from_millis(INTRODUCTION_MS_MAX), introduce(stream, plan, who));
                if let Ok(Ok((sender, mut receiver))) = introduced.await {
                    let (say, heard) = unbounded_channel();
                    tokio::task::spawn_local(async move {
                        while let Ok(word) = receiver.hear().await {
                            if say.send(word).is_err() {
                                return;
                            }
                        }
                    });
                    return Ok(Self { sender, heard });
                }
            }
            sleep(Duration::from_millis(DIAL_AGAIN_MS)).await;
        }
    }

    pub(super) async fn say(&mut self, word: &Word) -> io::Result<()> {
        self.sender.say(word).await
    }

    pub(super) async fn hear(&mut self) -> io::Result<Word> {
        match self.heard.recv().await {
            Some(word) => Ok(word),
            None => {
                patience().await;
                Err(io::Error::other("the link to the head was lost"))
            }
        }
    }
}

/// Waits to be told to end, but not for ever.
pub(super) async fn patience() {
    let long = sleep(Duration::from_millis(LOST_PATIENCE_MS));
    match signal(SignalKind::terminate()) {
        Ok(mut told) => {
            tokio::select! { () = long => {} _ = told.recv() => {} }
        }
        Err(_) => long.await,
    }
}

/// What the head hears: from a node, or from somebody who asks (and is answered by the number of their connection).
#[derive(Debug)]
pub(super) struct Heard {
    pub node: u32,
    pub connection: u64,
    /// None: the connection ended.
    pub word: Option<Word>,
}

#[allow(clippy::large_enum_variant, reason = "there are as many of the large ones as nodes")]
enum Happening {
    Connected { node: u32, connection: u64, sender: Sender },
    Heard(Heard),
}

/// The head's end of all links.
pub(super) struct Head {
    happenings: UnboundedReceiver<Happening>,
    nodes: BTreeMap<u32, Sender>,
    askers: BTreeMap<u64, Sender>,
    /// What was said to nodes that have not dialled yet.
    early: BTreeMap<u32, Vec<Word>>,
}

impl Head {
    pub(super) async fn listen(plan: &Plan) -> io::Result<Self> {
        let (address, port) = (plan.head(), plan.link_port());
        let listener = TcpListener::bind((address, port))
            .await
            .map_err(|e| io::Error::new(e.kind(), format!("listening on {address}:{port}: {e}")))?;
        let (say, happenings) = unbounded_channel();
        tokio::task::spawn_local(accept(listener, secret_of(plan), plan.nodes(), say));
        Ok(Self { happenings, nodes: BTreeMap::new(), askers: BTreeMap::new(), early: BTreeMap::new() })
    }

    /// Says something to a node, when it has dialled.
    pub(super) async fn say(&mut self, node: u32, word: Word) {
        match self.nodes.get_mut(&node) {
            // A link that is lost is noticed by hearing.
            Some(sender) => drop(sender.say(&word).await),
            None => self.early.entry(node).or_default().push(word),
        }
    }

    pub(super) async fn answer(&mut self, connection: u64, word: &Word) {
        if let Some(sender) = self.askers.get_mut(&connection) {
            let _ = sender.say(word).await;
        }
    }

    pub(super) async fn hear(&mut self) -> Heard {
        loop {
            match self.happenings.recv().await {
                Some(Happening::Connected { node: ASKER, connection, sender }) => {
                    self.askers.insert(connection, sender);
                }
                Some(Happening::Connected { node, sender, .. }) => {
                    self.nodes.insert(node, sender);
                    for word in self.early.remove(&node).unwrap_or_default() {
                        self.say(node, word).await;
                    }
                }
                Some(Happening::Heard(heard)) => {
                    if heard.word.is_none() {
                        self.askers.remove(&heard.connection);
                    }
                    if heard.word.is_some() || heard.node != ASKER {
                        return heard;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// Tells all nodes that it is over, and gives what they have to say about it.
    pub(super) async fn end(&mut self, plan: &Plan) -> Vec<Note> {
        let mut left: Vec<u32> = self.nodes.keys().copied().collect();
        for node in 1..plan.nodes() {
            self.say(node, Word::End).await;
        }
        let mut notes = Vec::new();
        let _ = timeout(Duration::from_millis(GOODBYE_MS_MAX), async {
            while !left.is_empty() {
                let heard = self.hear().await;
                match heard.word {
                    Some(Word::Goodbye { note }) => notes.extend(note),
                    Some(_) => continue,
                    None => {}
                }
                left.retain(|node| *node != heard.node);
            }
        })
        .await;
        notes
    }
}

async fn accept(listener: TcpListener, secret: hmac::Key, nodes: u32, say: UnboundedSender<Happening>) {
    let mut connection = 0;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(DIAL_AGAIN_MS)).await;
            continue;
        };
        connection += 1;
        let (secret, say) = (secret.clone(), say.clone());
        tokio::task::spawn_local(async move {
            let welcomed =
                timeout(Duration::from_millis(INTRODUCTION_MS_MAX), welcome(stream, &secret)).await;
            // Whoever cannot introduce themselves is not heard.
            let Ok(Ok((node, sender, mut receiver))) = welcomed else { return };
            if node != ASKER && !(1..nodes).contains(&node) {
                return;
            }
            let _ = say.send(Happening::Connected { node, connection, sender });
            loop {
                let word = receiver.hear().await.ok();
                let over = word.is_none();
                let _ = say.send(Happening::Heard(Heard { node, connection, word }));
                if over {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_protocol::Ranks;

    fn plan(rank: u32, port: u16, secret: &str) -> Plan {
        Plan {
            ranks: Ranks {
                rank,
                nodes: vec![1, 2],
                addresses: vec!["127.0.0.1".into(), "127.0.0.1".into()],
                port,
                secret: neap_protocol::Secret::new(secret),
            },
            distribution: None,
            run_dir: "/nowhere".into(),
            cwd: "/nowhere".into(),
            loopback: true,
            apart: true,
        }
    }

    fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port() - 1
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn words_go_both_ways() {
        run(async {
            let port = free_port();
            let mut head = Head::listen(&plan(0, port, "s")).await.unwrap();
            let order = Word::Run { id: 3, line: "x".into() };
            // Said before the node has dialled.
            head.say(1, order.clone()).await;
            let node = tokio::task::spawn_local(async move {
                let mut node = Node::connect(&plan(1, port, "s")).await.unwrap();
                let heard = node.hear().await.unwrap();
                node.say(&Word::Ended { id: 3, code: 7 }).await.unwrap();
                assert_eq!(node.hear().await.unwrap(), Word::End);
                let note = Note::Missing { message: "m".into() };
                node.say(&Word::Goodbye { note: Some(note) }).await.unwrap();
                heard
            });
            let heard = head.hear().await;
            assert_eq!((heard.node, heard.word), (1, Some(Word::Ended { id: 3, code: 7 })));
            let notes = head.end(&plan(0, port, "s")).await;
            assert_eq!(notes, vec![Note::Missing { message: "m".into() }]);
            assert_eq!(node.await.unwrap(), order);
        });
    }

    #[test]
    fn without_the_secret_there_is_no_link() {
        run(async {
            let port = free_port();
            let _head = Head::listen(&plan(0, port, "right")).await.unwrap();
            let stranger = TcpStream::connect(("127.0.0.1", port + LINK_OFFSET)).await.unwrap();
            assert!(introduce(stranger, &plan(1, port, "wrong"), 1).await.is_err());
            // Who is let in on the way to be told apart proves nothing either.
            let mut stranger = TcpStream::connect(("127.0.0.1", port + LINK_OFFSET)).await.unwrap();
            stranger.write_all(&[7; NONCE_BYTES + 4 + CODE_BYTES]).await.unwrap();
            let mut answer = Vec::new();
            stranger.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer.len(), NONCE_BYTES + CODE_BYTES);
        });
    }

    #[test]
    fn a_changed_or_repeated_message_is_refused() {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let secret = hmac::Key::new(hmac::HMAC_SHA256, b"s");
            let (mut sender, _kept) = ends(dialled, &secret, b"a", b"b", false);
            let (_kept, mut receiver) = ends(accepted, &secret, b"a", b"b", true);
            sender.say(&Word::Done).await.unwrap();
            assert_eq!(receiver.hear().await.unwrap(), Word::Done);
            sender.number = 0;
            sender.say(&Word::Done).await.unwrap();
            assert!(receiver.hear().await.is_err());
        });
    }

    const LINK_OFFSET: u16 = 1;
}
