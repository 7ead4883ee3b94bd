//! Waiting for a blob to grow. Appends and uploads announce the new length; whoever follows that blob
//! wakes. A blob that nobody follows costs nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::BlobAddress;

type Registry = Mutex<BTreeMap<BlobAddress, watch::Sender<u64>>>;

/// Who follows what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Followed(Arc<Registry>);

impl Followed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<BlobAddress, watch::Sender<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn announce(&self, address: &BlobAddress, length: u64) {
        if let Some(sender) = self.lock().get(address) {
            sender.send_replace(length);
        }
    }

    pub(crate) fn subscribe(&self, address: &BlobAddress) -> Follower {
        let mut map = self.lock();
        let sender = map.entry(address.clone()).or_insert_with(|| watch::channel(0).0);
        Follower { receiver: sender.subscribe(), address: address.clone(), registry: self.clone() }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }
}

/// Follows one blob's length. Dropping the last follower of a blob forgets the blob.
#[derive(Debug)]
pub struct Follower {
    receiver: watch::Receiver<u64>,
    address: BlobAddress,
    registry: Followed,
}

impl Follower {
    /// The length that was announced last.
    #[must_use]
    pub fn length(&self) -> u64 {
        *self.receiver.borrow()
    }

    /// Waits until the blob is longer than `length`, and says how long it is then. Also wakes for a
    /// blob that became shorter (it was written anew or deleted), so that a reader can start over.
    pub async fn grown(&mut self, length: u64) -> u64 {
        // Copied out at once: a borrow of the channel must not be held where a task may move between threads.
        let grown = self.receiver.wait_for(|now| *now != length).await.map(|now| *now);
        match grown {
            Ok(now) => now,
            // The store keeps the sending half as long as this follower lives.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut map = self.registry.lock();
        let last = |sender: &watch::Sender<u64>| sender.receiver_count() <= 1;
        if map.get(&self.address).is_some_and(last) {
            map.remove(&self.address);
        }
    }
}
