//! A trial's command and environment: the places `${{search_space.x}}` get this trial's values, written as Python
//! would print them. Other places (`${{inputs.data}}`, `${{outputs.model}}`) are left for whoever knows them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::space::{Alternative, Distribution, Member, Params, Space};

/// A number is written with fewer characters.
const NUMBER_BYTES_MAX: usize = 400;

/// The command of a trial. `${{inputs.x}}` is filled too where `x` is swept, as components write it. A mapping or list
/// is JSON and stays one word for the shell; `${{search_space.x.key}}` is a member of it, and empty where this trial's
/// value has none.
pub fn render(command: &str, params: &Params) -> String {
    let mut out = String::with_capacity(command.len());
    let mut quotes = Quotes::None;
    for piece in pieces(command) {
        match piece {
            Piece::Text(text) => {
                quotes = quotes.after(text);
                out.push_str(text);
            }
            Piece::Place { whole, path } => match find(params, path) {
                Found::Value(value @ (Value::Object(_) | Value::Array(_))) => {
                    out.push_str(&quotes.word(&json(value)));
                }
                Found::Value(value) => out.push_str(&print(value)),
                Found::Member => {}
                Found::Foreign => out.push_str(whole),
            },
        }
    }
    out
}

/// The most bytes that a trial's command can have, whatever is drawn: a short command that names a long value many times comes
/// to gigabytes, so it is counted before the first one is rendered.
pub fn rendered_bytes_max(command: &str, space: &Space) -> usize {
    let of_piece = |piece: Piece<'_>| match piece {
        Piece::Text(text) => text.len(),
        Piece::Place { whole, path } => {
            let drawn = path.split('.').nth(1).and_then(|name| space.parameters.get(name));
            drawn.map_or(whole.len(), longest)
        }
    };
    pieces(command).into_iter().map(of_piece).fold(0, usize::saturating_add)
}

/// The most bytes that a value can have in a command, quoted.
fn longest(distribution: &Distribution) -> usize {
    // A quote within quotes is written as several characters.
    let plain = |value: &Value| json(value).len().saturating_mul(6);
    match distribution {
        Distribution::Randint { .. } | Distribution::Real(_) => NUMBER_BYTES_MAX,
        Distribution::Choice(alternatives) => {
            let each = alternatives.iter().map(|alternative| match alternative {
                Alternative::Plain(value) => plain(value),
                Alternative::Mapping(members) => members
                    .iter()
                    .map(|(name, member)| {
                        let value = match member {
                            Member::Fixed(value) => plain(value),
                            Member::Drawn(inner) => longest(inner),
                        };
                        value.saturating_add(name.len().saturating_mul(6)).saturating_add(8)
                    })
                    .fold(2, usize::saturating_add),
            });
            each.max().unwrap_or(0)
        }
    }
}

/// `AZUREML_SWEEP_x`, as Azure sets for every parameter.
pub fn environment(params: &Params) -> BTreeMap<String, String> {
    params.iter().map(|(name, value)| (format!("AZUREML_SWEEP_{name}"), print(value))).collect()
}

/// Places `${{search_space.…}}` of a command that the search space has nothing for, as they are written.
pub fn unknown_places<'a>(command: &'a str, space: &Space) -> Vec<&'a str> {
    let known = |path: &str| {
        let mut names = path.split('.').skip(1);
        let distribution = names.next().and_then(|name| space.parameters.get(name));
        distribution
            .is_some_and(|distribution| names.next().is_none_or(|member| has_member(distribution, member)))
    };
    pieces(command)
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Place { whole, path } if path.starts_with("search_space.") && !known(path) => Some(whole),
            Piece::Place { .. } | Piece::Text(_) => None,
        })
        .collect()
}

/// A value as Python prints it: `1e-05`, `True`, `None`; text as it is, mappings and lists as JSON.
pub fn print(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(_) => json(value),
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => json(value),
    }
}

fn has_member(distribution: &Distribution, member: &str) -> bool {
    match distribution {
        Distribution::Choice(alternatives) => alternatives.iter().any(|alternative| match alternative {
            Alternative::Plain(value) => value.get(member).is_some(),
            Alternative::Mapping(members) => members.iter().any(|(name, _)| name == member),
        }),
        Distribution::Randint { .. } | Distribution::Real(_) => false,
    }
}

enum Piece<'a> {
    Text(&'a str),
    Place { whole: &'a str, path: &'a str },
}

fn pieces(command: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = command;
    while let Some(start) = rest.find("${{") {
        let Some(length) = rest[start..].find("}}") else { break };
        let end = start + length;
        out.push(Piece::Text(&rest[..start]));
        out.push(Piece::Place { whole: &rest[start..end + 2], path: rest[start + 3..end].trim() });
        rest = &rest[end + 2..];
    }
    out.push(Piece::Text(rest));
    out
}

enum Found<'a> {
    Value(&'a Value),
    /// A member that this value of the parameter does not have.
    Member,
    /// Not the search space's.
    Foreign,
}

fn find<'a>(params: &'a Params, path: &str) -> Found<'a> {
    let mut names = path.split('.');
    let first = names.next();
    let parameter = names.next().and_then(|name| params.get(name));
    let (Some("search_space" | "inputs"), Some(mut value)) = (first, parameter) else {
        return Found::Foreign;
    };
    for name in names {
        match value.get(name) {
            Some(inner) => value = inner,
            None => return Found::Member,
        }
    }
    Found::Value(value)
}

/// Which quotes of the shell a place stands in.
#[derive(Clone, Copy)]
enum Quotes {
    None,
    Single,
    Double,
}

impl Quotes {
    fn after(mut self, text: &str) -> Self {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            self = match (self, letter) {
                (Self::None | Self::Double, '\\') => {
                    letters.next();
                    self
                }
                (Self::None, '\'') => Self::Single,
                (Self::None, '"') => Self::Double,
                (Self::Single, '\'') | (Self::Double, '"') => Self::None,
                (quotes, _) => quotes,
            };
        }
        self
    }

    /// Text that the shell reads as it is, at this place.
    fn word(self, text: &str) -> String {
        match self {
            Self::None => format!("'{}'", text.replace('\'', r"'\''")),
            Self::Single => text.replace('\'', r"'\''"),
            Self::Double => text.chars().fold(String::new(), |mut out, letter| {
                if matches!(letter, '"' | '\\' | '$' | '`') {
                    out.push('\\');
                }
                out.push(letter);
                out
            }),
        }
    }
}

/// As Python's `json.dumps` spaces it.
fn json(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => number.as_f64().map_or_else(String::new, float),
        Value::Array(items) => format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => format!("{{{}}}", object(members)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn object(members: &Map<String, Value>) -> String {
    let member =
        |(name, value): (&String, &Value)| format!("{}: {}", Value::from(name.as_str()), json(value));
    members.iter().map(member).collect::<Vec<_>>().join(", ")
}

/// The shortest digits that mean this number, with an exponent where Python's `repr` has one.
fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ if number.fract() == 0.0 => format!("{number:.1}"),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn the_longest_command_is_known_before_it_is_rendered() {
        let space = |space: Value| {
            let mut sweep = value!({"objective": {"goal": "Maximize", "primaryMetric": "m"}, "samplingAlgorithm": {"samplingAlgorithmType": "Random"}});
            sweep["searchSpace"] = space;
            crate::Sweep::read(&sweep).unwrap()
        };
        let long = "y".repeat(1_000);
        for (sweep, command, least, most) in [
            (space(value!({"x": ["choice", [["a", long]]]})), "echo ${{search_space.x}}", 1_005, 7_000),
            (
                space(value!({"x": ["choice", [["a", long]]]})),
                "${{search_space.x}}${{inputs.x}}${{inputs.y}}",
                2_000,
                14_000,
            ),
            (
                space(value!({"x": ["choice", [[{"k": ["choice", [[long]]]}]]]})),
                "${{search_space.x}}",
                1_000,
                8_000,
            ),
            (space(value!({"x": ["uniform", [0, 1]]})), "echo ${{search_space.x}}", 10, 500),
        ] {
            let bytes = rendered_bytes_max(command, &sweep.space);
            assert!((least..=most).contains(&bytes), "{command}: {bytes}");
            let drawn = crate::next(&sweep, 0, &[], 0).start;
            assert!(drawn.iter().all(|(_, params)| render(command, params).len() <= bytes));
        }
    }

    fn params() -> Params {
        value!({
            "lr": 1e-5, "n": 32, "opt": "adam w", "flag": true, "model": {"name": "it's", "drop": 0.5, "deep": {"k": [1, 2.0]}},
        })
        .as_object()
        .cloned()
        .unwrap()
    }

    #[test]
    fn numbers_are_printed_as_python_does() {
        for (number, expect) in [
            (value!(1), "1"),
            (value!(-7), "-7"),
            (value!(1.0), "1.0"),
            (value!(0.1), "0.1"),
            (value!(1e-5), "1e-05"),
            (value!(0.0001), "0.0001"),
            (value!(0.000_123_4), "0.0001234"),
            (value!(1.5e-7), "1.5e-07"),
            (value!(1e-100), "1e-100"),
            (value!(1e15), "1000000000000000.0"),
            (value!(1e16), "1e+16"),
            (value!(1.234e22), "1.234e+22"),
            (value!(123_456.789), "123456.789"),
            (value!(-0.0), "-0.0"),
            (value!(0.0), "0.0"),
            (value!(1e300), "1e+300"),
            (value!(9_007_199_254_740_993_u64), "9007199254740993"),
            (value!(true), "True"),
            (value!(null), "None"),
            (value!("as it is"), "as it is"),
            (value!({"a": [1, 1e-5, "x", null, true]}), r#"{"a": [1, 1e-05, "x", null, true]}"#),
        ] {
            assert_eq!(print(&number), expect);
        }
    }

    #[test]
    fn places_are_filled() {
        for (command, expect) in [
            (
                "python t.py --lr ${{search_space.lr}} -n ${{ search_space.n }}",
                "python t.py --lr 1e-05 -n 32",
            ),
            ("t ${{inputs.lr}} ${{inputs.data}} ${{outputs.o}}", "t 1e-05 ${{inputs.data}} ${{outputs.o}}"),
            ("t ${{search_space.opt}} ${{search_space.flag}}", "t adam w True"),
            ("t ${{search_space.model.drop}} ${{search_space.model.absent}}.", "t 0.5 ."),
            ("t ${{search_space.other}} ${HOME} ${{", "t ${{search_space.other}} ${HOME} ${{"),
            ("t ${{search_space.model.deep}}", r#"t '{"k": [1, 2.0]}'"#),
            ("t \"${{search_space.model.deep}}\"", r#"t "{\"k\": [1, 2.0]}""#),
            ("t '${{search_space.model.deep}}'", r#"t '{"k": [1, 2.0]}'"#),
            ("t ${{search_space.model}}", r#"t '{"name": "it'\''s", "drop": 0.5, "deep": {"k": [1, 2.0]}}'"#),
            ("é \\\" ${{search_space.model.deep}}", "é \\\" '{\"k\": [1, 2.0]}'"),
            ("$[[--lr ${{inputs.lr}}]]", "$[[--lr 1e-05]]"),
        ] {
            assert_eq!(render(command, &params()), expect, "{command}");
        }
    }

    #[test]
    fn the_environment_has_every_parameter() {
        let set = environment(&params());
        assert_eq!(set["AZUREML_SWEEP_lr"], "1e-05");
        assert_eq!(set["AZUREML_SWEEP_opt"], "adam w");
        assert_eq!(set.len(), 5);
    }

    #[test]
    fn unknown_places_are_named() {
        let space = Space::read(&value!({
            "x": ["uniform", [0, 1]], "m": ["choice", [[{"a": 1}, {"b": ["uniform", [0, 1]]}]]],
        }))
        .unwrap();
        let command = "t ${{search_space.x}} ${{search_space.y}} ${{search_space.m.a}} ${{search_space.m.b}} ${{search_space.m.c}} ${{search_space.x.a}} ${{inputs.q}}";
        assert_eq!(
            unknown_places(command, &space),
            ["${{search_space.y}}", "${{search_space.m.c}}", "${{search_space.x.a}}"]
        );
    }
}
