//! The little XML that this face speaks, written and read by hand. Names and texts only: no attributes are
//! read, no entities beyond the five, no document types.

use neap_storage::{BlockKind, BlockRef};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Appends `text` so that it reads back as itself.
pub(super) fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // A reader would turn it into a line feed.
            '\r' => out.push_str("&#13;"),
            _ => out.push(c),
        }
    }
}

/// `<name>text</name>`
pub(super) fn element(out: &mut String, name: &str, text: &str) {
    out.push_str(&format!("<{name}>"));
    escape(out, text);
    out.push_str(&format!("</{name}>"));
}

/// A blob's name. Characters that XML cannot carry are percent-encoded, and the element says so.
pub(super) fn name_element(out: &mut String, name: &str) {
    let cannot =
        |c: char| (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{FFFE}' | '\u{FFFF}');
    if name.contains(cannot) {
        let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
        out.push_str(&format!("<Name Encoded=\"true\">{encoded}</Name>"));
    } else {
        element(out, "Name", name);
    }
}

/// Reads a list of blocks; `None` if it is none.
pub(super) fn read_block_list(text: &str) -> Option<Vec<BlockRef>> {
    let start = text.find("<BlockList")?;
    let inside = text[start..].split_once('>')?.1;
    if text[start..].split_once('>')?.0.ends_with('/') {
        return Some(Vec::new());
    }
    let mut rest = inside.split_once("</BlockList>")?.0.trim();
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let (tag, after) = rest.strip_prefix('<')?.split_once('>')?;
        let kind = match tag.trim() {
            "Latest" => BlockKind::Latest,
            "Uncommitted" => BlockKind::Uncommitted,
            "Committed" => BlockKind::Committed,
            _ => return None,
        };
        let (id, after) = after.split_once("</")?;
        let (closing, after) = after.split_once('>')?;
        if closing.trim() != tag.trim() || id.contains('<') {
            return None;
        }
        // Base64 has none of the characters that XML escapes, except by numbers that nobody writes.
        blocks.push(BlockRef { kind, id: id.trim().to_owned() });
        rest = after.trim_start();
    }
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_lists() {
        let ids = |text: &str| {
            read_block_list(text).map(|blocks| {
                blocks.into_iter().map(|b| format!("{:?} {}", b.kind, b.id)).collect::<Vec<_>>()
            })
        };
        let list = "<?xml version='1.0' encoding='utf-8'?>\n<BlockList>\n <Latest>QUE=</Latest><Uncommitted> QUI=</Uncommitted>\n<Committed>Q0M=</Committed></BlockList>";
        let expected = ["Latest QUE=", "Uncommitted QUI=", "Committed Q0M="].map(str::to_owned).to_vec();
        assert_eq!(ids(list), Some(expected));
        assert_eq!(ids("<BlockList/>"), Some(vec![]));
        assert_eq!(ids("<BlockList></BlockList>"), Some(vec![]));
        for bad in [
            "",
            "<BlockList>",
            "<BlockList><Latest>x</BlockList>",
            "<BlockList><Other>x</Other></BlockList>",
            "<BlockList>x</BlockList>",
            "<BlockList><Latest>x</Committed></BlockList>",
        ] {
            assert_eq!(ids(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_that_xml_cannot_carry_are_encoded() {
        let check = |name: &str, expected: &str| {
            let mut out = String::new();
            name_element(&mut out, name);
            assert_eq!(out, expected);
        };
        check("a&b<c>", "<Name>a&amp;b&lt;c&gt;</Name>");
        check("a\u{1}b", "<Name Encoded=\"true\">a%01b</Name>");
    }
}
