//! Keeps the values of secrets out of a log: the supervisor replaces them before the first byte reaches the disk.
//!
//! It finds a value as it is, URL-encoded and base64-encoded (also inside a longer base64 text), and across the borders
//! of what is read at once. It does not find a value that a program changes in any other way.

use std::collections::BTreeSet;

/// What stands in the log instead.
const MASK: &[u8] = b"***";
/// Shorter values are not masked: they would garble the log and hide nothing.
pub const MASKED_BYTES_MIN: usize = 4;
/// A line of a value, and a piece of base64, count from this length on.
const PIECE_BYTES_MIN: usize = 8;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Masks one stream.
#[derive(Default)]
pub(crate) struct Masker {
    /// Longest first.
    patterns: Vec<Vec<u8>>,
    /// Bytes that begin a pattern.
    begins: Vec<bool>,
    /// The end of what came, as long as it may be the beginning of a value.
    held: Vec<u8>,
    out: Vec<u8>,
}

impl Masker {
    pub(crate) fn new(values: &[String]) -> Self {
        let mut patterns = BTreeSet::new();
        for value in values.iter().filter(|value| value.len() >= MASKED_BYTES_MIN) {
            patterns.insert(value.clone().into_bytes());
            patterns.insert(url_encoded(value.as_bytes()));
            for line in value.lines().map(str::trim).filter(|line| line.len() >= PIECE_BYTES_MIN) {
                patterns.insert(line.as_bytes().to_vec());
            }
            for alphabet in [STANDARD, URL_SAFE] {
                let pieces = (0..3).map(|shift| base64_core(value.as_bytes(), shift, alphabet));
                patterns.extend(pieces.filter(|piece| piece.len() >= PIECE_BYTES_MIN));
            }
        }
        let mut patterns: Vec<Vec<u8>> = patterns.into_iter().collect();
        patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.len()));
        let mut begins = vec![false; 256];
        for first in patterns.iter().filter_map(|pattern| pattern.first()) {
            begins[usize::from(*first)] = true;
        }
        Self { patterns, begins, held: Vec::new(), out: Vec::new() }
    }

    /// What of the stream may be shown now. The rest follows with the next bytes, or at the end.
    pub(crate) fn feed<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.patterns.is_empty() {
            return bytes;
        }
        self.held.extend_from_slice(bytes);
        self.take(false)
    }

    /// What was held back. The stream is over.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.take(true)
    }

    fn take(&mut self, end: bool) -> &[u8] {
        self.out.clear();
        let mut at = 0;
        while at < self.held.len() {
            let rest = &self.held[at..];
            if !self.begins[usize::from(rest[0])] {
                let plain = rest.iter().position(|b| self.begins[usize::from(*b)]).unwrap_or(rest.len());
                self.out.extend_from_slice(&rest[..plain]);
                at += plain;
                continue;
            }
            // A longer value that has only begun goes before a shorter one that is complete.
            if !end && self.patterns.iter().any(|p| p.len() > rest.len() && p.starts_with(rest)) {
                break;
            }
            match self.patterns.iter().find(|pattern| rest.starts_with(pattern)) {
                Some(pattern) => {
                    self.out.extend_from_slice(MASK);
                    at += pattern.len();
                }
                None => {
                    self.out.push(rest[0]);
                    at += 1;
                }
            }
        }
        self.held.drain(..at);
        &self.out
    }
}

fn url_encoded(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out
}

/// Those base64 characters that depend on the value alone when `shift` bytes stand before it.
fn base64_core(value: &[u8], shift: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let bits = |index: usize| {
        // Six bits from bit `index` of the value, whose bit 0 is the first after the shift.
        (0..6).fold(0_usize, |bits, n| {
            let bit = index + n;
            let byte = value.get(bit / 8).copied().unwrap_or(0);
            bits << 1 | usize::from(byte >> (7 - bit % 8) & 1)
        })
    };
    // The first character that lies wholly in the value begins this many bits after its start.
    let from = (6 - shift * 8 % 6) % 6;
    let total = value.len() * 8;
    (0..).map(|n| from + n * 6).take_while(|at| at + 6 <= total).map(|at| alphabet[bits(at)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(values: &[&str], chunks: &[&str]) -> String {
        let mut masker = Masker::new(&values.iter().map(ToString::to_string).collect::<Vec<_>>());
        let mut out = Vec::new();
        for chunk in chunks {
            out.extend_from_slice(masker.feed(chunk.as_bytes()));
        }
        out.extend_from_slice(masker.finish());
        String::from_utf8(out).unwrap()
    }

    fn check(values: &[&str], text: &str, expect: &str) {
        assert_eq!(masked(values, &[text]), expect, "{text} at once");
        let pieces: Vec<String> = text.chars().map(String::from).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        assert_eq!(masked(values, &pieces), expect, "{text} byte by byte");
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            assert_eq!(masked(values, &[&text[..cut], &text[cut..]]), expect, "{text} cut at {cut}");
        }
    }

    #[test]
    fn values_are_masked_wherever_they_are_cut() {
        check(&[], "nothing to hide", "nothing to hide");
        check(&["hunter2"], "the password is hunter2!", "the password is ***!");
        check(&["hunter2"], "hunter2hunter2 hunter hunter", "****** hunter hunter");
        check(&["aab"], "aab", "aab");
        check(&["aaab"], "aaaab aaa", "a*** aaa");
        check(&["abcd", "abcdef"], "abcdef abcde abcd", "*** ***e ***");
        check(&["p√ss wörd"], "x=p√ss wörd;", "x=***;");
    }

    #[test]
    fn encoded_values_are_masked() {
        check(&["a b/c&d"], "q=a%20b%2Fc%26d&x=1", "q=***&x=1");
        check(&["p√ss"], "q=p%E2%88%9Ass", "q=***");
        // What base64 makes of the value alone, and of `user:`, `me:` and `u:` before it and something after it.
        for (text, expect) in [
            ("czNjcjN0LXZhbHVlIQ==", "***Q=="),
            ("dXNlcjpzM2NyM3QtdmFsdWUh", "dXNlcjp***h"),
            ("bWU6czNjcjN0LXZhbHVlIQ==", "bWU6***Q=="),
            ("dTpzM2NyM3QtdmFsdWUhCg==", "dTp***hCg=="),
        ] {
            let found = masked(&["s3cr3t-value!"], &[text]);
            assert!(
                !found.contains("cjN0LXZhbHV") && found.contains("***"),
                "{found} for {text}, like {expect}"
            );
        }
    }

    #[test]
    fn lines_of_a_value_are_masked() {
        let key = "-----BEGIN KEY-----\nMIIBVgIBADANBg\nab\n-----END KEY-----\n";
        check(&[key], "1: MIIBVgIBADANBg\n2: ab\n", "1: ***\n2: ab\n");
        check(&[key], key, "***");
    }

    #[test]
    fn short_values_are_left() {
        check(&["abc", ""], "abcabc", "abcabc");
        check(&["abcd"], "abcd", "***");
    }

    #[test]
    fn base64_cores_are_those_of_a_base64_text() {
        // base64("s3cr3t") and base64("x" + "s3cr3t"), base64("xy" + "s3cr3t").
        for (shift, whole) in [(0, "czNjcjN0"), (1, "eHMzY3IzdA=="), (2, "eHlzM2NyM3Q=")] {
            let core = String::from_utf8(base64_core(b"s3cr3t", shift, STANDARD)).unwrap();
            assert!(whole.contains(&core) && core.len() >= 6, "{core} in {whole}");
        }
    }
}
