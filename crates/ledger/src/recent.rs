//! Documents written lately, in memory: what was just submitted is asked for again when it is answered and when it
//! is handed to a node. A document never changes under its hash, so this can be behind but never wrong.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use neap_core::DocHash;

use crate::document::Document;
use crate::limits::RECENT_DOCUMENTS_BYTES;

#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    bodies: BTreeMap<DocHash, Arc<[u8]>>,
    /// Oldest first. An erased one may still stand here.
    order: VecDeque<DocHash>,
    bytes: usize,
}

impl Recent {
    pub fn keep(&self, documents: &[Document]) {
        if documents.is_empty() {
            return;
        }
        let mut kept = self.lock();
        for document in documents {
            kept.keep(document);
        }
    }

    pub fn get(&self, hash: &DocHash) -> Option<Arc<[u8]>> {
        self.lock().bodies.get(hash).cloned()
    }

    pub fn erase(&self, hash: &DocHash) {
        self.lock().remove(hash);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn keep(&mut self, document: &Document) {
        if document.body.len() > RECENT_DOCUMENTS_BYTES / 16 || self.bodies.contains_key(&document.hash) {
            return;
        }
        self.bytes += document.body.len();
        self.bodies.insert(document.hash, document.body.as_slice().into());
        self.order.push_back(document.hash);
        while self.bytes > RECENT_DOCUMENTS_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, hash: &DocHash) {
        if let Some(body) = self.bodies.remove(hash) {
            self.bytes -= body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(number: usize, bytes: usize) -> Document {
        let mut body = number.to_string().into_bytes();
        body.resize(bytes, b' ');
        Document { hash: DocHash::of(&[0; 16], &body), salt: [0; 16], body }
    }

    #[test]
    fn the_oldest_make_room() {
        let recent = Recent::default();
        let each = RECENT_DOCUMENTS_BYTES / 16;
        let documents: Vec<_> = (0..17).map(|n| document(n, each)).collect();
        recent.keep(&documents);
        assert_eq!(recent.get(&documents[0].hash), None);
        assert_eq!(recent.get(&documents[1].hash).as_deref(), Some(documents[1].body.as_slice()));
        assert_eq!(recent.get(&documents[16].hash).as_deref(), Some(documents[16].body.as_slice()));
        assert_eq!(recent.lock().bytes, each * 16);
    }

    #[test]
    fn an_erased_one_is_gone_and_its_room_is_free() {
        let recent = Recent::default();
        let documents = [document(1, 100), document(2, 10)];
        recent.keep(&documents);
        recent.erase(&documents[0].hash);
        assert_eq!(recent.get(&documents[0].hash), None);
        assert_eq!(recent.lock().bytes, 10);
    }

    #[test]
    fn one_that_would_push_out_many_is_not_kept() {
        let recent = Recent::default();
        let large = document(1, RECENT_DOCUMENTS_BYTES / 16 + 1);
        recent.keep(std::slice::from_ref(&large));
        assert_eq!(recent.get(&large.hash), None);
    }
}
