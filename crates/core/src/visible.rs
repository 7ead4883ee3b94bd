//! Text of strangers (names, tags, messages, logs) as it may be shown on a terminal or in a line of a log. Whatever a
//! terminal would act on is written out in the form `\u001b`, which is also how JSON writes it. Pure.

use std::borrow::Cow;

/// Whether a terminal or an editor would act on a character instead of showing it: control characters (with ESC, and the
/// 8-bit forms of its sequences), line separators, direction overrides and tags that nobody sees.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A text of several lines: newlines and tabs stay.
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n', '\t'])
}

/// A text within a line, a cell or a subject: it stays within it.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, &[])
}

fn escaped<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let is_shown = |c: char| !is_active(c) || kept.contains(&c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if is_shown(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_written_out() {
        for (from, in_text, in_line) in [
            ("plain, häuser, 日本, 🚀", "plain, häuser, 日本, 🚀", "plain, häuser, 日本, 🚀"),
            ("a\nb\tc", "a\nb\tc", "a\\nb\\tc"),
            ("\u{1b}[31mred", "\\u001b[31mred", "\\u001b[31mred"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007", "\\u001b]0;title\\u0007"),
            ("\u{9b}31m\u{7f}", "\\u009b31m\\u007f", "\\u009b31m\\u007f"),
            ("over\rwritten", "over\\rwritten", "over\\rwritten"),
            ("\u{202e}gpj.exe", "\\u202egpj.exe", "\\u202egpj.exe"),
            ("a\u{2066}b\u{2069}", "a\\u2066b\\u2069", "a\\u2066b\\u2069"),
            ("\u{e0041}", "\\udb40\\udc41", "\\udb40\\udc41"),
        ] {
            assert_eq!((text(from), line(from)), (in_text.into(), in_line.into()), "{from:?}");
        }
        let json = text("\u{9b}\u{202e}\u{e0041}").into_owned();
        let read: String = serde_json::from_str(&format!("\"{json}\"")).unwrap();
        assert_eq!(read, "\u{9b}\u{202e}\u{e0041}");
    }
}
