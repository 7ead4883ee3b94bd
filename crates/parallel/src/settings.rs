//! A parallel job as the user asks for it, read from the body of a pipeline's step. All problems at once.

use serde_json::Value;

use crate::limits;

/// How mini-batches are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// So many files.
    Files(u64),
    /// Whole files, up to so many bytes.
    Bytes(u64),
    /// Files of the same partition.
    Keys(Vec<String>),
}

impl Default for By {
    fn default() -> Self {
        Self::Files(1)
    }
}

/// A problem with a place below the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub at: String,
    pub says: String,
}

/// How a scoring script of a batch endpoint finds what is its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The input that is the model.
    pub model: Option<String>,
    /// The output that files are written to.
    pub output: String,
    /// What the file of rows is called in the output that is a folder.
    pub rows_file: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parallel {
    pub entry_script: String,
    /// What the entry script sees; those that are ours are taken out.
    pub arguments: String,
    /// The name of the input that is divided.
    pub input: String,
    /// `run` is given a table of rows, not names of files.
    pub is_table: bool,
    /// The name of the output that collects what `run` returns.
    pub append_row_to: Option<String>,
    pub by: By,
    /// Failed mini-batches that are allowed; -1: all.
    pub mini_batch_error_threshold: i64,
    /// Files (rows of a table) without a result that are allowed; -1: all.
    pub error_threshold: i64,
    pub allowed_failed_percent: Option<u32>,
    /// `DEBUG`, `INFO` or `WARNING`.
    pub logging_level: String,
    /// Processes on each node; as many as it has processors unless it is said.
    pub concurrency: Option<u32>,
    pub max_retries: u32,
    pub timeout_s: u32,
    /// Nodes.
    pub instances: u32,
    /// What a batch endpoint adds, where one is behind it.
    pub served: Option<Served>,
    /// What was taken and has no effect.
    pub notes: Vec<String>,
}

/// Arguments that Azure ML's own driver takes for itself.
const WITHOUT_EFFECT: &[&str] = &[
    "task_overhead_timeout",
    "progress_update_timeout",
    "first_task_creation_timeout",
    "copy_logs_to_parent",
    "metrics_name_prefix",
    "push_metrics_to_parent",
    "resource_monitor_interval",
];

impl Parallel {
    /// Reads the properties of a job of type `Parallel`.
    ///
    /// # Errors
    /// Every problem, each with its place.
    pub fn read(properties: &Value) -> Result<Self, Vec<Problem>> {
        let (settings, problems) = Self::read_leniently(properties);
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    /// The same, with what can be read in spite of problems, so that the rest of the step can be looked at too.
    #[must_use]
    pub fn read_leniently(properties: &Value) -> (Self, Vec<Problem>) {
        let mut reader = Reader { properties, problems: Vec::new() };
        let settings = reader.read();
        (settings, reader.problems)
    }
}

struct Reader<'a> {
    properties: &'a Value,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn problem(&mut self, at: &str, says: impl Into<String>) {
        self.problems.push(Problem { at: at.into(), says: says.into() });
    }

    fn read(&mut self) -> Parallel {
        let asked = self.properties;
        let task = &asked["task"];
        let mut out = Parallel { notes: Vec::new(), ..Parallel::default() };
        match task["type"].as_str() {
            None | Some("run_function") => {}
            Some(other) => self.problem(
                "task.type",
                format!("'{other}' is not supported: run_function is, with an entry_script that has init() and run(mini_batch)"),
            ),
        }
        out.entry_script = self.entry_script(task);
        let (arguments, ours) = take_ours(task["program_arguments"].as_str().unwrap_or(""));
        out.arguments = arguments;
        out.input = self.bound(asked["input_data"].as_str(), "inputs", "input_data").unwrap_or_default();
        let input = &asked["inputs"][&out.input];
        let kind = input["jobInputType"].as_str().unwrap_or("");
        out.is_table = kind.eq_ignore_ascii_case("mltable");
        if !out.input.is_empty()
            && (input.is_null() || kind.is_empty() || kind.eq_ignore_ascii_case("literal"))
        {
            self.problem(
                "input_data",
                format!(
                    "'{}' is not one of the step's inputs that are files (uri_folder, uri_file, mltable)",
                    out.input
                ),
            );
        }
        if !task["append_row_to"].is_null() {
            out.append_row_to = self.bound(task["append_row_to"].as_str(), "outputs", "task.append_row_to");
            if let Some(name) = &out.append_row_to
                && asked["outputs"][name].is_null()
            {
                self.problem("task.append_row_to", format!("'{name}' is not one of the step's outputs"));
            }
        }
        out.by = self.by(out.is_table);
        out.mini_batch_error_threshold =
            self.threshold(&asked["mini_batch_error_threshold"], "mini_batch_error_threshold");
        out.error_threshold = self.threshold(&asked["error_threshold"], "error_threshold");
        out.logging_level = match asked["logging_level"].as_str().map(str::to_ascii_uppercase) {
            None => "INFO".into(),
            Some(level) if ["DEBUG", "INFO", "WARNING"].contains(&level.as_str()) => level,
            Some(level) => {
                self.problem("logging_level", format!("'{level}' is not a level: DEBUG, INFO or WARNING"));
                String::new()
            }
        };
        let instances = &asked["resources"]["instanceCount"];
        out.instances = self.whole(instances, "resources.instance_count", 1, 1, limits::INSTANCES_MAX);
        let concurrency = &asked["max_concurrency_per_instance"];
        out.concurrency = (!concurrency.is_null())
            .then(|| self.whole(concurrency, "max_concurrency_per_instance", 1, 1, limits::CONCURRENCY_MAX));
        let retry = &asked["retry_settings"];
        out.max_retries = self.whole(
            &retry["max_retries"],
            "retry_settings.max_retries",
            limits::RETRIES_DEFAULT,
            0,
            limits::RETRIES_MAX,
        );
        out.timeout_s = self.whole(
            &retry["timeout"],
            "retry_settings.timeout",
            limits::TIMEOUT_S_DEFAULT,
            1,
            limits::TIMEOUT_S_MAX,
        );
        out.served = self.served(&asked["batch_endpoint"]);
        self.ours(&mut out, ours);
        out
    }

    fn entry_script(&mut self, task: &Value) -> String {
        let script = task["entry_script"].as_str().unwrap_or("").trim();
        let script = script.strip_prefix("./").unwrap_or(script);
        let steps_out = script.split('/').any(|part| part == ".." || part.is_empty());
        if script.is_empty() {
            self.problem(
                "task.entry_script",
                "is missing: the Python file in the code that has init() and run(mini_batch)",
            );
        } else if steps_out || script.contains('\\') {
            self.problem("task.entry_script", format!("'{script}' does not lie in the code"));
        }
        if task["code"].as_str().unwrap_or("").is_empty() {
            self.problem("task.code", "is missing: the folder that the entry script lies in");
        }
        script.to_owned()
    }

    fn served(&mut self, given: &Value) -> Option<Served> {
        if given.is_null() {
            return None;
        }
        let text = |key: &str| given[key].as_str().map(String::from);
        let rows_file = text("rows_file");
        if let Some(bad) = rows_file.as_deref().filter(|name| !is_file_name(name)) {
            self.problem("batch_endpoint", format!("'{bad}' is not the name of a file"));
        }
        Some(Served { model: text("model"), output: text("output").unwrap_or_default(), rows_file })
    }

    /// The `x` of `${{inputs.x}}`.
    fn bound(&mut self, text: Option<&str>, kind: &str, at: &str) -> Option<String> {
        let inside = text.and_then(|text| text.trim().strip_prefix("${{")?.strip_suffix("}}"));
        let name = inside.and_then(|inside| inside.trim().strip_prefix(kind)?.strip_prefix('.'));
        if name.is_none() {
            let said = text.map_or_else(|| "is missing".into(), |text| format!("'{text}' is not a binding"));
            self.problem(at, format!("{said}: write ${{{{{kind}.NAME}}}}"));
        }
        name.map(String::from)
    }

    fn by(&mut self, is_table: bool) -> By {
        let keys = &self.properties["partition_keys"];
        if let Some(list) = keys.as_array().filter(|list| !list.is_empty()) {
            let words: Option<Vec<String>> = list
                .iter()
                .map(|key| {
                    key.as_str().filter(|key| !key.is_empty() && !key.contains(['/', '='])).map(String::from)
                })
                .collect();
            if words.is_none() {
                self.problem("partition_keys", "must be a list of names of folders' keys");
            }
            return By::Keys(words.unwrap_or_default());
        }
        if !keys.is_null() && !keys.is_array() {
            self.problem("partition_keys", "must be a list");
        }
        let size = &self.properties["mini_batch_size"];
        let text = match size {
            Value::Null if is_table => return By::Bytes(limits::TABLE_BYTES_DEFAULT),
            Value::Null => return By::Files(1),
            Value::String(text) => text.trim().to_ascii_lowercase(),
            other => other.to_string(),
        };
        read_size(&text).unwrap_or_else(|| {
            let says = format!("'{text}' is neither a number of files (10) nor a size (10kb, 1mb, 1gb)");
            self.problem("mini_batch_size", says);
            By::default()
        })
    }

    fn threshold(&mut self, value: &Value, at: &str) -> i64 {
        match number(value) {
            None if value.is_null() => -1,
            Some(number) if number >= -1 => number,
            _ => {
                self.problem(
                    at,
                    format!("{value} is not a number of failures: -1 (all are ignored), 0 or more"),
                );
                -1
            }
        }
    }

    fn whole(&mut self, value: &Value, at: &str, default: u64, least: u64, most: u64) -> u32 {
        let read =
            if value.is_null() { Some(default) } else { number(value).and_then(|n| u64::try_from(n).ok()) };
        match read.filter(|n| (least..=most).contains(n)).and_then(|n| u32::try_from(n).ok()) {
            Some(number) => number,
            None => {
                self.problem(at, format!("{value} is not a whole number from {least} to {most}"));
                1
            }
        }
    }

    /// What the arguments say to the driver, over what the fields say.
    fn ours(&mut self, out: &mut Parallel, ours: Vec<(String, String)>) {
        for (name, value) in ours {
            let at = format!("task.program_arguments --{name}");
            let given = Value::String(value);
            match name.as_str() {
                "error_threshold" => out.error_threshold = self.threshold(&given, &at),
                "allowed_failed_count" => out.mini_batch_error_threshold = self.threshold(&given, &at),
                "allowed_failed_percent" => {
                    out.allowed_failed_percent = Some(self.whole(&given, &at, 100, 0, 100));
                }
                _ => out.notes.push(format!("--{name} of program_arguments is taken out and has no effect.")),
            }
        }
    }
}

/// One name, with no way out of its folder.
#[must_use]
pub fn is_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= limits::FILE_NAME_BYTES_MAX
        && !matches!(name, "." | "..")
        && !name.contains(['/', '\\', '\0', '\n'])
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_i64(),
    }
}

fn read_size(text: &str) -> Option<By> {
    for (unit, bytes) in [("kb", 1_u64 << 10), ("mb", 1 << 20), ("gb", 1 << 30)] {
        if let Some(count) = text.strip_suffix(unit) {
            let count: u64 = count.trim().parse().ok().filter(|count| *count > 0)?;
            return count.checked_mul(bytes).map(By::Bytes);
        }
    }
    text.parse().ok().filter(|count| *count > 0).map(By::Files)
}

/// Takes the driver's own arguments out; the rest stays as it was written.
fn take_ours(text: &str) -> (String, Vec<(String, String)>) {
    let words = words(text);
    let (mut rest, mut ours, mut from) = (String::new(), Vec::new(), 0);
    let mut at = 0;
    while let Some((start, end)) = words.get(at).copied() {
        at += 1;
        let word = &text[start..end];
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let Some(name) = name.strip_prefix("--") else { continue };
        let honoured = ["error_threshold", "allowed_failed_count", "allowed_failed_percent"];
        if !honoured.contains(&name) && !WITHOUT_EFFECT.contains(&name) {
            continue;
        }
        let (value, end) = match (value, words.get(at)) {
            (Some(value), _) => (value, end),
            (None, Some((start, end))) => {
                at += 1;
                (&text[*start..*end], *end)
            }
            (None, None) => ("", end),
        };
        ours.push((name.to_owned(), value.trim_matches(['"', '\'']).to_owned()));
        rest.push_str(&text[from..start]);
        from = end;
    }
    rest.push_str(&text[from..]);
    (rest.trim().to_owned(), ours)
}

/// Where each word begins and ends; blanks in quotes part nothing.
fn words(text: &str) -> Vec<(usize, usize)> {
    let (mut out, mut begun, mut quote) = (Vec::new(), None, None);
    for (at, c) in text.char_indices() {
        if c.is_whitespace() && quote.is_none() {
            if let Some(start) = begun.take() {
                out.push((start, at));
            }
            continue;
        }
        begun.get_or_insert(at);
        quote = match quote {
            None if c == '"' || c == '\'' => Some(c),
            Some(open) if open == c => None,
            other => other,
        };
    }
    out.extend(begun.map(|start| (start, text.len())));
    out
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
