//! Why a command did not do what was asked, in the words and with the exit code that the user gets.

use serde_json::Value;
use std::process::ExitCode;

/// The exit codes, one meaning each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The server refused, or what was waited for failed.
    Failed = 1,
    /// The command line or a file given by it is wrong.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// No server answers.
    Unreachable = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// A failure with all that helps: every detail, hints, and a page to read.
#[derive(Debug, Clone)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    pub details: Vec<String>,
    pub hints: Vec<String>,
    pub help: Option<String>,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), details: Vec::new(), hints: Vec::new(), help: None }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// A specification with these problems, a line each.
    pub fn of_specification(problems: Vec<String>) -> Self {
        let count = match problems.len() {
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        };
        Self { details: problems, ..Self::usage(format!("the specification has {count}")) }
    }

    /// The same, said of the file that it is in.
    #[must_use]
    pub fn of_file(mut self, file: Option<&std::path::Path>) -> Self {
        if let Some(file) = file {
            self.message = format!("{}: {}", file.display(), self.message);
        }
        self
    }

    /// All that it tells, a line for each problem.
    pub fn lines(self) -> Vec<String> {
        if self.details.is_empty() { vec![self.message] } else { self.details }
    }

    /// Something on the local disk could not be read or written.
    pub fn file(action: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::failed(format!("cannot {action} {}: {error}", path.display()))
    }

    /// The server answered with an error: ARM's form, or whatever text there was.
    pub fn from_answer(status: u16, body: &Value, raw: &str) -> Self {
        let error = body.get("error").unwrap_or(body);
        let said = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let message = match (said("code"), said("message")) {
            ("", "") if raw.trim().is_empty() => format!("the server answered {status} without a word"),
            ("", "") => format!("the server answered {status}: {}", raw.trim()),
            ("", message) => message.to_owned(),
            (code, message) => format!("({code}) {message}"),
        };
        let exit = if status == 404 { Exit::NotFound } else { Exit::Failed };
        let mut failure = Self::new(exit, message);
        for detail in error.get("details").and_then(Value::as_array).into_iter().flatten() {
            let said = |key: &str| detail.get(key).and_then(Value::as_str).unwrap_or_default();
            let mut line = match said("code") {
                "" => said("message").to_owned(),
                code => format!("({code}) {}", said("message")),
            };
            if !said("target").is_empty() {
                line.push_str(&format!(" [{}]", said("target")));
            }
            failure.details.push(line);
        }
        // A single problem is the headline already.
        if let [only] = failure.details.as_slice()
            && only.starts_with(&failure.message)
        {
            failure.details.clear();
        }
        for info in error.get("additionalInfo").and_then(Value::as_array).into_iter().flatten() {
            let info = info.get("info").unwrap_or(info);
            if let Some(help) = info.get("help").and_then(Value::as_str) {
                failure.help = Some(help.to_owned());
            }
            if let Some(hint) = info.get("hint").and_then(Value::as_str) {
                failure.hints.push(hint.to_owned());
            }
        }
        if status == 401 {
            failure.hints.push(
                "the server did not accept this identity; use the --data folder that the server uses, or run \
                 eval \"$(neap env)\" again"
                    .to_owned(),
            );
        }
        failure
    }
}

impl From<neap_spec::Error> for Failure {
    fn from(error: neap_spec::Error) -> Self {
        match error {
            neap_spec::Error::Problems(problems) => {
                Self::of_specification(problems.iter().map(ToString::to_string).collect())
            }
            other => Self::usage(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, Failure};
    use serde_json::json;

    #[test]
    fn an_arm_error_keeps_every_detail() {
        let body = json!({"error": {"code": "InvalidCluster", "message": "Not accepted.",
            "details": [{"code": "A", "message": "one"}, {"message": "two", "target": "size"}],
            "additionalInfo": [{"type": "Neap", "info": {"help": "docs/errors/InvalidCluster.md"}}]}});
        let failure = Failure::from_answer(400, &body, "");
        assert_eq!(failure.message, "(InvalidCluster) Not accepted.");
        assert_eq!(failure.details, ["(A) one", "two [size]"]);
        assert_eq!(failure.help.as_deref(), Some("docs/errors/InvalidCluster.md"));
        assert_eq!(Failure::from_answer(404, &json!({}), "").exit, Exit::NotFound);
        assert_eq!(Failure::from_answer(502, &json!(null), "bad").message, "the server answered 502: bad");
    }
}
