//! Hands effects to those who act: providers make and remove nodes, sessions carry orders to agents. What comes
//! of it returns as reports, through the same door as everything else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use neap_core::command::Report;
use neap_core::effects::Effect;
use neap_core::node::NodeState;
use neap_core::{Command, NodeId, State};
use neap_providers::{News, NodeOrder, Provider};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::leases::Due;
use crate::session::take_in;
use crate::sessions::Sessions;
use crate::{clock, limits};

#[derive(Clone, Debug)]
pub(crate) struct Dispatch {
    pub sessions: Arc<Sessions>,
    pub provider: Arc<dyn Provider>,
    /// Nodes that the provider is busy with.
    pub busy: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl Dispatch {
    pub async fn run(self, mut effects: UnboundedReceiver<Vec<Effect>>) {
        while let Some(batch) = effects.recv().await {
            self.hand_out(&batch);
        }
    }

    pub fn hand_out(&self, batch: &[Effect]) {
        let state = self.sessions.handle.state();
        for effect in batch {
            match effect {
                Effect::CreateNode { node } => self.provide(*node, Self::create),
                Effect::RemoveNode { node } => self.provide(*node, Self::remove),
                Effect::StartAttempt { .. } | Effect::StopAttempt { .. } => {
                    self.sessions.order(effect, &state);
                }
            }
        }
    }

    /// One call to the provider per node at a time.
    fn provide<F: Future<Output = ()> + Send + 'static>(&self, node: NodeId, call: fn(Self, NodeId) -> F) {
        let first = self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
        if first {
            let this = self.clone();
            tokio::spawn(async move {
                call(this.clone(), node).await;
                this.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
            });
        }
    }

    async fn create(self, node: NodeId) {
        let state = self.sessions.handle.state();
        let Some(record) = state.nodes.get(&node) else { return };
        let now_s = clock::unix_seconds();
        let report = match self.sessions.gate.tokens.issue(node.0, now_s, limits::JOIN_TOKEN_S) {
            Ok(join_token) => {
                match self.provider.create(NodeOrder { node, nominal: record.nominal, join_token }).await {
                    Ok(()) => Report::NodePreparing { node },
                    Err(error) => Report::NodeFailed { node, reason: error.to_string().into() },
                }
            }
            Err(error) => Report::NodeFailed { node, reason: error.to_string().into() },
        };
        let _ = take_in(self.sessions.handle.clone(), Command::Report(report)).await;
        // Its removal may have been asked for while the provider was busy making it.
        let leaving = |state: &State| {
            state.nodes.get(&node).is_some_and(|n| matches!(n.state, NodeState::Leaving { .. }))
        };
        if leaving(&self.sessions.handle.state()) {
            self.remove(node).await;
        }
    }

    async fn remove(self, node: NodeId) {
        let state = self.sessions.handle.state();
        let Some(record) = state.nodes.get(&node) else { return };
        let reason = record.reason.clone();
        self.sessions.forget(node);
        match self.provider.remove(node, reason.clone()).await {
            Ok(()) => {
                let _ =
                    take_in(self.sessions.handle.clone(), Command::Report(Report::NodeGone { node, reason }))
                        .await;
            }
            Err(error) => tracing::error!(%node, %error, "a node could not be removed; it is tried again"),
        }
    }

    /// Nodes that ended by themselves.
    pub async fn listen(self, mut news: UnboundedReceiver<News>) {
        while let Some(News::Ended { node, reason }) = news.recv().await {
            tracing::info!(%node, %reason, "a node ended");
            self.sessions.forget(node);
            let _ = take_in(self.sessions.handle.clone(), Command::Report(Report::NodeGone { node, reason }))
                .await;
        }
    }

    /// Waits for the next lease to come due, and reports it. A node whose lease is over is fenced before its work
    /// may run elsewhere, if the provider can; it has ended itself by then in any case.
    pub async fn mind_leases(self) {
        loop {
            let changed = self.sessions.leases_changed.notified();
            let (due, next) = self.sessions.take_due_leases();
            for due in due {
                self.lease_due(due).await;
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

    async fn lease_due(&self, due: Due) {
        let handle = self.sessions.handle.clone();
        match due {
            Due::Silent(node) => {
                tracing::warn!(%node, "a node has fallen silent; nothing new is placed on it");
                let _ = take_in(handle, Command::Report(Report::NodeSilent { node })).await;
            }
            Due::LeaseEnded(node) => {
                tracing::warn!(%node, "a node's lease has ended");
                let reason: Arc<str> = "it was not heard of for the length of its lease".into();
                if let Err(error) = self.provider.remove(node, reason.clone()).await {
                    tracing::error!(%node, %error, "a node whose lease ended could not be removed");
                }
                let _ = take_in(handle, Command::Report(Report::NodeGone { node, reason })).await;
            }
        }
    }
}
