//! What can go wrong, each by name.

use std::fmt;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident $word:literal;)*) => {
        /// One kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

faults! {
    /// The server dies at any step and is started again.
    ServerCrash "server-crash";
    /// The server is stopped in good order in the middle of the work.
    Drain "drain";
    /// The server dies and never comes back.
    NeverReturns "never-returns";
    /// An agent dies.
    AgentCrash "agent-crash";
    /// An agent stands still for a while (SIGSTOP).
    Pause "pause";
    /// Some nodes do everything late.
    SlowNode "slow-node";
    /// Connections break.
    Break "break";
    /// Messages take long.
    Delay "delay";
    /// What was sent on an older connection arrives after what was sent on a newer one.
    Reorder "reorder";
    /// Nothing passes in one direction for a while.
    Partition "partition";
    /// Commits fail, or are slow.
    Disk "disk";
    /// The wall clock jumps.
    Clock "clock";
    /// The provider refuses to make a node.
    CreateFails "create-fails";
    /// The provider says that it failed, or nothing for long, and has done what was asked.
    Timeout "provider-timeout";
    /// One order makes two nodes.
    DoubleCreate "double-create";
    /// The provider cannot remove a node now.
    RemoveFails "remove-fails";
    /// Everything asked of the provider fails for a while.
    Throttle "throttle";
    /// The provider's list is of some time ago.
    StaleList "stale-list";
    /// A node is gone and nobody says so.
    Vanish "vanish";
    /// A node's agent hangs for ever, or never starts.
    Zombie "zombie";
    /// A node is taken away, and that is said.
    Evict "evict";
}

/// A set of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(u32);

impl Faults {
    pub const NONE: Self = Self(0);

    pub fn all() -> Self {
        Fault::ALL.iter().fold(Self::NONE, |set, fault| set.with(*fault))
    }

    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u32)
    }

    #[must_use]
    pub const fn without(self, fault: Fault) -> Self {
        Self(self.0 & !(1 << fault as u32))
    }

    pub const fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u32) != 0
    }

    /// Words with commas between, `all` or `none`; a word that is not known comes back.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut set = Self::NONE;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "all" => set = Self::all(),
                "none" => {}
                _ => {
                    let fault = Fault::ALL.iter().find(|fault| fault.word() == word);
                    set = set.with(*fault.ok_or_else(|| word.to_owned())?);
                }
            }
        }
        Ok(set)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.write_str("all");
        }
        if *self == Self::NONE {
            return f.write_str("none");
        }
        let words: Vec<_> = Fault::ALL.iter().filter(|fault| self.has(**fault)).map(|f| f.word()).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        for text in ["all", "none", "server-crash,disk", "zombie"] {
            assert_eq!(Faults::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Faults::parse("disk,flood"), Err("flood".into()));
    }
}
