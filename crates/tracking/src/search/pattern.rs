//! `LIKE` with regard to case: SQLite's own has none, but its `GLOB` has.

/// The `GLOB` pattern that matches what this `LIKE` pattern does.
pub(super) fn glob_of_like(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 4);
    for c in pattern.chars() {
        match c {
            '%' => out.push('*'),
            '_' => out.push('?'),
            '*' | '?' | '[' => {
                out.push('[');
                out.push(c);
                out.push(']');
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_change_and_glob_words_are_plain() {
        for (like, glob) in
            [("a%", "a*"), ("_b", "?b"), ("50*", "50[*]"), ("[x]?", "[[]x][?]"), ("plain", "plain")]
        {
            assert_eq!(glob_of_like(like), glob, "{like}");
        }
    }
}
