//! The layers between a job and the machine, and which of them are in force.
//!
//! Shipped builds have no switch: every layer that the kernel offers is on. Builds with debug assertions read
//! `NEAP_TEST_LAYERS_OFF` (a list of words, comma-separated), so that tests can show that an attack is stopped by a
//! second layer when the first one is missing.

/// What can stand between a job and the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// A root file system of its own, with nothing in it but what the job may see.
    Root,
    /// A user namespace in which only the job's own user exists.
    UserNamespace,
    /// A list of system calls that are refused.
    Seccomp,
    /// File rules of the kernel that hold whatever is mounted where.
    Landlock,
    /// A network namespace of its own.
    Network,
}

impl Layer {
    pub const ALL: [Self; 5] =
        [Self::Root, Self::UserNamespace, Self::Seccomp, Self::Landlock, Self::Network];

    /// The word in a node's facts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Root => "own-root",
            Self::UserNamespace => "user-namespace",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Network => "network-namespace",
        }
    }
}

/// The layers that are put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    on: [bool; Layer::ALL.len()],
}

impl Layers {
    pub(crate) const NONE: Self = Self { on: [false; Layer::ALL.len()] };

    /// All but those that a test has switched off.
    pub(crate) fn wanted() -> Self {
        let off = switched_off();
        Self { on: Layer::ALL.map(|layer| !off.iter().any(|word| word == layer.word())) }
    }

    pub(crate) fn has(self, layer: Layer) -> bool {
        self.on[layer as usize]
    }

    #[must_use]
    pub(crate) fn without(mut self, layer: Layer) -> Self {
        self.on[layer as usize] = false;
        self
    }
}

#[cfg(debug_assertions)]
fn switched_off() -> Vec<String> {
    let words = std::env::var("NEAP_TEST_LAYERS_OFF").unwrap_or_default();
    words.split(',').map(|word| word.trim().to_owned()).collect()
}

#[cfg(not(debug_assertions))]
fn switched_off() -> Vec<String> {
    Vec::new()
}
