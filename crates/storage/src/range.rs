//! Byte ranges as clients write them: `bytes=0-99`, `bytes=100-`, `bytes=-5`. One range, never a list.

use crate::{Error, Result};

/// A part of a blob: `start` is inside of the blob and `length` is what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Number of bytes, at least 1.
    pub length: u64,
}

impl ByteRange {
    /// Reads a range header for a blob of `total` bytes.
    pub fn parse(text: &str, total: u64, name: &str) -> Result<Self> {
        let bad = |why| Error::BadInput { what: "the range", text: text.chars().take(80).collect(), why };
        let (first, last) = text
            .trim()
            .strip_prefix("bytes=")
            .and_then(|range| range.split_once('-'))
            .ok_or_else(|| bad("it must look like bytes=0-99"))?;
        let number = |text: &str| -> Result<u64> { text.parse().map_err(|_| bad("it must be two numbers")) };
        let beyond = || Error::RangeNotSatisfiable { name: name.to_owned(), length: total };
        if first.is_empty() {
            let length = number(last)?.min(total);
            return if length == 0 { Err(beyond()) } else { Ok(Self { start: total - length, length }) };
        }
        let start = number(first)?;
        let end = if last.is_empty() { u64::MAX } else { number(last)? };
        if end < start {
            return Err(bad("it ends before it begins"));
        }
        if start >= total {
            return Err(beyond());
        }
        Ok(Self { start, length: end.min(total - 1) - start + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let read = |text, total| ByteRange::parse(text, total, "b").ok().map(|r| (r.start, r.length));
        for (text, total, expected) in [
            ("bytes=0-9", 100, Some((0, 10))),
            ("bytes=0-33554431", 5, Some((0, 5))),
            ("bytes=4-4", 5, Some((4, 1))),
            ("bytes=3-", 5, Some((3, 2))),
            ("bytes=-2", 5, Some((3, 2))),
            ("bytes=-9", 5, Some((0, 5))),
            ("bytes=0-18446744073709551615", 5, Some((0, 5))),
            ("bytes=5-9", 5, None),
            ("bytes=0-9", 0, None),
            ("bytes=-5", 0, None),
            ("bytes=3-2", 5, None),
            ("bytes=0-1,3-4", 5, None),
            ("bytes=", 5, None),
            ("0-1", 5, None),
        ] {
            assert_eq!(read(text, total), expected, "{text} of {total}");
        }
    }
}
