//! `${{…}}` in the values of a pipeline: what it points at, and filling it in.

/// What an expression in a step names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding<'a> {
    /// `parent.inputs.x`
    ParentInput(&'a str),
    /// `parent.outputs.x`
    ParentOutput(&'a str),
    /// `parent.jobs.s.outputs.o`
    StepOutput(&'a str, &'a str),
    /// `parent.jobs.s.inputs.i`
    StepInput(&'a str, &'a str),
    /// Something that this place cannot name.
    Unknown(&'a str),
}

/// The expression, if the text is exactly one.
pub(super) fn whole(text: &str) -> Option<Binding<'_>> {
    let inside = text.trim().strip_prefix("${{")?.strip_suffix("}}")?;
    (!inside.contains("}}")).then(|| read(inside))
}

fn read(inside: &str) -> Binding<'_> {
    let inside = inside.trim();
    let parts: Vec<&str> = inside.split('.').collect();
    match parts.as_slice() {
        ["parent", "inputs", input] => Binding::ParentInput(input),
        // Groups of inputs are flattened by the clients: the rest of the path is the name.
        ["parent", "inputs", ..] => Binding::ParentInput(&inside["parent.inputs.".len()..]),
        ["parent", "outputs", output] => Binding::ParentOutput(output),
        ["parent", "jobs", step, "outputs", output] => Binding::StepOutput(step, output),
        ["parent", "jobs", step, "inputs", input] => Binding::StepInput(step, input),
        _ => Binding::Unknown(inside),
    }
}

/// Every expression in a text that begins with `parent.`, wherever it stands.
pub(super) fn all(text: &str) -> Vec<Binding<'_>> {
    let pieces = text.split("${{").skip(1).filter_map(|rest| rest.split_once("}}"));
    pieces.map(|(inside, _)| read(inside)).filter(|binding| !matches!(binding, Binding::Unknown(_))).collect()
}

/// Replaces every expression that `value` knows; others stay as they are.
pub(super) fn fill(text: &str, mut value: impl FnMut(Binding<'_>) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${{") {
        out += before;
        match after.split_once("}}") {
            Some((inside, after)) => {
                match value(read(inside)) {
                    Some(filled) => out += &filled,
                    None => out += &format!("${{{{{inside}}}}}"),
                }
                rest = after;
            }
            // None is closed from here on.
            None => return out + "${{" + after,
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for (text, expect) in [
            ("${{parent.inputs.x}}", Some(Binding::ParentInput("x"))),
            (" ${{ parent.outputs.o }} ", Some(Binding::ParentOutput("o"))),
            ("${{parent.jobs.a.outputs.o}}", Some(Binding::StepOutput("a", "o"))),
            ("${{parent.jobs.a.inputs.i}}", Some(Binding::StepInput("a", "i"))),
            ("${{parent.inputs.group.x}}", Some(Binding::ParentInput("group.x"))),
            ("${{name}}", Some(Binding::Unknown("name"))),
            ("x${{parent.inputs.x}}", None),
            ("${{parent.inputs.x}}-${{parent.inputs.y}}", None),
            ("plain", None),
        ] {
            assert_eq!(whole(text), expect, "{text}");
        }
        assert_eq!(all("${{parent.inputs.x}}-${{inputs.y}}").len(), 1);
    }

    #[test]
    fn filling_in() {
        let filled = fill("a-${{parent.inputs.x}}-${{inputs.y}}-${{", |binding| match binding {
            Binding::ParentInput("x") => Some("1".into()),
            _ => None,
        });
        assert_eq!(filled, "a-1-${{inputs.y}}-${{");
    }
}
