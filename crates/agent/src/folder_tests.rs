//! A folder is used once, by the user whom it was given to.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

const SOMEBODY: u32 = 1_999_000_002;

#[tokio::test]
async fn no_folder_is_used_again() {
    let root = tempfile::tempdir().unwrap();
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            let folders = Rc::new(Folders::new(root.path().to_owned()));
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..5 {
                let taken = folders.take(None, None).unwrap();
                let dir = taken.dir.clone();
                assert!(seen.insert(dir.clone()), "{} was used before", dir.display());
                folders.give_back(taken);
                while dir.exists() || folders.spares.borrow().is_empty() {
                    tokio::task::yield_now().await;
                }
            }
            let spare = folders.spares.borrow()[0].dir.clone();
            let python = Some(Interpreter::for_tests());
            assert_ne!(folders.take(None, python).unwrap().dir, spare, "another kind is another folder");
            assert_eq!(folders.take(None, None).unwrap().dir, spare, "a spare is taken");
        })
        .await;
}

#[test]
fn a_folder_has_what_a_job_needs() {
    let root = tempfile::tempdir().unwrap();
    let bundle = root.path().join("roots.pem");
    std::fs::write(&bundle, "roots").unwrap();
    let python = Some(Interpreter::for_tests());
    let folder = Folder::make(root.path().join("1"), python, Some(&bundle)).unwrap().give(None).unwrap();
    let work = folder.dir.join("work");
    for name in
        ["checkpoint", "exe/wd/outputs", "exe/wd/logs", "venv/bin", "venv/lib/python3.99/site-packages"]
    {
        assert!(work.join(name).is_dir(), "{name}");
    }
    assert_eq!(std::fs::read_to_string(work.join("ca-bundle.pem")).unwrap(), "roots");
    assert_eq!(std::fs::read_link(work.join("venv/bin/python3")).unwrap(), Path::new("/usr/bin/python3.99"));
    assert_eq!(folder.environment(), Some("venv"));
}

#[test]
fn its_user_may_add_to_it_and_not_replace_what_others_put_there() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::make(root.path().join("1"), None, None).unwrap().give(Some(SOMEBODY)).unwrap();
    let keeper = folder.work.with_user(Some(SOMEBODY + 1));
    keeper.make_folders("cap", 0o755).unwrap();
    keeper.write("cap/input", 0o644, b"data").unwrap();
    let work = folder.dir.join("work");
    assert_eq!(work.metadata().unwrap().permissions().mode() & 0o7777, WORK_MODE);
    assert_eq!(
        (work.metadata().unwrap().uid(), work.join("exe/wd").metadata().unwrap().uid()),
        (0, SOMEBODY)
    );
    folder.work.make_folders("mine", 0o700).unwrap();
    for (what, done) in [
        ("write", folder.work.write("cap/other", 0o600, b"").is_ok()),
        ("replace", folder.work.replace("cap", 0o600, b"").is_ok()),
        ("remove", folder.work.remove_folder("cap").is_ok()),
    ] {
        assert!(!done, "the job's user may not {what}");
    }
    assert!(folder.work.read("cap/input").unwrap().is_some(), "it may read");
}
