//! What makes a folder unfit for another attempt, each as one change.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A folder made some time ago and taken now.
fn taken(root: &Path, name: &str) -> Folder {
    let python = Interpreter::for_tests();
    let mut folder = Folder::make(root.join(name), None, Some(python), None).unwrap();
    folder.taken_ms = folder.made_ms + AGE_MS_MIN;
    // Change times are as fine as a tick: what follows must fall into a later one.
    let made = rustix::fs::stat(folder.dir.join("work")).unwrap();
    let probe = root.join("probe");
    loop {
        std::fs::write(&probe, "").unwrap();
        let now = rustix::fs::stat(&probe).unwrap();
        if (now.st_ctime, now.st_ctime_nsec) > (made.st_ctime, made.st_ctime_nsec) {
            return folder;
        }
        std::fs::remove_file(&probe).unwrap();
    }
}

#[test]
fn a_folder_that_was_only_looked_at_is_untouched() {
    let root = tempfile::tempdir().unwrap();
    let folder = taken(root.path(), "a");
    for name in ["tmp", "work", "work/exe/wd", "work/venv/bin"] {
        assert!(std::fs::read_dir(folder.dir.join(name)).is_ok());
    }
    std::fs::read(folder.dir.join("work/venv/pyvenv.cfg")).unwrap();
    std::fs::write(folder.dir.join("log"), "the spool is the agent's own").unwrap();
    assert!(folder.is_untouched());
}

#[test]
fn every_change_is_seen() {
    type Change = fn(&Path) -> io::Result<()>;
    let changes: &[(&str, Change)] = &[
        ("a file", |dir| std::fs::write(dir.join("work/exe/wd/file"), "x")),
        ("a file that is gone again", |dir| {
            std::fs::write(dir.join("tmp/file"), "x")?;
            std::fs::remove_file(dir.join("tmp/file"))
        }),
        ("an output", |dir| std::fs::write(dir.join("work/exe/wd/outputs/o"), "x")),
        ("a log", |dir| std::fs::write(dir.join("work/exe/wd/logs/l"), "x")),
        ("a folder beside", |dir| std::fs::create_dir(dir.join("work/cap"))),
        ("a link", |dir| symlink("/etc", dir.join("work/exe/link"))),
        ("a folder less", |dir| std::fs::remove_dir(dir.join("work/exe/wd/logs"))),
        ("a folder made again", |dir| {
            std::fs::remove_dir(dir.join("tmp"))?;
            std::fs::create_dir(dir.join("tmp"))
        }),
        ("a link in a folder's place", |dir| {
            std::fs::remove_dir(dir.join("work/exe/wd/outputs"))?;
            symlink("/etc", dir.join("work/exe/wd/outputs"))
        }),
        ("a mode", |dir| {
            std::fs::set_permissions(dir.join("work/exe/wd"), std::fs::Permissions::from_mode(0o777))
        }),
        ("a mode set back", |dir| {
            std::fs::set_permissions(dir.join("tmp"), std::fs::Permissions::from_mode(0o777))?;
            std::fs::set_permissions(dir.join("tmp"), std::fs::Permissions::from_mode(0o700))
        }),
        ("an attribute", |dir| {
            let flags = rustix::fs::XattrFlags::empty();
            match rustix::fs::setxattr(dir.join("work"), "user.neap", b"x", flags) {
                // Not every file system has them; then there is nothing to see.
                Err(rustix::io::Errno::OPNOTSUPP) => std::fs::write(dir.join("work/x"), ""),
                other => Ok(other?),
            }
        }),
        ("times set back", |dir| {
            std::fs::write(dir.join("work/exe/wd/file"), "x")?;
            std::fs::remove_file(dir.join("work/exe/wd/file"))?;
            std::fs::File::open(dir.join("work/exe/wd"))?.set_modified(std::time::UNIX_EPOCH)
        }),
        ("an installed program", |dir| std::fs::write(dir.join("work/venv/bin/tool"), "x")),
        ("a package", |dir| std::fs::create_dir_all(dir.join("work/venv/lib/python3.99/site-packages/p"))),
        ("another pip", |dir| {
            std::fs::remove_file(dir.join("work/venv/bin/pip"))?;
            std::fs::write(dir.join("work/venv/bin/pip"), "x")
        }),
        ("pip written to", |dir| {
            let pip = dir.join("work/venv/bin/pip");
            std::fs::set_permissions(&pip, std::fs::Permissions::from_mode(0o755))?;
            std::fs::write(&pip, "x")
        }),
        ("another name of a file", |dir| {
            std::fs::hard_link(dir.join("work/venv/pyvenv.cfg"), dir.join("other"))
        }),
    ];
    let root = tempfile::tempdir().unwrap();
    for (n, (what, change)) in changes.iter().enumerate() {
        let folder = taken(root.path(), &n.to_string());
        assert!(folder.is_untouched(), "{what}: before");
        change(&folder.dir).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(!folder.is_untouched(), "{what}");
    }
}

#[test]
fn a_folder_used_as_soon_as_it_was_made_is_not_trusted() {
    let root = tempfile::tempdir().unwrap();
    let mut folder = taken(root.path(), "a");
    folder.taken_ms = folder.made_ms + AGE_MS_MIN - 1;
    assert!(!folder.is_untouched());
}

#[tokio::test]
async fn only_an_untouched_folder_is_used_again() {
    let root = tempfile::tempdir().unwrap();
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            let folders = Rc::new(Folders::new(root.path().to_owned()));
            let aged = |mut folder: Folder| {
                folder.made_ms -= AGE_MS_MIN;
                folder
            };
            let first = folders.take(None, None).unwrap();
            let dir = first.dir.clone();
            folders.give_back(first, true, SpoolEnd::default());
            let second = folders.take(None, None).unwrap();
            assert_ne!(second.dir, dir, "the first must wait");
            let dir = second.dir.clone();
            folders.give_back(aged(second), true, SpoolEnd::default());
            let again = folders.take(None, None).unwrap();
            assert_eq!(again.dir, dir);
            let python = Some(Interpreter::for_tests());
            assert_ne!(folders.take(None, python).unwrap().dir, dir, "another kind is another folder");
            let large = SpoolEnd { head_bytes: SPOOL_BYTES_KEPT, after_head_bytes: 1 };
            for (untouched, spool) in [(false, SpoolEnd::default()), (true, large)] {
                let taken = folders.take(None, None).unwrap();
                let dir = taken.dir.clone();
                let spares = folders.spares.borrow().len();
                folders.give_back(aged(taken), untouched, spool);
                while dir.exists() || folders.spares.borrow().len() == spares {
                    tokio::task::yield_now().await;
                }
                assert_ne!(folders.take(None, None).unwrap().dir, dir);
            }
        })
        .await;
}
