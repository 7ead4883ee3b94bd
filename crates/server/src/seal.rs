//! The key that a data folder's ledger is sealed with, for programs that read the ledger without a server.

use std::path::Path;
use std::sync::Arc;

use neap_control::LedgerVault;
use neap_identity::Vault;
use neap_ledger::Seal;

/// None where the data folder has no key: its ledger was copied without the identity folder, or has never been used.
pub fn ledger_seal(data: &Path) -> Result<Option<Arc<dyn Seal>>, neap_identity::Error> {
    let vault = Vault::open_existing(&data.join("identity/vault.key"))?;
    Ok(vault.map(|vault| Arc::new(LedgerVault(Arc::new(vault))) as Arc<dyn Seal>))
}
