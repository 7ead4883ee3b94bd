//! Hands effects to those who act: providers make and remove nodes, sessions carry orders to agents. What comes
//! of it returns as reports, through the same door as everything else.
//!
//! What the provider is asked is decided in `errands.rs`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use neap_core::cluster::Tier;
use neap_core::command::Report;
use neap_core::effects::Effect;
use neap_core::limits::PREEMPT_MARGIN_MS;
use neap_core::{Command, NodeId, State};
use neap_providers::{Found, News, NodeOrder, Provider};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::errands::{Errands, Output};
use crate::leases::Due;
use crate::session::take_in;
use crate::sessions::Sessions;
use crate::{clock, limits};

#[derive(Clone, Debug)]
pub(crate) struct Dispatch {
    pub sessions: Arc<Sessions>,
    pub provider: Arc<dyn Provider>,
    pub errands: Arc<Mutex<Errands>>,
    /// Something is to be tried again sooner than what is waited for.
    pub errands_changed: Arc<Notify>,
}

impl Dispatch {
    pub async fn run(self, mut effects: UnboundedReceiver<Vec<Effect>>) {
        while let Some(batch) = effects.recv().await {
            self.hand_out(&batch);
        }
    }

    pub fn hand_out(&self, batch: &[Effect]) {
        for effect in batch {
            match effect {
                Effect::CreateNode { .. } | Effect::RemoveNode { .. } => {
                    self.run_errands(|errands, state, out| errands.wanted(effect, state, out));
                }
                Effect::StartAttempt { .. } | Effect::StopAttempt { .. } => self.sessions.order(effect),
            }
        }
    }

    /// What the provider has against what the state says, once at the start.
    pub fn repair(&self, found: &[Found]) {
        self.run_errands(|errands, state, out| errands.found(found, state, out));
    }

    fn run_errands(&self, step: impl FnOnce(&mut Errands, &State, &mut Vec<Output>)) {
        let mut out = Vec::new();
        {
            let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
            let state = self.sessions.handle.inner.published.load();
            step(&mut errands, &state, &mut out);
        }
        for output in out {
            self.perform(output);
        }
    }

    fn perform(&self, output: Output) {
        match output {
            Output::Create { node } => {
                let this = self.clone();
                tokio::spawn(async move {
                    let answer = this.create(node).await;
                    this.done(node, answer);
                });
            }
            Output::Remove { node, reason } => {
                let this = self.clone();
                tokio::spawn(async move {
                    let answer = this.provider.remove(node, reason).await.map_err(|e| e.to_string());
                    this.done(node, answer);
                });
            }
            Output::List => {
                let this = self.clone();
                tokio::spawn(async move {
                    match this.provider.list().await {
                        Ok(found) => {
                            this.run_errands(|errands, state, out| errands.swept(&found, state, out));
                        }
                        Err(error) => tracing::warn!(%error, "the provider's nodes could not be listed"),
                    }
                });
            }
            Output::Forget { node } => self.sessions.roster().forget(node),
            Output::Report(report) => {
                drop(tokio::spawn(take_in(self.sessions.handle.clone(), Command::Report(report))));
            }
        }
    }

    fn done(&self, node: NodeId, answer: Result<(), String>) {
        self.run_errands(|errands, state, out| errands.done(node, answer, state, clock::steady(), out));
        self.errands_changed.notify_one();
    }

    async fn create(&self, node: NodeId) -> Result<(), String> {
        let (nominal, low_priority) = {
            let state = self.sessions.handle.inner.published.load();
            let record = state.nodes.get(&node).ok_or("it is no longer wanted")?;
            (record.nominal, record.shape.tier == Tier::LowPriority)
        };
        let now_s = clock::unix_seconds();
        let tokens = &self.sessions.gate.tokens;
        let join_token =
            tokens.issue(node.0, now_s, limits::JOIN_TOKEN_S).map_err(|error| error.to_string())?;
        self.provider
            .create(NodeOrder { node, nominal, join_token, low_priority })
            .await
            .map_err(|e| e.to_string())
    }

    /// Nodes that ended by themselves, or are going to.
    pub async fn listen(self, mut news: UnboundedReceiver<News>) {
        while let Some(news) = news.recv().await {
            match news {
                News::Ended { node, reason } => {
                    tracing::info!(%node, %reason, "a node ended");
                    self.run_errands(|errands, _, out| errands.ended(node, reason, out));
                }
                News::TakenBack { node, notice_ms, reason } => self.taken_back(node, notice_ms, reason),
            }
        }
    }

    /// The provider takes this node away after the notice.
    fn taken_back(&self, node: NodeId, notice_ms: u64, reason: Arc<str>) {
        tracing::info!(%node, notice_ms, %reason, "a node is taken back");
        let cluster = self.sessions.handle.inner.published.load().nodes.get(&node).map(|node| node.cluster);
        let Some(cluster) = cluster else { return };
        // Of the notice the processes have the first part: storing what they leave takes time too.
        let grace_ms = notice_ms.saturating_sub(PREEMPT_MARGIN_MS) / 2;
        let evict = Command::Evict { cluster, node: Some(node), grace_ms, reason };
        drop(tokio::spawn(take_in(self.sessions.handle.clone(), evict)));
    }

    /// Tries again what failed, and looks for nodes that nobody knows, each when its time has come.
    pub async fn mind_errands(self) {
        loop {
            let changed = self.errands_changed.notified();
            self.run_errands(|errands, state, out| errands.timer(state, clock::steady(), out));
            let wake_at = self.errands.lock().unwrap_or_else(PoisonError::into_inner).wake_at();
            let wait = Duration::from_millis(wake_at.since(clock::steady()));
            let _ = tokio::time::timeout(wait, changed).await;
        }
    }

    /// Waits for the next lease to come due, and reports it.
    pub async fn mind_leases(self) {
        loop {
            let changed = self.sessions.leases_changed.notified();
            let (due, next) = self.sessions.take_due_leases();
            for due in due {
                self.lease_due(due);
            }
            match next {
                Some(at) => {
                    let wait = Duration::from_millis(at.since(clock::steady()));
                    let _ = tokio::time::timeout(wait, changed).await;
                }
                None => changed.await,
            }
        }
    }

    fn lease_due(&self, due: Due) {
        match due {
            Due::Silent(node) => {
                tracing::warn!(%node, "a node has fallen silent; nothing new is placed on it");
                self.perform(Output::Report(Report::NodeSilent { node }));
            }
            Due::LeaseEnded(node) => {
                tracing::warn!(%node, "a node's lease has ended");
                self.run_errands(|errands, _, out| errands.lease_ended(node, clock::steady(), out));
            }
        }
    }
}
