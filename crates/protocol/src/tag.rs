//! Tags: how the output of several processes travels in one stream.
//!
//! A tagged line is `RS rank : text LF` for a whole line of that rank's output, or `RS rank + text LF` for a piece of
//! one, whose line feed is not part of the output. So what each rank wrote can be put together again byte for byte,
//! a stream can be read from any line on, and a line without a tag does no harm.

/// ASCII's "record separator": text does not begin with it by chance.
const MARK: u8 = 0x1e;
const RANK_DIGITS_MAX: usize = 9;

/// What one line of a tagged stream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// None where the line has no tag.
    pub rank: Option<u32>,
    /// What was written, its line feed included if it had one.
    pub bytes: &'a [u8],
}

/// The longest tag there is, with its line feed.
pub const TAG_BYTES_MAX: usize = 1 + RANK_DIGITS_MAX + 1 + 1;

/// Appends `bytes`, which `rank` wrote, as tagged lines of at most `line_bytes_max` bytes each; gives each line to
/// `line` as soon as it is whole.
pub fn tag(rank: u32, mut bytes: &[u8], line_bytes_max: usize, mut line: impl FnMut(&[u8])) {
    let room = line_bytes_max.saturating_sub(TAG_BYTES_MAX).max(1);
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (text, whole) = match end {
            Some(end) if end <= room => (&bytes[..end], true),
            Some(_) | None => (&bytes[..bytes.len().min(room)], false),
        };
        out.clear();
        out.push(MARK);
        out.extend_from_slice(rank.to_string().as_bytes());
        out.push(if whole { b':' } else { b'+' });
        out.extend_from_slice(text);
        out.push(b'\n');
        line(&out);
        bytes = &bytes[text.len() + usize::from(whole)..];
    }
}

/// Reads one line, its line feed included.
pub fn untag(line: &[u8]) -> Piece<'_> {
    let untagged = Piece { rank: None, bytes: line };
    let Some(rest) = line.strip_prefix(&[MARK]) else { return untagged };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > RANK_DIGITS_MAX {
        return untagged;
    }
    let rank = rest[..digits].iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0'));
    match rest[digits..].split_first() {
        Some((b':', bytes)) => Piece { rank: Some(rank), bytes },
        Some((b'+', bytes)) => Piece { rank: Some(rank), bytes: bytes.strip_suffix(b"\n").unwrap_or(bytes) },
        Some(_) | None => untagged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_back() {
        for text in
            ["", "\n", "one\n", "one\ntwo", "\n\n", "x", "\u{1e}3:fake\n", "long line that must be cut\nend"]
        {
            for most in [1, 14, 20, 4096] {
                let mut stream = Vec::new();
                tag(7, text.as_bytes(), most, |line| {
                    assert!(line.len() <= most.max(TAG_BYTES_MAX + 1), "{line:?}");
                    stream.extend_from_slice(line);
                });
                let mut back = Vec::new();
                for line in stream.split_inclusive(|byte| *byte == b'\n') {
                    let piece = untag(line);
                    assert_eq!(piece.rank, Some(7));
                    back.extend_from_slice(piece.bytes);
                }
                assert_eq!(String::from_utf8(back).unwrap(), text, "{most}");
            }
        }
    }

    #[test]
    fn other_lines_have_no_tag() {
        for line in
            ["", "\n", "plain\n", "\u{1e}\n", "\u{1e}x:y\n", "\u{1e}12\n", "\u{1e}1234567890:y\n", "\u{1e}5"]
        {
            assert_eq!(untag(line.as_bytes()), Piece { rank: None, bytes: line.as_bytes() });
        }
    }
}
