//! What all attempts of a node share: its spawner, its engine, its interpreters and the places that attempts run in.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use neap_protocol::{Exit, FailureClass, Isolation, NodeFacts};
use neap_sandbox::{SLOTS_MAX, Spawner, USERS_FROM, Users, boot_ms};

use crate::blobs::Blobs;
use crate::config::NodeConfig;
use crate::environment::ENGINE_KNOWN_MS;
use crate::environment::cache::Cache;
use crate::environment::engine::Engine;
use crate::folder::Folders;
use crate::gpus::Gpus;
use crate::network::Network;
use crate::python::{self, Interpreter};
use crate::session::prepare_failed;
use crate::url_pass::UrlPass;

/// Below every user that an attempt or a build ever runs as.
const KEEPER: u32 = USERS_FROM - 1;

#[derive(Debug)]
pub(crate) struct Node {
    pub config: NodeConfig,
    pub facts: NodeFacts,
    pub folders: Rc<Folders>,
    pub path: String,
    pub spawner: Spawner,
    pub network: Network,
    /// Users for attempts and builds, each used once.
    pub users: Users,
    pub ca_pem: Vec<u8>,
    pub blobs: OnceCell<Blobs>,
    pub url_pass: UrlPass,
    pub python: tokio::sync::OnceCell<Option<Interpreter>>,
    pub python_for_others: tokio::sync::OnceCell<Option<Interpreter>>,
    pub slots: RefCell<BTreeSet<u32>>,
    /// Environments of all nodes of this host.
    pub cache: Cache,
    pub engines: Engines,
    pub gpus: Gpus,
}

/// What is known of the container engine for a while.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    found: RefCell<Option<(u64, Result<Engine, String>)>>,
    /// Images that could not be had, until when that is believed, and why.
    absent: RefCell<BTreeMap<String, (u64, String)>>,
}

impl Node {
    /// The container engine, or why there is none.
    pub(crate) async fn engine(&self) -> Result<Engine, String> {
        if let Some((until_ms, found)) = &*self.engines.found.borrow()
            && boot_ms() < *until_ms
        {
            return found.clone();
        }
        let found = Engine::find(&self.config.engine).await;
        self.engines.found.replace(Some((boot_ms() + ENGINE_KNOWN_MS, found.clone())));
        found
    }

    pub(crate) fn absent_image(&self, name: &str) -> Option<String> {
        let absent = self.engines.absent.borrow();
        absent.get(name).filter(|(until_ms, _)| boot_ms() < *until_ms).map(|(_, why)| why.clone())
    }

    pub(crate) fn remember_absent(&self, name: &str, why: &str, until_ms: u64) {
        let mut absent = self.engines.absent.borrow_mut();
        absent.retain(|_, (until_ms, _)| boot_ms() < *until_ms);
        absent.insert(name.to_owned(), (until_ms, why.to_owned()));
    }

    /// The client for blobs, made when the first attempt needs one.
    pub(crate) fn blobs_or_error(&self) -> Result<Blobs, String> {
        if let Some(blobs) = self.blobs.get() {
            return Ok(blobs.clone());
        }
        let blobs = Blobs::new(&self.ca_pem, self.url_pass.clone())?;
        Ok(self.blobs.get_or_init(|| blobs).clone())
    }

    pub(crate) fn blobs(&self) -> Result<Blobs, Exit> {
        self.blobs_or_error().map_err(|e| prepare_failed(FailureClass::System, e))
    }

    /// The interpreter that such an attempt can run; looked for once.
    pub(crate) async fn python(&self, isolation: Isolation) -> Option<Interpreter> {
        let for_others = isolation == Isolation::Full && self.spawner.capabilities().root;
        let cell = if for_others { &self.python_for_others } else { &self.python };
        cell.get_or_init(|| python::find(&self.path, for_others)).await.clone()
    }

    /// A user for one attempt or one build, which nobody has been before; none if it runs as the agent's.
    pub(crate) fn new_user(&self, isolation: Isolation) -> Result<Option<u32>, Exit> {
        let own = isolation == Isolation::Full && self.spawner.capabilities().root;
        own.then(|| self.users.take())
            .transpose()
            .map_err(|e| prepare_failed(FailureClass::System, e.to_string()))
    }

    /// Whose the read-only inputs of attempts are that run as a user of their own. Nothing ever runs as this user.
    pub(crate) fn keeper(&self) -> Option<u32> {
        self.spawner.capabilities().root.then_some(KEEPER)
    }
}

/// A place among the attempts that run at once, given back when dropped.
pub(crate) struct Slot<'a> {
    node: &'a Node,
    pub number: u32,
}

impl<'a> Slot<'a> {
    pub fn take(node: &'a Node) -> Option<Self> {
        let mut taken = node.slots.borrow_mut();
        let number = (0..SLOTS_MAX).find(|number| !taken.contains(number))?;
        taken.insert(number);
        Some(Self { node, number })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.node.slots.borrow_mut().remove(&self.number);
    }
}
