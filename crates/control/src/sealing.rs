//! The ledger's documents are sealed with the installation's vault. This connects the two: neither knows the other.

use std::sync::Arc;

use neap_identity::Vault;
use neap_ledger::Seal;

/// The vault, as the ledger uses it.
#[derive(Clone, Debug)]
pub struct LedgerVault(pub Arc<Vault>);

impl Seal for LedgerVault {
    fn seal(&self, name: &str, text: &[u8]) -> Result<Vec<u8>, String> {
        self.0.seal(name, text).map_err(|e| e.to_string())
    }

    fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, String> {
        self.0.open_document(name, sealed).map_err(|e| e.to_string())
    }
}
