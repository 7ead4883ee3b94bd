//! The grammar of filters (`metrics.rmse < 1 and params.model = 'tree'`) and of orders (`metrics.rmse DESC`), as text
//! to values. Pure; which attributes there are is not known here.

use crate::{Error, Result, limits};

/// What a condition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    Metric(String),
    Param(String),
    Tag(String),
    /// `name`, `digest` or `context`.
    Dataset(String),
    Attribute(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(super) const fn sql(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Unequal => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Number(Comparison, f64),
    Text(Comparison, String),
    Like { pattern: String, any_case: bool },
    In { values: Vec<String>, not: bool },
    Null { not: bool },
}

/// One condition; all of a filter must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub field: Field,
    pub test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub field: Field,
    pub descending: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name or a word of the grammar, with the quotes around parts of a name still there.
    Word(String),
    Number(f64),
    Text(String),
    Compare(Comparison),
    Open,
    Close,
    Comma,
}

/// Reads a filter. An empty one has no conditions.
pub fn parse_filter(text: &str) -> Result<Vec<Condition>> {
    if text.len() > limits::FILTER_BYTES_MAX {
        return Err(Error::invalid(format!("A filter has at most {} bytes.", limits::FILTER_BYTES_MAX)));
    }
    let tokens = tokens(text)?;
    let mut reader = Reader { tokens: &tokens, at: 0, filter: text };
    let mut conditions = Vec::new();
    while reader.at < tokens.len() {
        if !conditions.is_empty() {
            reader.joint()?;
        }
        conditions.push(reader.condition()?);
        if conditions.len() > limits::CONDITIONS_MAX {
            return Err(reader.wrong(&format!("it has more than {} conditions", limits::CONDITIONS_MAX)));
        }
    }
    Ok(conditions)
}

/// Reads one entry of `order_by`.
pub fn parse_order(text: &str) -> Result<Order> {
    let wrong = |why: &str| Error::invalid(format!("'{text}' cannot be ordered by: {why}."));
    let trimmed = text.trim();
    let (name, descending) = match trimmed.rsplit_once(char::is_whitespace) {
        Some((name, word)) if word.eq_ignore_ascii_case("desc") => (name.trim(), true),
        Some((name, word)) if word.eq_ignore_ascii_case("asc") => (name.trim(), false),
        _ => (trimmed, false),
    };
    if name.is_empty() {
        return Err(wrong("it names nothing"));
    }
    Ok(Order { field: field_of(name).map_err(|why| wrong(&why))?, descending })
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    filter: &'a str,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<&Token> {
        let token = self.tokens.get(self.at);
        self.at += 1;
        token
    }

    fn wrong(&self, why: &str) -> Error {
        Error::invalid(format!("The filter '{}' cannot be read: {why}.", self.filter))
    }

    /// Whether the next token is this word of the grammar; it is taken then.
    fn took(&mut self, word: &str) -> bool {
        let found =
            matches!(self.tokens.get(self.at), Some(Token::Word(text)) if text.eq_ignore_ascii_case(word));
        if found {
            self.at += 1;
        }
        found
    }

    fn joint(&mut self) -> Result<()> {
        if self.took("and") {
            return Ok(());
        }
        if self.took("or") {
            return Err(self.wrong("conditions are joined by AND; OR is not offered"));
        }
        Err(self.wrong("conditions are joined by AND"))
    }

    fn condition(&mut self) -> Result<Condition> {
        let field = match self.next() {
            Some(Token::Word(name)) => field_of(name).map_err(|why| self.wrong(&why))?,
            // A quoted attribute, as in "Run name" = 'x'.
            Some(Token::Text(name)) => Field::Attribute(name.clone()),
            _ => return Err(self.wrong("a condition begins with a name such as metrics.loss")),
        };
        let test = self.test()?;
        Ok(Condition { field, test })
    }

    fn test(&mut self) -> Result<Test> {
        if self.took("is") {
            let not = self.took("not");
            if self.took("null") {
                return Ok(Test::Null { not });
            }
            return Err(self.wrong("after IS comes NULL or NOT NULL"));
        }
        if self.took("not") {
            if self.took("in") {
                return Ok(Test::In { values: self.list()?, not: true });
            }
            return Err(self.wrong("after NOT comes IN"));
        }
        if self.took("in") {
            return Ok(Test::In { values: self.list()?, not: false });
        }
        for (word, any_case) in [("like", false), ("ilike", true)] {
            if self.took(word) {
                return match self.next() {
                    Some(Token::Text(pattern)) if pattern.len() > limits::LIKE_BYTES_MAX => {
                        let most = limits::LIKE_BYTES_MAX;
                        Err(self.wrong(&format!("a pattern after LIKE has at most {most} bytes")))
                    }
                    Some(Token::Text(pattern)) => Ok(Test::Like { pattern: pattern.clone(), any_case }),
                    _ => Err(self.wrong("after LIKE comes a text in quotes")),
                };
            }
        }
        let Some(Token::Compare(comparison)) = self.next().cloned() else {
            return Err(self.wrong("after a name comes =, !=, <, <=, >, >=, LIKE, ILIKE, IN or IS NULL"));
        };
        match self.next() {
            Some(Token::Number(number)) => Ok(Test::Number(comparison, *number)),
            Some(Token::Text(text)) => Ok(Test::Text(comparison, text.clone())),
            Some(Token::Word(word)) => {
                let why = format!("'{word}' must be a number, or in quotes");
                Err(self.wrong(&why))
            }
            _ => Err(self.wrong("a value is missing")),
        }
    }

    fn list(&mut self) -> Result<Vec<String>> {
        if self.next() != Some(&Token::Open) {
            return Err(self.wrong("after IN comes a list in parentheses"));
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Some(Token::Text(text)) => values.push(text.clone()),
                Some(Token::Close) if values.is_empty() => return Ok(values),
                _ => return Err(self.wrong("the list after IN has texts in quotes")),
            }
            if values.len() > limits::LIST_VALUES_MAX {
                return Err(self.wrong(&format!("a list has at most {} values", limits::LIST_VALUES_MAX)));
            }
            match self.next() {
                Some(Token::Comma) => {}
                Some(Token::Close) => return Ok(values),
                _ => return Err(self.wrong("the list after IN is not closed")),
            }
        }
    }
}

fn field_of(name: &str) -> std::result::Result<Field, String> {
    let Some((kind, key)) = name.split_once('.') else {
        return Ok(Field::Attribute(unquoted(name).to_owned()));
    };
    let key = unquoted(key).to_owned();
    if key.is_empty() {
        return Err(format!("'{name}' names nothing after its dot"));
    }
    match kind.to_ascii_lowercase().as_str() {
        "metric" | "metrics" => Ok(Field::Metric(key)),
        "param" | "params" | "parameter" | "parameters" => Ok(Field::Param(key)),
        "tag" | "tags" => Ok(Field::Tag(key)),
        "dataset" | "datasets" => Ok(Field::Dataset(key)),
        "attribute" | "attributes" | "attr" | "run" => Ok(Field::Attribute(key)),
        _ => Err(format!("'{kind}' is none of metrics, params, tags, datasets and attributes")),
    }
}

/// The name between its quotes.
fn unquoted(name: &str) -> &str {
    for quote in ['`', '"'] {
        if let Some(inner) = name.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    name
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let wrong = |why: &str| Error::invalid(format!("The filter '{text}' cannot be read: {why}."));
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            '=' | '!' | '<' | '>' => comparison(rest).ok_or_else(|| wrong("'!' stands alone"))?,
            '\'' | '"' => {
                let (inner, length) = quoted(rest, first).ok_or_else(|| wrong("a quote is not closed"))?;
                (Token::Text(inner), length)
            }
            _ => {
                let length = word_length(rest).ok_or_else(|| wrong("a quote is not closed"))?;
                let word = &rest[..length];
                match word.parse::<f64>() {
                    Ok(number) if first.is_ascii_digit() || "+-.".contains(first) => {
                        (Token::Number(number), length)
                    }
                    _ => (Token::Word(word.to_owned()), length),
                }
            }
        };
        out.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(out)
}

fn comparison(text: &str) -> Option<(Token, usize)> {
    let found = [
        ("!=", Comparison::Unequal),
        ("<>", Comparison::Unequal),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("==", Comparison::Equal),
        ("=", Comparison::Equal),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    found
        .into_iter()
        .find(|(word, _)| text.starts_with(word))
        .map(|(word, comparison)| (Token::Compare(comparison), word.len()))
}

/// A text in quotes, where the quote doubled is the quote itself; and how long it is with them.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut inner = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            inner.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
            inner.push(quote);
            chars.next();
        } else {
            return Some((inner, at + c.len_utf8()));
        }
    }
    None
}

/// How far a name or word goes: to a space, a comparison or a bracket that is not within quotes.
fn word_length(text: &str) -> Option<usize> {
    let mut within: Option<char> = None;
    for (at, c) in text.char_indices() {
        match within {
            Some(quote) if c == quote => within = None,
            Some(_) => {}
            None if c == '`' || c == '"' => within = Some(c),
            None if c.is_whitespace() || "=!<>(),'".contains(c) => return Some(at),
            None => {}
        }
    }
    within.is_none().then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_short() {
        let filter = |bytes: usize| parse_filter(&format!("tags.a LIKE '{}'", "%".repeat(bytes)));
        assert!(filter(limits::LIKE_BYTES_MAX).is_ok());
        assert!(filter(limits::LIKE_BYTES_MAX + 1).unwrap_err().to_string().contains("at most 500 bytes"));
    }
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal};

    fn check(text: &str, expect: &[(Field, Test)]) {
        let expect: Vec<_> = expect
            .iter()
            .map(|(field, test)| Condition { field: field.clone(), test: test.clone() })
            .collect();
        assert_eq!(parse_filter(text).unwrap(), expect, "{text}");
    }

    fn refused(text: &str, because: &str) {
        let error = parse_filter(text).unwrap_err().to_string();
        assert!(error.contains(because), "{text}: {error}");
    }

    fn metric(key: &str) -> Field {
        Field::Metric(key.into())
    }

    fn text(comparison: Comparison, value: &str) -> Test {
        Test::Text(comparison, value.into())
    }

    #[test]
    fn every_kind_of_field() {
        check("", &[]);
        check("   ", &[]);
        check("metrics.rmse < 1", &[(metric("rmse"), Test::Number(Less, 1.0))]);
        check("metric.rmse<=1e-3", &[(metric("rmse"), Test::Number(LessOrEqual, 0.001))]);
        check("metrics.`a b` >= -.5", &[(metric("a b"), Test::Number(GreaterOrEqual, -0.5))]);
        check("metrics.\"x=1\" > +2", &[(metric("x=1"), Test::Number(Greater, 2.0))]);
        check("params.model = 'tree'", &[(Field::Param("model".into()), text(Equal, "tree"))]);
        check("parameter.lr != \"0.1\"", &[(Field::Param("lr".into()), text(Unequal, "0.1"))]);
        check(
            "tags.mlflow.parentRunId='p-1'",
            &[(Field::Tag("mlflow.parentRunId".into()), text(Equal, "p-1"))],
        );
        check("tags.`mlflow.user` <> 'me'", &[(Field::Tag("mlflow.user".into()), text(Unequal, "me"))]);
        check(
            "attributes.status = 'FINISHED'",
            &[(Field::Attribute("status".into()), text(Equal, "FINISHED"))],
        );
        check("start_time > 17", &[(Field::Attribute("start_time".into()), Test::Number(Greater, 17.0))]);
        check("\"Run name\" = 'x'", &[(Field::Attribute("Run name".into()), text(Equal, "x"))]);
        check("datasets.name = 'iris'", &[(Field::Dataset("name".into()), text(Equal, "iris"))]);
    }

    #[test]
    fn every_kind_of_test() {
        let run_id = || Field::Attribute("run_id".into());
        let like = |pattern: &str, any_case| Test::Like { pattern: pattern.into(), any_case };
        check("params.a LIKE 'x%'", &[(Field::Param("a".into()), like("x%", false))]);
        check("tags.a ilike '%X_'", &[(Field::Tag("a".into()), like("%X_", true))]);
        check(
            "run_id IN ('a', 'b')",
            &[(run_id(), Test::In { values: vec!["a".into(), "b".into()], not: false })],
        );
        check("run_id in()", &[(run_id(), Test::In { values: vec![], not: false })]);
        check("run_id NOT IN ('a')", &[(run_id(), Test::In { values: vec!["a".into()], not: true })]);
        check("tags.x IS NULL", &[(Field::Tag("x".into()), Test::Null { not: false })]);
        check("tags.x is not null", &[(Field::Tag("x".into()), Test::Null { not: true })]);
        check("params.q = 'it''s'", &[(Field::Param("q".into()), text(Equal, "it's"))]);
        check("params.q = 'a and b'", &[(Field::Param("q".into()), text(Equal, "a and b"))]);
    }

    #[test]
    fn conditions_are_joined_by_and() {
        check(
            "metrics.a>1 and params.b='c' AND status = 'RUNNING'",
            &[
                (metric("a"), Test::Number(Greater, 1.0)),
                (Field::Param("b".into()), text(Equal, "c")),
                (Field::Attribute("status".into()), text(Equal, "RUNNING")),
            ],
        );
        refused("metrics.a > 1 or metrics.b > 2", "OR is not offered");
        refused("metrics.a > 1 metrics.b > 2", "joined by AND");
        refused("metrics.a > 1 and", "begins with a name");
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        refused("metrics.a >", "a value is missing");
        refused("metrics.a", "after a name comes");
        refused("params.a = x", "'x' must be a number, or in quotes");
        refused("params.a = 'x", "not closed");
        refused("metrics.`a > 1", "not closed");
        refused("foo.bar = 1", "none of metrics, params");
        refused("metrics. > 1", "names nothing");
        refused("params.a ! 'x'", "'!' stands alone");
        refused("run_id IN 'a'", "a list in parentheses");
        refused("run_id IN ('a'", "not closed");
        refused("run_id IN (1)", "texts in quotes");
        refused("tags.x IS 3", "NULL or NOT NULL");
        refused(&"metrics.a > 1 and ".repeat(60), "more than 50 conditions");
        refused(&" ".repeat(20_000), "at most");
    }

    #[test]
    fn orders() {
        let check = |text: &str, field: Field, descending: bool| {
            assert_eq!(parse_order(text).unwrap(), Order { field, descending }, "{text}");
        };
        check("metrics.rmse DESC", metric("rmse"), true);
        check("metrics.`a b` asc", metric("a b"), false);
        check("metrics.`a b`", metric("a b"), false);
        check("params.x", Field::Param("x".into()), false);
        check("attributes.start_time desc", Field::Attribute("start_time".into()), true);
        check("start_time", Field::Attribute("start_time".into()), false);
        assert!(parse_order(" ").is_err());
        assert!(parse_order("foo.bar").is_err());
    }
}
