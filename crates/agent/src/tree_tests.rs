//! Links that a job has planted, with each layer alone and with none; walks and their limits; the source of the modules that
//! work in an attempt's folders.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use super::layers::{Layer, without};
use super::*;

const JOB: u32 = 1_999_000_003;

/// A job's folder with links to a file and to a folder of root's, both closed to others.
struct Planted {
    dir: tempfile::TempDir,
    tree: Tree,
}

impl Planted {
    fn new(user: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("secrets")).unwrap();
        std::fs::write(path("secrets/secret"), "secret").unwrap();
        for (name, mode) in [("secrets/secret", 0o600), ("secrets", 0o700)] {
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::fs::create_dir_all(path("work/exe/wd")).unwrap();
        symlink(path("secrets/secret"), path("work/exe/wd/pwn")).unwrap();
        symlink(path("secrets"), path("work/exe/out")).unwrap();
        symlink("out/secret", path("work/exe/through")).unwrap();
        for name in ["work", "work/exe", "work/exe/wd"] {
            chown(path(name), user, user).unwrap();
        }
        let tree = Tree::open(&path("work"), user).unwrap();
        Self { dir, tree }
    }

    /// What each way of touching the folder did to what the links lead to.
    fn attack(&self) -> Vec<&'static str> {
        let secrets = self.dir.path().join("secrets");
        let mut done = Vec::new();
        if self.tree.write("exe/out/made", 0o600, b"").is_ok() {
            done.push("made a file");
        }
        if self.tree.make_folders("exe/out/folder/inner", 0o700).is_ok() {
            done.push("made a folder");
        }
        if self.tree.make_link("/", "exe/out/link").is_ok() {
            done.push("made a link");
        }
        for name in ["exe/wd/pwn", "exe/through", "exe/out/secret"] {
            if self.tree.read(name).is_ok_and(|file| file.is_some()) {
                done.push("read the secret");
            }
        }
        let mut seen = 0;
        let _ = self.tree.walk("exe/out", 10, |entry| {
            seen += usize::from(matches!(entry, Entry::File { .. }));
            Ok(())
        });
        if seen > 0 {
            done.push("listed the folder");
        }
        if self.tree.write("exe/wd/pwn", 0o600, b"pwned").is_ok() {
            done.push("wrote");
        }
        let secret = secrets.join("secret");
        let found = secret.metadata().unwrap();
        assert_eq!(found.uid(), rustix::process::getuid().as_raw(), "the secret has another owner");
        if std::fs::read(&secret).unwrap() != b"secret" {
            done.push("overwrote the secret");
        }
        done.dedup();
        done
    }
}

#[test]
fn either_layer_alone_stops_planted_links() {
    let is_root = rustix::process::geteuid().is_root();
    let user = is_root.then_some(JOB);
    let nothing: [&str; 0] = [];
    assert_eq!(Planted::new(user).attack(), nothing, "both layers");
    let planted = Planted::new(user);
    assert_eq!(without(&[Layer::FileUser], || planted.attack()), nothing, "names alone");
    if is_root {
        let planted = Planted::new(user);
        assert_eq!(without(&[Layer::Resolve], || planted.attack()), nothing, "rights alone");
    }
    // The attack is a real one.
    let planted = Planted::new(user);
    let done = without(&[Layer::Resolve, Layer::FileUser], || planted.attack());
    for what in ["made a file", "made a folder", "made a link", "read the secret", "overwrote the secret"] {
        assert!(done.contains(&what), "without any layer: {done:?}");
    }
}

#[test]
fn outputs_may_link_to_files_of_the_same_folder_only() {
    let planted = Planted::new(None);
    let work = planted.dir.path().join("work");
    std::fs::write(work.join("exe/real"), "r").unwrap();
    for (link, to) in
        [("exe/good", "real"), ("exe/up", "../../secrets/secret"), ("exe/absolute", "/etc/passwd")]
    {
        symlink(to, work.join(link)).unwrap();
    }
    let opens =
        |path: &str| planted.tree.read_through_links(Path::new(path)).is_ok_and(|file| file.is_some());
    let expect = [
        ("exe/real", true),
        ("exe/good", true),
        ("exe/up", false),
        ("exe/absolute", false),
        ("exe/wd/pwn", false),
        ("exe", false),
    ];
    assert_eq!(expect.map(|(path, _)| (path, opens(path))), expect);
}

#[test]
fn names_stay_in_their_folder_and_within_the_limits() {
    for (name, expect) in [
        ("a//b/./c", Ok("a/b/c")),
        ("/a/", Ok("a")),
        ("", Ok("")),
        ("a/../../etc", Err("leads out")),
        ("..", Err("leads out")),
        ("a\0", Err("leads out")),
    ] {
        match (relative(name), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(e), Err(expect)) => assert!(e.to_string().contains(expect), "{name:?}: {e}"),
            (found, _) => panic!("{name:?}: {found:?}"),
        }
    }
    assert!(relative(&"d/".repeat(DEPTH_MAX)).is_ok());
    assert!(relative(&"d/".repeat(DEPTH_MAX + 1)).unwrap_err().to_string().contains("folders deep"));
    let long = format!("{}/x", "n".repeat(PATH_BYTES_MAX));
    assert!(relative(&long).unwrap_err().to_string().contains("bytes"));
}

#[test]
fn a_walk_ends_at_its_limits_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::open(dir.path(), None).unwrap();
    tree.make_folders(&"d/".repeat(DEPTH_MAX), 0o700).unwrap();
    let walk = |entries_max| {
        let mut folders = 0;
        tree.walk("", entries_max, |_| {
            folders += 1;
            Ok(())
        })
        .map(|()| folders)
    };
    assert_eq!(walk(DEPTH_MAX).unwrap(), DEPTH_MAX + 1);
    assert!(walk(DEPTH_MAX - 1).unwrap_err().to_string().contains("more than 99 files and folders"));
    std::fs::create_dir(dir.path().join("d/".repeat(DEPTH_MAX) + "one more")).unwrap();
    assert!(walk(1_000).unwrap_err().to_string().contains("deeper than 100"));
}

#[test]
fn what_is_there_is_neither_written_to_nor_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::open(dir.path(), None).unwrap();
    tree.make_folders("a/b", 0o700).unwrap();
    tree.make_folders("a/b/c", 0o700).unwrap();
    tree.write("a/f", 0o600, b"first").unwrap();
    let again = tree.write("a/f", 0o600, b"second").unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    symlink("/etc/passwd", dir.path().join("a/link")).unwrap();
    std::io::Write::write_all(&mut tree.create_anew("a/link", 0o600).unwrap(), b"anew").unwrap();
    assert_eq!(tree.read_at_most("a/link", 9).unwrap().unwrap(), b"anew", "the link went, and nothing else");
    assert_eq!(tree.read_at_most("a/f", 3).unwrap().unwrap(), b"fir");
    assert!(tree.make_folders("a/f/x", 0o700).is_err(), "a file is no folder");
    assert!(tree.stat("a/b").is_some() && tree.stat("a/none").is_none());
    tree.remove_folder("a/b/c").unwrap();
    tree.remove_all("a").unwrap();
    assert!(tree.stat("a").is_none());
}

/// Modules in which a path of the standard library would mean a file that a job could have prepared.
const SOURCES: [(&str, &str); 14] = [
    ("checkpoint.rs", include_str!("checkpoint.rs")),
    ("checkpoint_record.rs", include_str!("checkpoint_record.rs")),
    ("data.rs", include_str!("data.rs")),
    ("distributed.rs", include_str!("distributed.rs")),
    ("finalize.rs", include_str!("finalize.rs")),
    ("folder.rs", include_str!("folder.rs")),
    ("light_environment.rs", include_str!("light_environment.rs")),
    ("mltable.rs", include_str!("mltable.rs")),
    ("prepare.rs", include_str!("prepare.rs")),
    ("warning.rs", include_str!("warning.rs")),
    ("environment/provide/host.rs", include_str!("environment/provide/host.rs")),
    ("services/mod.rs", include_str!("services/mod.rs")),
    ("services/stream.rs", include_str!("services/stream.rs")),
    ("services/watch.rs", include_str!("services/watch.rs")),
];
const BY_PATH: [&str; 19] = [
    "fs::read(",
    "fs::write(",
    "fs::read_",
    "fs::create_dir",
    "fs::remove_",
    "fs::copy(",
    "fs::rename(",
    "fs::set_permissions",
    "fs::symlink",
    "rustix::fs::open(",
    "DirBuilder",
    "OpenOptions",
    "File::open(",
    "File::create",
    "chown(",
    "symlink(",
    ".symlink_metadata(",
    ".read_dir(",
    ".is_dir()",
];
/// The machine's own, which no job can write to.
const ALLOWED: [&str; 1] = ["std::fs::read_to_string(\"/etc/passwd\")"];

#[test]
fn no_module_that_works_in_a_jobs_folder_names_a_path_to_the_standard_library() {
    for (name, source) in SOURCES {
        let shipped = source.split("#[cfg(test)]").next().unwrap();
        for (number, line) in shipped.lines().enumerate() {
            let line = ALLOWED.iter().fold(line.to_owned(), |line, allowed| line.replace(allowed, ""));
            for word in BY_PATH {
                assert!(!line.contains(word), "{name}:{}: `{word}` goes by path; use `Tree`", number + 1);
            }
        }
    }
}
