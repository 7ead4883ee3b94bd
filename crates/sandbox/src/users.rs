//! Which unprivileged user an attempt runs as, where the agent is root: one that no attempt of this machine had before.
//!
//! A user that is used again can be reached by whatever an earlier job left behind. So every attempt gets the next number.
//! All installations of a machine count together, in one small file; an agent takes numbers from it by the block.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::FlockOperation;

/// First of the users that attempts run as. They lie above what systemd and distributions hand out.
pub const USERS_FROM: u32 = 1_900_000_000;
/// The first number that is none of theirs: from there on some programs take numbers for negative ones.
const USERS_UNTIL: u32 = 2_147_000_000;
/// How many an agent takes at once.
const BLOCK: u32 = 1024;

/// An agent's share of the numbers.
#[derive(Debug)]
pub struct Users {
    file: PathBuf,
    next: Cell<u32>,
    until: Cell<u32>,
}

impl Default for Users {
    fn default() -> Self {
        Self::counted_in("/var/lib/neap/users".into())
    }
}

impl Users {
    /// Counts in this file, which is made when it is missing.
    pub fn counted_in(file: PathBuf) -> Self {
        Self { file, next: Cell::new(0), until: Cell::new(0) }
    }

    /// A user and group that no attempt of this machine has had. Numbers come again only when some hundred million
    /// others have been used.
    pub fn take(&self) -> io::Result<u32> {
        if self.next.get() == self.until.get() {
            let from = self.reserve().map_err(|e| {
                io::Error::new(
                    e.kind(),
                    format!("counting the users of attempts in {}: {e}", self.file.display()),
                )
            })?;
            self.next.set(from);
            self.until.set(from + BLOCK);
        }
        let taken = self.next.get();
        self.next.set(taken + 1);
        Ok(taken)
    }

    fn reserve(&self) -> io::Result<u32> {
        if let Some(folder) = self.file.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let file: File = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&self.file)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        let mut text = [0; 16];
        let length = file.read_at(&mut text, 0)?;
        let recorded = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.trim().parse().ok());
        let from = match recorded {
            Some(next) if (USERS_FROM..=USERS_UNTIL - BLOCK).contains(&next) => next,
            // The last one was taken, or nobody counts yet: then files of attempts long gone may still lie somewhere.
            Some(_) | None => USERS_FROM + random() % ((USERS_UNTIL - USERS_FROM) / BLOCK) * BLOCK,
        };
        file.write_all_at(format!("{:<12}\n", from + BLOCK).as_bytes(), 0)?;
        Ok(from)
    }
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_a_number_twice() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("neap/users");
        let agents = [Users::counted_in(file.clone()), Users::counted_in(file.clone())];
        let mut taken: Vec<u32> = (0..3000).map(|n| agents[n % 2].take().unwrap()).collect();
        assert!(taken.iter().all(|user| (USERS_FROM..USERS_UNTIL).contains(user)));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 3000);
        // A restart goes on where the count stands, and a count that is over begins anew.
        assert!(!taken.contains(&Users::counted_in(file.clone()).take().unwrap()));
        fs::write(&file, format!("{USERS_UNTIL}\n")).unwrap();
        assert!((USERS_FROM..USERS_UNTIL).contains(&Users::counted_in(file.clone()).take().unwrap()));
        fs::write(&file, "nonsense").unwrap();
        assert!(Users::counted_in(file).take().is_ok());
    }
}
