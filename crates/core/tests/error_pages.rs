//! Every error code has a page under `docs/errors/`, and every page there is of a code.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use neap_core::Code;

fn pages() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

#[test]
fn every_code_has_a_page_that_names_it_and_its_status() {
    let mut wrong = Vec::new();
    for code in Code::ALL {
        let name = code.name();
        let Ok(text) = fs::read_to_string(pages().join(format!("{name}.md"))) else {
            wrong.push(format!("docs/errors/{name}.md is missing"));
            continue;
        };
        let mut lines = text.lines();
        if lines.next() != Some(format!("# {name}").as_str()) {
            wrong.push(format!("docs/errors/{name}.md does not start with '# {name}'"));
        }
        let status = format!("HTTP status: {}", code.http_status());
        if !lines.any(|line| line == status) {
            wrong.push(format!("docs/errors/{name}.md has no line '{status}'"));
        }
        for heading in ["## Why you see it", "## What to do", "## Example"] {
            if !text.lines().any(|line| line == heading) {
                wrong.push(format!("docs/errors/{name}.md has no '{heading}'"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_of_a_code_and_in_the_index() {
    let known: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    let index = fs::read_to_string(pages().join("README.md")).expect("docs/errors/README.md can be read");
    for entry in fs::read_dir(pages()).expect("docs/errors can be listed") {
        let file = entry.expect("docs/errors can be listed").file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".md").filter(|name| *name != "README") else { continue };
        assert!(known.contains(name), "docs/errors/{file} is of no code");
        assert!(
            index.contains(&format!("[{name}]({name}.md)")),
            "docs/errors/README.md does not name {name}"
        );
    }
}
