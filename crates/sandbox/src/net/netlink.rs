//! Netlink by hand: building requests, sending them, reading answers. It knows nothing of what they mean.
//!
//! A socket belongs to the network namespace it was opened in, for ever: whoever holds it acts there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const HEADER: usize = 16;
const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const ACK: u16 = libc::NLM_F_ACK as u16;
const DUMP: u16 = libc::NLM_F_DUMP as u16;
const DONE: u16 = libc::NLMSG_DONE as u16;
const ERROR: u16 = libc::NLMSG_ERROR as u16;
const NESTED: u16 = 0x8000;
const BUFFER_BYTES: usize = 64 * 1024;

/// One request. Its header is completed when it is sent.
#[derive(Debug)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// `family_header` is the fixed part that belongs to this kind.
    pub(crate) fn new(kind: u16, flags: u16, family_header: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(family_header);
        let mut message = Self(bytes);
        message.pad();
        message
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = (4 + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.pad();
        self
    }

    /// An attribute that holds others, after `head`.
    pub(crate) fn nest(mut self, kind: u16, head: &[u8], inside: impl FnOnce(Self) -> Self) -> Self {
        let at = self.0.len();
        self.0.extend_from_slice(&[0, 0]);
        self.0.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        self.0.extend_from_slice(head);
        self.pad();
        let mut filled = inside(self);
        let length = (filled.0.len() - at) as u16;
        filled.0[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        filled
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finish(&mut self, flags: u16, sequence: u32) {
        let length = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&length.to_ne_bytes());
        let flags = u16::from_ne_bytes([self.0[6], self.0[7]]) | flags;
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }
}

/// The attributes of an answer, after its family header.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & !NESTED;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// A netlink socket in one network namespace.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// For interfaces, addresses and routes of the caller's present namespace.
    pub(crate) fn route() -> io::Result<Self> {
        Self::open(None)
    }

    /// For the packet filter of the caller's present namespace.
    pub(crate) fn netfilter() -> io::Result<Self> {
        Self::open(Some(NETFILTER))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        Ok(Self { socket, sequence: 0, buffer: Vec::new() })
    }

    /// Hears of changes from now on: the descriptor becomes readable. `groups` is a mask.
    pub(crate) fn listen(&self, groups: u32) -> io::Result<()> {
        rustix::net::bind(&self.socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(())
    }

    /// Forgets the changes that were reported. Does not wait.
    pub(crate) fn drain(&mut self) {
        self.buffer.resize(BUFFER_BYTES, 0);
        loop {
            match rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                // More changes than the socket could hold: still a change, and nothing more.
                Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS) => {}
                Err(_) => return,
            }
        }
    }

    /// Has the kernel do everything in order; the first refusal is the result. The rest is done all the same.
    pub(crate) fn change<const N: usize>(&mut self, messages: [Message; N]) -> io::Result<()> {
        let mut all = Vec::with_capacity(1024);
        let first = self.sequence.wrapping_add(1);
        for mut message in messages {
            self.sequence = self.sequence.wrapping_add(1);
            message.finish(ACK, self.sequence);
            all.extend_from_slice(&message.0);
        }
        self.send(&all)?;
        let mut result = Ok(());
        let mut answered = 0;
        while answered < N {
            self.receive(|sequence, kind, body| {
                if kind == ERROR && sequence.wrapping_sub(first) < N as u32 {
                    answered += 1;
                    if let (Some(e), Ok(())) = (refusal(body), &result) {
                        result = Err(e);
                    }
                }
            })?;
        }
        result
    }

    /// Everything the kernel has of a kind: the kinds and bodies of its answers.
    pub(crate) fn list(&mut self, message: Message) -> io::Result<Vec<(u16, Vec<u8>)>> {
        self.ask(message, DUMP, |kind| kind == DONE)
    }

    /// The answer to one question.
    pub(crate) fn get(&mut self, message: Message) -> io::Result<Option<Vec<u8>>> {
        Ok(self.ask(message, 0, |_| true)?.pop().map(|(_, body)| body))
    }

    fn ask(
        &mut self,
        mut message: Message,
        flags: u16,
        is_last: impl Fn(u16) -> bool,
    ) -> io::Result<Vec<(u16, Vec<u8>)>> {
        self.sequence = self.sequence.wrapping_add(1);
        let expected = self.sequence;
        message.finish(flags, expected);
        self.send(&message.0)?;
        let (mut found, mut result, mut over) = (Vec::new(), Ok(()), false);
        while !over {
            self.receive(|sequence, kind, body| {
                if sequence != expected {
                    return;
                }
                if kind == ERROR {
                    result = refusal(body).map_or(Ok(()), Err);
                    over = true;
                } else {
                    over |= is_last(kind);
                    if kind != DONE {
                        found.push((kind, body.to_vec()));
                    }
                }
            })?;
        }
        result.map(|()| found)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        // An unbound socket's peer is the kernel.
        let sent = rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, bytes, SendFlags::empty()))?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn receive(&mut self, mut each: impl FnMut(u32, u16, &[u8])) -> io::Result<()> {
        self.buffer.resize(BUFFER_BYTES, 0);
        let (got, _) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())
        })?;
        let mut bytes = &self.buffer[..got];
        while let Some(head) = bytes.get(..HEADER) {
            let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let length = word(0) as usize;
            let kind = u16::from_ne_bytes([head[4], head[5]]);
            let Some(body) = bytes.get(HEADER..length) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            each(word(8), kind, body);
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(())
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What an acknowledgement says: nothing, or why not.
fn refusal(body: &[u8]) -> Option<io::Error> {
    let code = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
    (code != 0).then(|| io::Error::from_raw_os_error(-code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_attributes_have_their_lengths() {
        let mut message = Message::new(16, 0, &[1, 2, 3, 4])
            .nest(18, &[], |m| m.attribute(1, b"veth\0"))
            .attribute(3, b"x");
        message.finish(ACK, 7);
        let bytes = message.0;
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len());
        let read: Vec<_> = attributes(&bytes[HEADER + 4..]).collect();
        assert_eq!(read[1], (3, &b"x"[..]));
        assert_eq!(attributes(read[0].1).collect::<Vec<_>>(), [(1, &b"veth\0"[..])]);
        assert_eq!(attributes(&[9, 0, 1]).count(), 0);
        assert_eq!(attributes(&[200, 0, 1, 0, 5]).count(), 0, "a length beyond the end");
    }

    #[test]
    fn the_kernel_answers() {
        let mut route = Netlink::route().unwrap();
        let links = route.list(Message::new(libc::RTM_GETLINK, 0, &[0; 16])).unwrap();
        assert!(!links.is_empty());
    }
}
