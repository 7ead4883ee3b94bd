//! `${{secrets.NAME}}` in a text: which secrets it names, and filling in their values. Values are never kept here.

use crate::limits::{SECRET_BYTES_MAX, SECRET_NAME_CHARS_MAX};

/// A secret is an asset of this kind, with one version.
pub const KIND: &str = "secret";
pub const VERSION: &str = "1";

/// The name under which a secret's value is sealed.
pub fn vault_name(workspace: crate::WorkspaceId, secret: &str) -> String {
    format!("workspace/{workspace}/secret/{secret}")
}

/// Why a name cannot name a secret.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = name
        .chars()
        .enumerate()
        .all(|(at, c)| c == '_' || c.is_ascii_alphabetic() || (at > 0 && (c.is_ascii_digit() || c == '-')));
    if !good || name.is_empty() || name.len() > SECRET_NAME_CHARS_MAX {
        return Err(format!(
            "'{name}' cannot name a secret. A name has 1 to {SECRET_NAME_CHARS_MAX} letters, digits, '_' and '-', \
             and does not begin with a digit or '-'."
        ));
    }
    Ok(())
}

/// Why a text cannot be a secret's value.
pub fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err("The value of a secret must not be empty.".into());
    }
    if value.len() > SECRET_BYTES_MAX {
        return Err(format!(
            "The value has {} bytes; the value of a secret has at most {SECRET_BYTES_MAX}.",
            value.len()
        ));
    }
    if value.contains('\0') {
        return Err(
            "The value has a NUL byte, which no environment variable can hold. Encode it, for example with base64."
                .into(),
        );
    }
    Ok(())
}

/// The names of the secrets that a text refers to, in order; an error for a reference without a usable name.
pub fn references(text: &str) -> Result<Vec<&str>, String> {
    let mut names = Vec::new();
    for part in parts(text) {
        if let Part::Secret(name) = part {
            check_name(name)?;
            names.push(name);
        }
    }
    Ok(names)
}

/// The text with every reference replaced by the secret's value. A value is not looked through for references.
pub fn fill<E>(text: &str, mut value_of: impl FnMut(&str) -> Result<String, E>) -> Result<String, E> {
    let mut out = String::with_capacity(text.len());
    for part in parts(text) {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Secret(name) => out.push_str(&value_of(name)?),
        }
    }
    Ok(out)
}

#[derive(Debug, PartialEq, Eq)]
enum Part<'t> {
    Text(&'t str),
    Secret(&'t str),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(start) = rest[from..].find("${{").map(|at| from + at) {
        let Some(length) = rest[start..].find("}}") else { break };
        let inside = rest[start + 3..start + length].trim();
        match inside.strip_prefix("secrets.") {
            Some(name) => {
                if start > 0 {
                    parts.push(Part::Text(&rest[..start]));
                }
                parts.push(Part::Secret(name.trim()));
                rest = &rest[start + length + 2..];
                from = 0;
            }
            None => from = start + 3,
        }
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_and_filled() {
        let value = |name: &str| if name == "gone" { Err("gone") } else { Ok(format!("<{name}>")) };
        for (text, names, filled) in [
            ("plain", vec![], Ok("plain")),
            ("${{secrets.a}}", vec!["a"], Ok("<a>")),
            ("Bearer ${{ secrets.a }}!", vec!["a"], Ok("Bearer <a>!")),
            ("${{secrets.a}}${{secrets.b-2}}", vec!["a", "b-2"], Ok("<a><b-2>")),
            ("${{inputs.x}} ${{secrets.a}}", vec!["a"], Ok("${{inputs.x}} <a>")),
            ("${{ ${{secrets.a}}", vec!["a"], Ok("${{ <a>")),
            ("${{secrets.a", vec![], Ok("${{secrets.a")),
            ("${{secret.a}} $secrets.a", vec![], Ok("${{secret.a}} $secrets.a")),
            ("${{secrets.gone}}", vec!["gone"], Err("gone")),
        ] {
            assert_eq!(references(text).unwrap(), names, "{text}");
            assert_eq!(fill(text, value), filled.map(str::to_owned), "{text}");
        }
        for wrong in ["${{secrets.}}", "${{secrets.a b}}", "${{secrets.1a}}", "${{secrets.a.b}}"] {
            assert!(references(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_is_not_looked_through_again() {
        let filled = fill("${{secrets.a}}", |_| Ok::<_, ()>("${{secrets.b}}".into()));
        assert_eq!(filled.unwrap(), "${{secrets.b}}");
    }

    #[test]
    fn names_and_values_have_limits() {
        assert!(check_name(&"a".repeat(SECRET_NAME_CHARS_MAX)).is_ok());
        for wrong in ["", "1a", "-a", "a b", "ä", "a/b", &"a".repeat(SECRET_NAME_CHARS_MAX + 1)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        assert!(check_value(&"x".repeat(SECRET_BYTES_MAX)).is_ok());
        for wrong in ["", "a\0b", &"x".repeat(SECRET_BYTES_MAX + 1)] {
            assert!(check_value(wrong).is_err());
        }
    }
}
