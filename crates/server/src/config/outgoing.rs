//! `outgoing`: where the server may connect for users, beside the public internet.

use neap_storage::foreign::{Allowed, OutgoingRules};
use serde::Deserialize;

use super::read::Problems;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutgoingConfig {
    /// Addresses, networks and host names.
    pub allow: Vec<String>,
}

impl OutgoingConfig {
    /// An entry that cannot be read allows nothing; `check` has told of it.
    pub fn rules(&self) -> OutgoingRules {
        OutgoingRules { allow: self.allow.iter().filter_map(|text| Allowed::parse(text).ok()).collect() }
    }

    pub(super) fn check(&self, problems: &mut Problems) {
        for (index, text) in self.allow.iter().enumerate() {
            if let Err(why) = Allowed::parse(text) {
                problems.tell(format!("outgoing.allow[{index}]"), why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::read::read;

    #[test]
    fn entries_are_read_and_wrong_ones_are_told_with_their_line() {
        let config = read("outgoing: {allow: [127.0.0.1, 10.0.0.0/8, store.corp]}\n").unwrap();
        assert_eq!(config.outgoing.rules().allow.len(), 3);
        let wrong = read("outgoing:\n  allow:\n  - 10.0.0.0/99\n  - http://h\n").unwrap_err();
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("line 3: outgoing.allow[0]: '10.0.0.0/99' must be"), "{wrong:?}");
    }
}
