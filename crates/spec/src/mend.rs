//! A document without its problems: what the server is asked about, so that it can say what else would be wrong, and
//! everything is told at once.

use crate::document::Document;
use crate::error::{Error, Flaw, Problem};
use crate::overrides::{remove_path, rename_key, set_path};
use serde_json::Value;
use std::collections::BTreeSet;

/// Taking problems away may bring others to light; a document that is still wrong after so many times is left alone.
const ROUNDS_MAX: usize = 4;

/// What was built of a document that is wrong.
#[derive(Debug)]
pub struct Mended<T> {
    pub built: T,
    /// Keys whose values could not be read: what is said of the rest says nothing of these.
    guessed: BTreeSet<String>,
}

impl<T> Mended<T> {
    /// Whether a server's word about what was built holds for what was written, too.
    pub fn holds(&self, code: &str, message: &str) -> bool {
        if self.guessed.is_empty() {
            return true;
        }
        if code == "InvalidScaleSettings" {
            let is_guessed =
                |(key, word): &(&str, &str)| self.guessed.contains(*key) && message.contains(word);
            return !SCALE_WORDS.iter().any(is_guessed);
        }
        match depends_on(code) {
            Some(keys) => !keys.iter().any(|key| self.guessed.contains(*key)),
            None => false,
        }
    }
}

/// Builds what can be built of a document with these problems: a misspelt key is taken for what was probably meant,
/// anything else that is wrong is left out. `stand_ins` are for keys that nothing can be built without.
pub fn mended<T>(
    document: &Document,
    problems: Vec<Problem>,
    stand_ins: &[(&str, &str)],
    build: impl Fn(&Document) -> Result<T, Error>,
) -> Option<Mended<T>> {
    let mut document = document.clone();
    let mut guessed = BTreeSet::new();
    let mut problems = problems;
    for _ in 0..ROUNDS_MAX {
        for problem in &problems {
            take_away(&mut document.value, problem, &mut guessed)?;
            if let Some((key, value)) = stand_ins.iter().find(|(key, _)| *key == problem.path) {
                set_path(&mut document.value, key, Value::from(*value)).ok()?;
            }
        }
        match build(&document) {
            Ok(built) => return Some(Mended { built, guessed }),
            Err(Error::Problems(more)) => problems = more,
            Err(_) => return None,
        }
    }
    None
}

/// `None` where the problem lies in another file.
fn take_away(value: &mut Value, problem: &Problem, guessed: &mut BTreeSet<String>) -> Option<()> {
    if problem.file.is_some() || problem.path.is_empty() {
        return None;
    }
    match &problem.flaw {
        Flaw::Key { meant: Some(meant) } if rename_key(value, &problem.path, meant) => {}
        Flaw::Key { .. } => {
            // What is below a key whose name has a dot stays; building it again tells.
            remove_path(value, &problem.path).ok()?;
        }
        Flaw::Value => {
            remove_path(value, &problem.path).ok()?;
            let keys = problem.path.split(['.', '[', ']']).filter(|key| !key.is_empty());
            guessed.extend(keys.map(str::to_owned));
        }
    }
    Some(())
}

/// The keys of a cluster's scale, and what a refusal that goes by them calls them.
const SCALE_WORDS: &[(&str, &str)] = &[
    ("min_instances", "minNodeCount"),
    ("max_instances", "maxNodeCount"),
    ("dedicated_instances", "dedicated_instances"),
    ("tier", "dedicated_instances"),
    ("idle_time_before_scale_down", "idle time"),
];

/// The keys that a refusal with this code goes by; `None` where it may be any.
fn depends_on(code: &str) -> Option<&'static [&'static str]> {
    const NODES: &[&str] = &[
        "min_instances",
        "max_instances",
        "dedicated_instances",
        "tier",
        "size",
        "location",
        "compute",
        "resources",
        "job_tier",
        "jobs",
    ];
    Some(match code {
        // Without a tier it is dedicated, which every size has.
        "InvalidVmSize" => &["size", "location"],
        "LocationNotAvailable" => &["location", "size"],
        "InvalidResourceName" | "JobNameTaken" | "ComputeNameTaken" => &["name"],
        "EnvironmentNotFound" => &["environment", "jobs"],
        "ComputeNotFound" => &["compute", "jobs"],
        "CodeNotFound" => &["code", "jobs"],
        "DatastoreNotFound" => &["inputs", "outputs", "jobs"],
        "ResourceTooLarge"
        | "ClusterCoreQuotaReached"
        | "ClusterMinNodesExceedCoreQuota"
        | "JobNodeCountExceedsCoreQuota"
        | "JobTierNotAvailable"
        | "GpuNotAvailable"
        | "BudgetTooSmall" => NODES,
        "ScopeLocked"
        | "AuthorizationFailed"
        | "AuthenticationFailed"
        | "ResourceGroupNotFound"
        | "ParentResourceNotFound"
        | "ResourceBeingDeleted"
        | "LimitReached" => &[],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ComputeRequest, Scope, compute_request};
    use serde_json::json;

    const ABOVE: &str = "minNodeCount is 5 and maxNodeCount is 4; the minimum cannot be above the maximum.";

    fn scope() -> Scope {
        Scope { subscription_id: "S".into(), resource_group: "R".into(), workspace: "W".into() }
    }

    fn of(text: &str) -> Option<Mended<ComputeRequest>> {
        let document = Document::parse(text).unwrap();
        let build = |document: &Document| compute_request(document, &scope());
        let Err(Error::Problems(problems)) = build(&document) else { panic!("{text} is not wrong") };
        mended(&document, problems, &[("name", "unnamed"), ("type", "amlcompute")], build)
    }

    #[test]
    fn a_misspelt_key_is_what_was_meant() {
        let mended =
            of("name: c\ntype: amlcompute\nmax_instnces: 9\nmin_instances: 5\ncolour: red\n").unwrap();
        let scale = &mended.built.body["properties"]["properties"]["scaleSettings"];
        assert_eq!((&scale["maxNodeCount"], &scale["minNodeCount"]), (&json!(9), &json!(5)));
        assert!(mended.holds("InvalidScaleSettings", ABOVE) && mended.holds("BadArgument", ""));
    }

    #[test]
    fn a_key_that_is_there_twice_is_taken_as_it_is_written_right() {
        let mended = of("name: c\ntype: amlcompute\nmax_instnces: 9\nmax_instances: 3\n").unwrap();
        assert_eq!(mended.built.body["properties"]["properties"]["scaleSettings"]["maxNodeCount"], 3);
    }

    #[test]
    fn nothing_is_said_of_what_could_not_be_read() {
        let mended = of("name: c\ntype: amlcompute\nmax_instances: five\nmin_instances: 5\n").unwrap();
        assert!(!mended.holds("InvalidScaleSettings", ABOVE), "the maximum is a guess");
        assert!(mended.holds("InvalidScaleSettings", "minNodeCount is -1; it must be between 0 and 65000."));
        assert!(!mended.holds("ClusterCoreQuotaReached", "") && !mended.holds("SomethingElse", ""));
        assert!(mended.holds("InvalidVmSize", "") && mended.holds("LocationNotAvailable", ""));
        // The second look finds the first one's value wrong.
        let mended = of("name: c\ntype: amlcompute\nmax_instnces: five\n").unwrap();
        assert!(!mended.holds("InvalidScaleSettings", ABOVE));
    }

    #[test]
    fn what_is_needed_and_missing_is_stood_in_for() {
        let mended = of("size: Standard_Nope\nmin_instances: 1\n").unwrap();
        assert_eq!(mended.built.name, "unnamed");
        assert!(mended.holds("InvalidVmSize", "") && !mended.holds("InvalidResourceName", ""));
        assert!(
            of("name: c\ntype: amlcompute\nssh_settings: {admin_password: x}\n").is_none(),
            "nothing stands in"
        );
    }
}
