//! What every handler has at hand, and how documents beside the log are written and read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use neap_control::Handle;
use neap_core::{Code, Command, DocHash, Event, Millis, Refusal, State};
use neap_identity::{Issuer, RunTokens, Vault};
use neap_ledger::Document;
use neap_parallel::Batches;
use neap_storage::Store;
use neap_tracking::Tracking;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ask::Caller;
use crate::drafts::Drafts;
use crate::elsewhere::DataAccess;
use crate::environments::EnvironmentRules;
use crate::limits;

/// The names this installation goes by.
#[derive(Clone, Debug)]
pub struct Installation {
    pub id: String,
    pub subscription_id: String,
    pub tenant_id: String,
}

/// Facts of the running process that `status` tells.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    pub version: String,
    pub pid: u32,
    pub started: Millis,
    /// What keeps attempts apart on this machine, and what is missing.
    pub isolation: Vec<String>,
    pub isolation_missing: Vec<String>,
    /// Boot logs, kept after a node is gone.
    pub node_logs: PathBuf,
}

/// How the server is watched.
#[derive(Clone, Debug, Default)]
pub struct Observability {
    /// Anyone may read `/metrics`.
    pub metrics_open: bool,
    /// Opens `/metrics` and nothing else.
    pub metrics_token: Option<Arc<neap_identity::IdentitySecret>>,
    pub thresholds: neap_core::health::Thresholds,
}

#[derive(Clone, Debug)]
pub struct App {
    pub control: Handle,
    pub store: Arc<Store>,
    /// Signs blob and log URLs.
    pub sas: Arc<neap_storage::sas::SasKey>,
    pub issuer: Arc<Issuer>,
    pub vault: Arc<Vault>,
    /// What runs tell of themselves.
    pub tracking: Arc<Tracking>,
    /// Mini-batches of parallel jobs.
    pub batches: Arc<Batches>,
    /// Checks what jobs show to the tracking endpoint.
    pub run_tokens: Arc<RunTokens>,
    /// Demanded by the token endpoint.
    pub secret: Arc<neap_identity::IdentitySecret>,
    /// Used in URLs where a request names no host: `https://127.0.0.1:8443`.
    pub base_url: String,
    /// For whom a token must be made so that this server takes it.
    pub audiences: Arc<crate::audience::Audiences>,
    pub installation: Arc<Installation>,
    pub server: Arc<ServerFacts>,
    pub observability: Arc<Observability>,
    /// Data elsewhere: what may be reached, and how.
    pub data: Arc<DataAccess>,
    pub environments: Arc<EnvironmentRules>,
    pub memory: Arc<Memory>,
    /// Of a plan: what it goes by beside what is there.
    pub drafts: Arc<Drafts>,
}

/// What the faces remember between requests: bounded, and nothing is lost when it goes.
#[derive(Debug, Default)]
pub struct Memory {
    tokens: Mutex<BTreeMap<[u8; 32], (i64, Caller)>>,
    readers: Mutex<Readers>,
    /// Of a cluster's document, by its hash: whether its jobs run in containers only.
    container_only: Mutex<BTreeMap<DocHash, bool>>,
    /// Links to services of jobs that nobody has followed yet.
    pub(crate) links: crate::services::Links,
    /// When those who wait will start, as it was seen last.
    pub(crate) estimates: crate::estimates::Estimates,
    /// Whoever has the past run again holds this: one at a time.
    pub(crate) running_again: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Readers {
    order: VecDeque<(String, u64)>,
    known: BTreeSet<(String, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    pub(crate) fn verified(&self, token: &[u8; 32], now_s: i64) -> Option<Caller> {
        lock(&self.tokens).get(token).filter(|(until, _)| *until > now_s).map(|(_, caller)| caller.clone())
    }

    pub(crate) fn remember_verified(&self, token: [u8; 32], until_s: i64, caller: Caller, now_s: i64) {
        let mut tokens = lock(&self.tokens);
        if tokens.len() >= limits::VERIFIED_TOKENS_MAX {
            tokens.retain(|_, (until, _)| *until > now_s);
        }
        if tokens.len() < limits::VERIFIED_TOKENS_MAX {
            tokens.insert(token, (until_s, caller));
        }
    }

    /// What a cluster's document says of containers; `read` is asked once for each document.
    pub(crate) fn container_only(
        &self,
        document: DocHash,
        read: impl FnOnce() -> Result<bool, Refusal>,
    ) -> Result<bool, Refusal> {
        if let Some(known) = lock(&self.container_only).get(&document) {
            return Ok(*known);
        }
        let found = read()?;
        let mut known = lock(&self.container_only);
        if known.len() >= limits::CLUSTER_RULES_MAX {
            known.clear();
        }
        known.insert(document, found);
        Ok(found)
    }

    /// Whether this caller has read (or been told to read) the log of this run; from now on it counts as so.
    pub(crate) fn mark_log_read(&self, caller: &str, job: u64) -> bool {
        let mut readers = lock(&self.readers);
        if !readers.known.insert((caller.into(), job)) {
            return true;
        }
        readers.order.push_back((caller.into(), job));
        if readers.order.len() > limits::LOG_READERS_MAX
            && let Some(oldest) = readers.order.pop_front()
        {
            readers.known.remove(&oldest);
        }
        false
    }
}

impl App {
    pub fn state(&self) -> State {
        self.control.state()
    }

    /// The state as it stands at this moment: what goes by the clock has gone on since the last event.
    pub fn state_now(&self) -> State {
        let mut state = self.state();
        state.now = state.now.max(self.now());
        state
    }

    pub fn now(&self) -> Millis {
        self.control.now()
    }

    pub fn now_s(&self) -> i64 {
        i64::try_from(self.now().0 / 1_000).unwrap_or(i64::MAX)
    }

    pub(crate) async fn submit(
        &self,
        caller: &Caller,
        command: Command,
        documents: Vec<Document>,
    ) -> Result<Vec<Event>, Refusal> {
        self.control.submit(&caller.actor, command, documents).await.map(|accepted| accepted.events)
    }

    /// A document beside the log; an erased or never written one reads as its default.
    pub(crate) fn document<T: DeserializeOwned + Default>(&self, hash: &DocHash) -> Result<T, Refusal> {
        match self.control.reader().document(hash).map_err(unreadable)? {
            Some(body) => serde_json::from_slice(&body)
                .map_err(|e| internal(format!("A document cannot be read: {e}."))),
            None => Ok(T::default()),
        }
    }
}

/// Makes the document that a command names by its hash.
pub(crate) fn document<T: Serialize>(value: &T) -> Result<Document, Refusal> {
    let body =
        serde_json::to_vec(value).map_err(|e| internal(format!("A document cannot be written: {e}.")))?;
    if body.len() > neap_core::limits::DOCUMENT_BYTES_MAX {
        return Err(Refusal::because(
            Code::DocumentTooLarge,
            format!(
                "The definition has {} bytes; at most {} are kept.",
                body.len(),
                neap_core::limits::DOCUMENT_BYTES_MAX
            ),
        ));
    }
    Document::new(body).map_err(|e| internal(e.to_string()))
}

pub(crate) fn unreadable(error: impl std::fmt::Display) -> Refusal {
    internal(format!("The ledger's tables could not be read: {error}."))
}

pub(crate) fn internal(message: impl Into<String>) -> Refusal {
    Refusal::because(Code::InternalError, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_new_to_each_caller_once_and_memory_is_bounded() {
        let memory = Memory::default();
        assert!(!memory.mark_log_read("a", 1));
        assert!(memory.mark_log_read("a", 1));
        assert!(!memory.mark_log_read("b", 1));
        for job in 0..limits::LOG_READERS_MAX as u64 {
            memory.mark_log_read("c", job);
        }
        assert_eq!(lock(&memory.readers).known.len(), limits::LOG_READERS_MAX);
        assert!(!memory.mark_log_read("a", 1), "the oldest are forgotten");
    }

    #[test]
    fn a_verified_token_is_forgotten_when_it_expires() {
        let memory = Memory::default();
        memory.remember_verified([1; 32], 100, Caller { actor: "me".into() }, 50);
        assert!(memory.verified(&[1; 32], 99).is_some());
        assert!(memory.verified(&[1; 32], 100).is_none());
        assert!(memory.verified(&[2; 32], 50).is_none());
    }
}
