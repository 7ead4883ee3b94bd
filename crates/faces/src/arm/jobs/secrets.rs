//! `${{secrets.NAME}}` in the environment variables of a job: whether each secret exists. Values are not looked at.

use std::collections::BTreeMap;

use neap_core::secrets::{KIND, VERSION, references};
use neap_core::{Code, Problem, Refusal};

use super::references::Shelf;
use crate::arm::errors::bad;

/// Adds a problem for each variable that refers to a secret that is not there.
pub(super) fn check(
    variables: &BTreeMap<String, String>,
    shelf: &dyn Shelf,
    problems: &mut Vec<Problem>,
) -> Result<(), Refusal> {
    for (variable, text) in variables {
        let at = format!("properties.environmentVariables.{variable}");
        match references(text) {
            Err(why) => problems.push(bad(format!("The environment variable '{variable}': {why}"), &at)),
            Ok(names) => {
                for name in names {
                    if shelf.asset(KIND, name, Some(VERSION))?.is_none() {
                        problems
                            .push(missing(&format!("The environment variable '{variable}'"), name).at(&at));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Something refers to a secret that does not exist.
pub(crate) fn missing(what: &str, name: &str) -> Problem {
    Problem::new(
        Code::SecretNotFound,
        format!(
            "{what} refers to the secret '{name}', which does not exist in this workspace. Create it with 'neap secret create -n {name}'."
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::references::tests::Fake;
    use super::*;

    #[test]
    fn a_secret_that_is_not_there_is_named_with_its_variable() {
        let shelf = Fake::with(&[(KIND, "there", VERSION, json!({}))]);
        for (text, expect) in [
            ("plain", None),
            ("${{secrets.there}}", None),
            ("a ${{secrets.there}} ${{inputs.x}}", None),
            ("${{secrets.gone}}", Some("refers to the secret 'gone', which does not exist")),
            ("${{secrets.}}", Some("'' cannot name a secret")),
        ] {
            let mut problems = Vec::new();
            let variables = BTreeMap::from([("TOKEN".to_owned(), text.to_owned())]);
            check(&variables, &shelf, &mut problems).unwrap();
            match (problems.as_slice(), expect) {
                ([], None) => {}
                ([problem], Some(expect)) => {
                    assert!(problem.message.contains(expect), "{}", problem.message);
                    assert_eq!(problem.target.as_deref(), Some("properties.environmentVariables.TOKEN"));
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
