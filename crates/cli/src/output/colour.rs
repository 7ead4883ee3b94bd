//! Colour for terminals: keys, and the kinds of values.

const KEY: &str = "\u{1b}[34m";
const TEXT: &str = "\u{1b}[32m";
const OTHER: &str = "\u{1b}[36m";
const END: &str = "\u{1b}[0m";

/// Colours pretty-printed JSON line by line; a line has at most one key and one value.
pub fn json(text: &str) -> String {
    text.lines()
        .map(|line| {
            let body = line.trim_start();
            let indent = &line[..line.len() - body.len()];
            let (key, value) = match key_end(body) {
                Some(end) => (format!("{KEY}{}{END}: ", &body[..end]), &body[end + 2..]),
                None => (String::new(), body),
            };
            let (value, comma) = value.strip_suffix(',').map_or((value, ""), |value| (value, ","));
            format!("{indent}{key}{}{comma}\n", coloured(value))
        })
        .collect()
}

/// Where the quoted key of `"key": value` ends, if the line begins with one.
fn key_end(body: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, letter) in body.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                return (body.starts_with('"') && body[index + 1..].starts_with(": ")).then_some(index + 1);
            }
            _ => {}
        }
    }
    None
}

fn coloured(value: &str) -> String {
    match value.chars().next() {
        Some('"') => format!("{TEXT}{value}{END}"),
        Some('{' | '}' | '[' | ']') | None => value.to_owned(),
        Some(_) => format!("{OTHER}{value}{END}"),
    }
}

/// Colours the keys of YAML.
pub fn yaml(text: &str) -> String {
    text.lines()
        .map(|line| {
            let body = line.trim_start_matches([' ', '-']);
            let indent = &line[..line.len() - body.len()];
            match body.find(": ").or_else(|| body.ends_with(':').then(|| body.len() - 1)) {
                Some(end) => format!("{indent}{KEY}{}{END}{}\n", &body[..end], &body[end..]),
                None => format!("{line}\n"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_and_values_are_told_apart() {
        let text = super::json("{\n  \"a\\\"b\": \"x: y\",\n  \"n\": 1\n}\n");
        assert_eq!(
            text,
            "{\n  \u{1b}[34m\"a\\\"b\"\u{1b}[0m: \u{1b}[32m\"x: y\"\u{1b}[0m,\n  \u{1b}[34m\"n\"\u{1b}[0m: \u{1b}[36m1\u{1b}[0m\n}\n"
        );
    }
}
