//! The user's command line: places for inputs and outputs are filled in, optional parts kept or dropped.
//!
//! Pure text; it knows nothing of files.

use std::collections::BTreeMap;

/// A command once it is filled in. The system takes no longer argument, and a short command that names a long input many
/// times must not fill the memory of the node.
const COMMAND_BYTES_MAX: usize = 128 * 1024;

/// What `${{inputs.x}}` and `${{outputs.y}}` stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pub inputs: BTreeMap<String, String>,
    pub outputs: BTreeMap<String, String>,
}

/// Fills in a command. `$[[…]]` stays, without its brackets, if every input in it was given, and is dropped
/// otherwise. The error names every place that nothing was given for.
pub(crate) fn fill(command: &str, places: &Places) -> Result<String, String> {
    let mut unknown = Vec::new();
    let mut out = String::with_capacity(command.len());
    let mut rest = command;
    while let Some(at) = rest.find("$[[") {
        let Some(length) = rest[at..].find("]]") else { break };
        substitute(&rest[..at], places, &mut out, &mut unknown);
        let mut missing = Vec::new();
        let mut inner = String::new();
        substitute(&rest[at + 3..at + length], places, &mut inner, &mut missing);
        if missing.is_empty() {
            out.push_str(&inner);
        }
        if out.len() > COMMAND_BYTES_MAX {
            return Err(too_long());
        }
        rest = &rest[at + length + 2..];
    }
    substitute(rest, places, &mut out, &mut unknown);
    if out.len() > COMMAND_BYTES_MAX {
        return Err(too_long());
    }
    if unknown.is_empty() {
        return Ok(out);
    }
    Err(format!("the command uses {}, which the job does not have", unknown.join(", ")))
}

fn too_long() -> String {
    format!(
        "the command has more than {COMMAND_BYTES_MAX} bytes once its inputs are filled in; pass long values in a file"
    )
}

fn substitute(text: &str, places: &Places, out: &mut String, unknown: &mut Vec<String>) {
    let mut rest = text;
    while let Some(at) = rest.find("${{") {
        let Some(length) = rest[at..].find("}}") else { break };
        out.push_str(&rest[..at]);
        let whole = &rest[at..at + length + 2];
        let name = rest[at + 3..at + length].trim();
        let value = match name.split_once('.') {
            Some(("inputs", name)) => Some(places.inputs.get(name)),
            Some(("outputs", name)) => Some(places.outputs.get(name)),
            // Not ours: the shell may have a use for it.
            Some(_) | None => None,
        };
        match value {
            Some(Some(value)) if out.len().saturating_add(value.len()) > COMMAND_BYTES_MAX => {
                // Already too long; the error is reported at the end.
                out.push_str(&" ".repeat(COMMAND_BYTES_MAX.saturating_sub(out.len()) + 1));
                return;
            }
            Some(Some(value)) => out.push_str(value),
            Some(None) => unknown.push(whole.to_owned()),
            None => out.push_str(whole),
        }
        rest = &rest[at + length + 2..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_many_times_is_refused() {
        let places =
            Places { inputs: [("x".to_owned(), "y".repeat(100_000))].into(), outputs: BTreeMap::new() };
        let once = fill("echo ${{inputs.x}}", &places).unwrap();
        assert_eq!(once.len(), 100_005);
        for command in ["${{inputs.x}}".repeat(50_000), "$[[${{inputs.x}}]]".repeat(50_000)] {
            assert!(fill(&command, &places).unwrap_err().contains("131072 bytes"));
        }
    }

    fn check(command: &str, expect: Result<&str, &str>) {
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let places = Places {
            inputs: pairs(&[("data", "/in/data"), ("lr", "0.1")]),
            outputs: pairs(&[("model", "/out/model")]),
        };
        assert_eq!(fill(command, &places), expect.map(Into::into).map_err(Into::into), "{command}");
    }

    #[test]
    fn places_are_filled() {
        check("echo hi", Ok("echo hi"));
        check("a ${{inputs.data}} b ${{ outputs.model }}", Ok("a /in/data b /out/model"));
        check("${{inputs.lr}}${{inputs.lr}}", Ok("0.10.1"));
        check("echo ${{other.thing}} ${HOME} $((1+1)) ${{", Ok("echo ${{other.thing}} ${HOME} $((1+1)) ${{"));
        check("a $[[--lr ${{inputs.lr}}]] b", Ok("a --lr 0.1 b"));
        check("a $[[--x ${{inputs.x}}]] b", Ok("a  b"));
        check("[[ -f x ]] && $[[ -o", Ok("[[ -f x ]] && $[[ -o"));
        check(
            "${{inputs.x}} ${{outputs.y}}",
            Err("the command uses ${{inputs.x}}, ${{outputs.y}}, which the job does not have"),
        );
    }
}
