//! Container, packages on the host, or the host as it is: decided from what is asked for and what is there. Pure.

use neap_protocol::{ContainerTerms, Environment};

/// Where a command is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Container,
    /// On the host; the packages, if there are any, are installed first.
    Host {
        packages: Option<String>,
        differences: Vec<String>,
    },
    /// It may not run at all.
    Refused(String),
}

/// `engine` is there, or the reason why not.
pub(super) fn choose(environment: &Environment, terms: &ContainerTerms, engine: Result<(), &str>) -> Choice {
    match (environment, engine) {
        (Environment::Image { .. } | Environment::Build { .. }, Ok(())) => Choice::Container,
        (_, Ok(())) if terms.required => Choice::Refused(
            "The job asks for isolation: container, and its environment has no image. Give it one.".into(),
        ),
        (_, Err(why)) if terms.required => Choice::Refused(format!(
            "The job asks for isolation: container, which is never weakened, and {why}. Start Docker or Podman on the node, or say host-allowed."
        )),
        (_, Err(why)) => on_host(environment, terms, why),
        (_, Ok(())) => on_host(environment, terms, ""),
    }
}

/// The host in place of what was asked for, and everything that is different there.
pub(super) fn on_host(environment: &Environment, terms: &ContainerTerms, why: &str) -> Choice {
    let mut differences = Vec::new();
    let packages = match environment {
        Environment::Nothing => None,
        Environment::Packages { packages } => Some(packages.clone()),
        Environment::Image { image, packages } => {
            differences.push(format!("it does not run in a container, because {why}"));
            differences.push(format!("image {image} is not used"));
            packages.clone()
        }
        Environment::Build { dockerfile, .. } => {
            differences.push(format!("it does not run in a container, because {why}"));
            differences
                .push(format!("the image of {dockerfile} is not built, and what it installs is not there"));
            None
        }
    };
    // Two gigabytes are what every client asks for by itself.
    if terms.shm_bytes.is_some_and(|bytes| bytes != 2 << 30) {
        differences.push("shm_size has no effect".into());
    }
    if !terms.args.is_empty() {
        differences.push("docker_args have no effect".into());
    }
    Choice::Host { packages, differences }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_protocol::BlobFolder;

    fn image(packages: Option<&str>) -> Environment {
        Environment::Image { image: "i:1".into(), packages: packages.map(Into::into) }
    }

    fn build() -> Environment {
        let context =
            BlobFolder { container_url: "u".into(), prefix: "p/".into(), sas: "s".into(), whole: false };
        Environment::Build { context, dockerfile: "Dockerfile".into() }
    }

    #[test]
    fn what_is_asked_for_and_what_is_there() {
        let required = ContainerTerms { required: true, ..ContainerTerms::default() };
        let allowed = ContainerTerms::default();
        let packages = Environment::Packages { packages: "six".into() };
        let none = Err("there is no engine");
        let check = |environment: &Environment, terms: &ContainerTerms, engine, expect: &str| {
            let found = match choose(environment, terms, engine) {
                Choice::Container => "container".to_owned(),
                Choice::Host { packages, differences } => {
                    format!("host {} {}", packages.unwrap_or_default(), differences.len())
                }
                Choice::Refused(_) => "refused".to_owned(),
            };
            assert_eq!(found, expect, "{environment:?} {terms:?} {engine:?}");
        };
        check(&image(None), &allowed, Ok(()), "container");
        check(&image(Some("six")), &allowed, Ok(()), "container");
        check(&build(), &required, Ok(()), "container");
        check(&image(None), &allowed, none, "host  2");
        check(&image(Some("six")), &allowed, none, "host six 2");
        check(&build(), &allowed, none, "host  2");
        check(&packages, &allowed, Ok(()), "host six 0");
        check(&packages, &allowed, none, "host six 0");
        check(&Environment::Nothing, &allowed, none, "host  0");
        // Never weakened.
        for environment in [image(None), build(), packages, Environment::Nothing] {
            check(&environment, &required, none, "refused");
        }
        check(&Environment::Nothing, &required, Ok(()), "refused");
    }

    #[test]
    fn every_difference_is_said() {
        let terms = ContainerTerms { required: false, shm_bytes: Some(4 << 30), args: vec!["--init".into()] };
        let Choice::Host { differences, .. } = on_host(&image(None), &terms, "the engine sleeps") else {
            panic!("the host is allowed");
        };
        assert_eq!(differences.len(), 4, "{differences:?}");
        assert!(differences[0].contains("the engine sleeps"));
    }
}
