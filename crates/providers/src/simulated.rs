//! Nodes that are only written down: a folder with `node.json`, and no process. Whoever measures how many nodes a
//! server bears plays their agents (`neap_agent::simulated`); everything between them and the server is real.

use std::sync::Arc;

use neap_core::NodeId;

use crate::local::{blocking, folder, make_folder, read_nodes, remove_folder, write_config};
use crate::{Answer, Found, LocalSettings, NodeOrder, Provider};

#[derive(Clone, Debug)]
pub struct SimulatedProvider {
    settings: Arc<LocalSettings>,
}

impl SimulatedProvider {
    pub fn new(settings: LocalSettings) -> std::io::Result<Self> {
        make_folder(&settings.nodes)?;
        Ok(Self { settings: Arc::new(settings) })
    }
}

impl Provider for SimulatedProvider {
    fn create(&self, order: NodeOrder) -> Answer<'_, ()> {
        let settings = self.settings.clone();
        Box::pin(blocking(move || write_config(&settings, &order).map(drop)))
    }

    fn remove(&self, node: NodeId, _reason: Arc<str>) -> Answer<'_, ()> {
        let settings = self.settings.clone();
        Box::pin(blocking(move || remove_folder(&folder(&settings, node), node)))
    }

    fn list(&self) -> Answer<'_, Vec<Found>> {
        let settings = self.settings.clone();
        Box::pin(async move {
            let nodes = blocking(move || read_nodes(&settings.nodes)).await?;
            Ok(nodes.into_iter().map(|(node, _)| Found { node, alive: true }).collect())
        })
    }
}
