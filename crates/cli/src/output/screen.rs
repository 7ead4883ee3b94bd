//! A log on a terminal. Programs colour their logs, so colours are left out silently; every other sequence that a terminal
//! would act on is written out. What is not a terminal gets the bytes as they are.

use super::emit_bytes;
use crate::failure::Outcome;
use neap_core::visible::is_active;
use std::io::IsTerminal;

/// A sequence that is not complete after so many bytes is none.
const SEQUENCE_BYTES_MAX: usize = 32;

/// Where a log is shown.
#[derive(Debug)]
pub struct Screen {
    is_terminal: bool,
    /// The beginning of a character or of a sequence, whose rest has not come yet.
    begun: Vec<u8>,
}

impl Screen {
    pub fn new() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal(), begun: Vec::new() }
    }

    /// Shows more of the log; false if nobody reads it any more.
    pub fn show(&mut self, bytes: &[u8]) -> Outcome<bool> {
        if !self.is_terminal {
            return emit_bytes(bytes);
        }
        self.begun.extend_from_slice(bytes);
        let shown = screened(&mut self.begun, false);
        emit_bytes(shown.as_bytes())
    }

    /// Shows what is left when nothing more comes.
    pub fn end(&mut self) -> Outcome<bool> {
        let shown = screened(&mut self.begun, true);
        if shown.is_empty() { Ok(true) } else { emit_bytes(shown.as_bytes()) }
    }
}

/// What of `bytes` can be shown; what may go on is left in it.
fn screened(bytes: &mut Vec<u8>, is_all: bool) -> String {
    let ready = if is_all { bytes.len() } else { bytes.len() - open_end(bytes) };
    let text = String::from_utf8_lossy(&bytes[..ready]).into_owned();
    bytes.drain(..ready);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        if let Some(length) = colour_length(rest) {
            rest = &rest[length..];
            continue;
        }
        match c {
            // Progress bars write their line again.
            '\n' | '\t' | '\r' => out.push(c),
            c if is_active(c) => out.push_str(&neap_core::visible::line(&rest[..c.len_utf8()])),
            c => out.push(c),
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// The bytes of a colour sequence, `ESC [ numbers m`, at the beginning of a text.
fn colour_length(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("\u{1b}[")?;
    let end = inside.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':')?;
    inside[end..].starts_with('m').then_some(end + 3)
}

/// How many bytes at the end are the beginning of a character, or of what may become a colour sequence.
fn open_end(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(SEQUENCE_BYTES_MAX)..];
    if let Some(at) = tail.iter().rposition(|byte| *byte == 0x1b) {
        let begun = &tail[at + 1..];
        let is_open = match begun.split_first() {
            None => true,
            Some((b'[', numbers)) => numbers.iter().all(|b| b.is_ascii_digit() || matches!(b, b';' | b':')),
            Some(_) => false,
        };
        if is_open {
            return tail.len() - at;
        }
    }
    match std::str::from_utf8(tail) {
        // Only the end is looked at: the tail may begin within a character.
        Err(error) if error.error_len().is_none() => tail.len() - error.valid_up_to(),
        _ => (1..=3.min(tail.len()))
            .find(|length| {
                std::str::from_utf8(&tail[tail.len() - length..]).is_err_and(|e| e.error_len().is_none())
            })
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_shown_and_not_obeyed() {
        for (pieces, expect) in [
            (vec!["plain\n\ttext\r100%\n"], "plain\n\ttext\r100%\n"),
            (vec!["\u{1b}[1;32mok\u{1b}[0m\n"], "ok\n"),
            (vec!["\u{1b}[1;3", "2mok\u{1b}", "[0m\n"], "ok\n"),
            (vec!["\u{1b}]0;owned\u{7}x"], "\\u001b]0;owned\\u0007x"),
            (vec!["\u{1b}", "]52;c;ZWNobw==\u{7}"], "\\u001b]52;c;ZWNobw==\\u0007"),
            (vec!["\u{1b}[2J\u{1b}[1;1H"], "\\u001b[2J\\u001b[1;1H"),
            (vec!["\u{9b}31m\u{202e}x\u{8}"], "\\u009b31m\\u202ex\\u0008"),
            (vec!["\u{1b}[31"], "\\u001b[31"),
        ] {
            let (mut begun, mut shown) = (Vec::new(), String::new());
            for piece in pieces {
                begun.extend_from_slice(piece.as_bytes());
                shown += &screened(&mut begun, false);
            }
            shown += &screened(&mut begun, true);
            assert_eq!(shown, expect);
        }
        let mut begun = Vec::new();
        let mut shown = String::new();
        for byte in "a→🚀b".as_bytes() {
            begun.push(*byte);
            shown += &screened(&mut begun, false);
        }
        assert_eq!(shown, "a→🚀b");
        let mut bad = b"\xff\xfeok".to_vec();
        assert_eq!(screened(&mut bad, true), "\u{fffd}\u{fffd}ok");
    }
}
