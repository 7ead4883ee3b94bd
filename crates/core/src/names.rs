//! The rules of names, each a function from text to the problem with it.

use crate::limits;
use crate::problem::{Code, Problem};

/// A cluster's name: 3–24 letters, digits and `-`, starting with a letter; the last `-` has a letter after it.
pub fn check_cluster_name(name: &str) -> Option<Problem> {
    let problem = |why: &str| {
        Some(
            Problem::new(
                Code::InvalidResourceName,
                format!(
                    "The compute name '{name}' {why}. A name has {} to {} characters, letters, digits and '-', starts with \
                     a letter, and has a letter after its last '-'.",
                    limits::CLUSTER_NAME_CHARS_MIN,
                    limits::CLUSTER_NAME_CHARS_MAX
                ),
            )
            .at("name"),
        )
    };
    let length = name.chars().count();
    if !(limits::CLUSTER_NAME_CHARS_MIN..=limits::CLUSTER_NAME_CHARS_MAX).contains(&length) {
        return problem(&format!("has {length} characters"));
    }
    if let Some(bad) = name.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
        return problem(&format!("contains '{bad}'"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return problem("does not start with a letter");
    }
    if let Some((_, tail)) = name.rsplit_once('-')
        && !tail.contains(|c: char| c.is_ascii_alphabetic())
    {
        return problem("has no letter after its last '-'");
    }
    None
}

/// A workspace's name: 2–33 letters, digits, `-` and `_`, starting with a letter or digit.
pub fn check_workspace_name(name: &str) -> Option<Problem> {
    let length = name.chars().count();
    let good = (limits::WORKSPACE_NAME_CHARS_MIN..=limits::WORKSPACE_NAME_CHARS_MAX).contains(&length)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    (!good).then(|| {
        Problem::new(
            Code::InvalidResourceName,
            format!(
                "The workspace name '{name}' is not valid: {} to {} letters, digits, '-' and '_', starting with a letter or digit.",
                limits::WORKSPACE_NAME_CHARS_MIN,
                limits::WORKSPACE_NAME_CHARS_MAX
            ),
        )
        .at("name")
    })
}

/// A resource group's name: up to 90 letters, digits and `-_.()`, not ending with a dot.
pub fn check_resource_group_name(name: &str) -> Option<Problem> {
    let length = name.chars().count();
    let good = (1..=limits::RESOURCE_GROUP_NAME_CHARS_MAX).contains(&length)
        && !name.ends_with('.')
        && name.chars().all(|c| c.is_alphanumeric() || "-_.()".contains(c));
    (!good).then(|| {
        Problem::new(
            Code::InvalidResourceName,
            format!("The resource group name '{name}' is not valid: 1 to 90 letters, digits, '-', '_', '.', '(' and ')', not ending with '.'."),
        )
        .at("resourceGroup")
    })
}

/// A job's name: up to 255 letters, digits, `-` and `_`, starting with a letter or digit.
pub fn check_job_name(name: &str) -> Option<Problem> {
    let length = name.chars().count();
    let good = (1..=limits::JOB_NAME_CHARS_MAX).contains(&length)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    (!good).then(|| {
        Problem::new(
            Code::InvalidResourceName,
            format!(
                "The job name '{name}' is not valid: 1 to {} letters, digits, '-' and '_', starting with a letter or digit.",
                limits::JOB_NAME_CHARS_MAX
            ),
        )
        .at("name")
    })
}

/// A schedule's name: as a job's, and short enough that its jobs can be called after it.
pub fn check_schedule_name(name: &str) -> Option<Problem> {
    let length = name.chars().count();
    if length <= limits::SCHEDULE_NAME_CHARS_MAX && check_job_name(name).is_none() {
        return None;
    }
    let message = format!(
        "The schedule name '{name}' is not valid: 1 to {} letters, digits, '-' and '_', starting with a letter or digit.",
        limits::SCHEDULE_NAME_CHARS_MAX
    );
    Some(Problem::new(Code::InvalidResourceName, message).at("name"))
}

pub fn check_lock_name(name: &str) -> Option<Problem> {
    let length = name.chars().count();
    let plain = name.chars().all(|c| c.is_alphanumeric() || "-_.()".contains(c));
    if (1..=limits::LOCK_NAME_CHARS_MAX).contains(&length) && plain && !name.ends_with('.') {
        return None;
    }
    let message = format!(
        "The lock name '{name}' is not valid: 1 to {} letters, digits, '-', '_', '.', '(' and ')', not ending with '.'.",
        limits::LOCK_NAME_CHARS_MAX
    );
    Some(Problem::new(Code::InvalidResourceName, message).at("name"))
}

pub fn check_budget_name(name: &str) -> Option<Problem> {
    let length = name.chars().count();
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if (1..=limits::BUDGET_NAME_CHARS_MAX).contains(&length) && plain {
        return None;
    }
    let message = format!(
        "The budget name '{name}' is not valid: 1 to {} letters, digits, '-', '_' and '.'.",
        limits::BUDGET_NAME_CHARS_MAX
    );
    Some(Problem::new(Code::InvalidResourceName, message).at("name"))
}

/// `West US` and `westus` are one place.
pub fn canonical_location(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_names() {
        for good in ["abc", "cpu-cluster", "A23", "gpu-1x", "a-1-b", "abcdefghijklmnopqrstuvwx"] {
            assert_eq!(check_cluster_name(good), None, "{good}");
        }
        for bad in
            ["", "ab", "1abc", "-abc", "cpu-1", "cpu-", "cpu_x", "cpü-x", "abcdefghijklmnopqrstuvwxy", "a b"]
        {
            assert!(check_cluster_name(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn locations_are_one_without_case_and_space() {
        assert_eq!(canonical_location("West US 2"), "westus2");
    }
}
