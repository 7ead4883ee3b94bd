//! The values of a workspace's secrets, for the two who need them: the order of an attempt and the store of a datastore.
//! Values are read when they are used and never kept.

use neap_core::WorkspaceId;
use neap_core::documents::AssetDocument;
use neap_core::secrets::{KIND, VERSION, fill, vault_name};
use neap_identity::Vault;
use neap_ledger::Reader;

/// The secrets of one workspace.
#[derive(Clone, Copy, Debug)]
pub struct Secrets<'a> {
    pub reader: &'a Reader,
    pub vault: &'a Vault,
    pub workspace: WorkspaceId,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error(
        "the secret '{name}' does not exist in this workspace; create it with 'neap secret create -n {name}'"
    )]
    Missing { name: String },
    #[error("the secret '{name}' cannot be read: {detail}")]
    Unreadable { name: String, detail: String },
}

impl Secrets<'_> {
    /// Whether there is a secret of this name.
    pub fn has(&self, name: &str) -> Result<bool, SecretError> {
        let row = self.reader.asset(self.workspace, KIND, name, VERSION);
        row.map(|row| row.is_some()).map_err(|e| unreadable(name, &e))
    }

    /// A secret's value in the clear.
    pub fn value(&self, name: &str) -> Result<String, SecretError> {
        let missing = || SecretError::Missing { name: name.to_owned() };
        let row = self.reader.asset(self.workspace, KIND, name, VERSION).map_err(|e| unreadable(name, &e))?;
        let row = row.ok_or_else(missing)?;
        let body = self.reader.document(&row.document).map_err(|e| unreadable(name, &e))?;
        let body = body.ok_or_else(missing)?;
        let document: AssetDocument = serde_json::from_slice(&body).map_err(|e| unreadable(name, &e))?;
        let sealed = document.sealed_secret.ok_or_else(missing)?;
        let sealed = self.vault.decode(&vault_name(self.workspace, name), &sealed);
        let value = sealed.map_err(|e| unreadable(name, &e))?;
        String::from_utf8(value).map_err(|_| unreadable(name, &"it is not text"))
    }

    /// A text with the values of the secrets that it refers to; each value that was used is added to `used`.
    pub fn fill(&self, text: &str, used: &mut Vec<String>) -> Result<String, SecretError> {
        fill(text, |name| {
            let value = self.value(name)?;
            if !used.contains(&value) {
                used.push(value.clone());
            }
            Ok(value)
        })
    }
}

fn unreadable(name: &str, detail: &dyn std::fmt::Display) -> SecretError {
    SecretError::Unreadable { name: name.to_owned(), detail: detail.to_string() }
}
