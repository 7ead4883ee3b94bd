//! Text in, requirements out.

use super::{Wanted, read, version};

fn conda(dependencies: &str) -> Result<Wanted, String> {
    read(&format!("name: x\nchannels: [conda-forge]\ndependencies:\n{dependencies}"))
}

#[test]
fn versions_as_pip_writes_them() {
    for (conda, pip) in [
        ("", Some("")),
        ("=1.2", Some("==1.2.*")),
        ("=1.2.*", Some("==1.2.*")),
        ("==1.2.3", Some("==1.2.3")),
        ("=1.2.3=py39_0", Some("==1.2.3.*")),
        (">=1.2,<2", Some(">=1.2,<2")),
        (" 1.2.*", Some("==1.2.*")),
        ("=*", Some("")),
        ("=1.2|1.3", None),
        ("[version='>=1']", None),
        ("=", None),
    ] {
        assert_eq!(version(conda.trim()).as_deref(), pip, "{conda}");
    }
}

#[test]
fn a_conda_file_becomes_requirements() {
    let wanted = conda(
        "  - python=3.10\n  - pip=23\n  - conda-forge::numpy=1.26\n  - pytorch>=2\n  - cpuonly\n  - matplotlib-base\n  - pip:\n    - azureml-mlflow\n    - scikit-learn~=1.5\n    - --extra-index-url https://example.com/simple\n",
    )
    .unwrap();
    assert_eq!(wanted.python.as_deref(), Some("3.10"));
    assert_eq!(
        wanted.requirements,
        [
            "pip==23.*",
            "numpy==1.26.*",
            "torch>=2",
            "matplotlib",
            "azureml-mlflow",
            "scikit-learn~=1.5",
            "--extra-index-url https://example.com/simple"
        ]
    );
    assert_eq!(wanted.unknown, Vec::<String>::new());
    assert_eq!(wanted.notes.len(), 1);
    assert!(wanted.conda);
}

#[test]
fn every_unknown_package_is_named() {
    let wanted = conda("  - numpy\n  - no-such-thing=1\n  - another::odd\n").unwrap();
    assert_eq!(wanted.unknown, ["no-such-thing=1", "another::odd"]);
}

#[test]
fn python_as_far_as_it_was_written() {
    for (written, expect) in [
        ("python=3.10", Some("3.10")),
        ("python=3.10.4", Some("3.10")),
        ("python==3.9.7", Some("3.9")),
        ("python>=3.8", None),
        ("python", None),
        ("python>=3.8,<3.11", None),
    ] {
        assert_eq!(conda(&format!("  - {written}\n")).unwrap().python.as_deref(), expect, "{written}");
    }
}

#[test]
fn plain_requirements_and_what_cannot_be_had() {
    let wanted = read("# mine\nsix==1.16\n\nnumpy\n").unwrap();
    assert_eq!((wanted.requirements.len(), wanted.conda), (2, false));
    let refused = read("-r other.txt\n./mine\nsix\n").unwrap_err();
    assert!(refused.contains("-r other.txt") && refused.contains("./mine"), "{refused}");
    assert!(read("name: x\ndependencies: 3\n").unwrap_err().contains("conda file"));
    assert!(conda("  - numpy=1|2\n  - scipy[x]\n").unwrap_err().contains("scipy[x]"));
    assert_eq!(conda("  - pip:\n").unwrap(), Wanted { conda: true, ..Wanted::default() });
}

#[test]
fn the_table_is_in_order_and_says_why_something_is_left_out() {
    let mut before = "";
    for line in super::TABLE.lines().filter(|line| !line.starts_with('#')) {
        let row: Vec<&str> = line.splitn(3, ',').collect();
        assert_eq!(row.len(), 3, "{line}");
        assert!(!row[1].is_empty() || !row[2].is_empty(), "{line}");
        assert!(before < row[0], "{before} before {}", row[0]);
        before = row[0];
    }
}
