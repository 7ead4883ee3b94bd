//! When low-priority nodes are taken back, where nobody does it for real: after a random while, with a notice.
//!
//! Such a node's life is exponentially long: what is still to come does not depend on what has passed, so a server that
//! was started again draws anew and nothing has to be written down.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use neap_core::NodeId;
use tokio::sync::mpsc::UnboundedSender;

use crate::News;

/// However the dice fall, no node is waited for longer.
const LIFE_MS_MAX: u64 = 366 * 24 * 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// How long a node lives on average.
    pub mean_ms: u64,
    /// From the word to the end.
    pub notice_ms: u64,
}

impl Eviction {
    /// Waits for this node's time, and says so if it is still there.
    pub(crate) async fn take_back(
        self,
        node: NodeId,
        there: Arc<Mutex<BTreeSet<NodeId>>>,
        news: UnboundedSender<News>,
    ) {
        let life_ms = match getrandom::u64() {
            Ok(drawn) => life_ms(self.mean_ms, drawn),
            Err(error) => {
                tracing::error!(%node, %error, "no chance could be had of the system: the node is not taken back");
                return;
            }
        };
        tokio::time::sleep(Duration::from_millis(life_ms)).await;
        if there.lock().unwrap_or_else(PoisonError::into_inner).contains(&node) {
            let reason = "low-priority capacity is taken back (local.eviction)".into();
            let _ = news.send(News::TakenBack { node, notice_ms: self.notice_ms, reason });
        }
    }
}

/// The length of a life, from 64 even bits.
fn life_ms(mean_ms: u64, drawn: u64) -> u64 {
    // Above 0 and at most 1.
    let even = ((drawn >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    ((-even.ln() * mean_ms as f64) as u64).min(LIFE_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_exponential() {
        assert_eq!(life_ms(1000, u64::MAX), 0);
        assert_eq!(life_ms(1000, u64::MAX / 2), 693, "the median is ln 2 of the mean");
        assert!(life_ms(1000, 0) > 36_000);
        assert_eq!(life_ms(u64::MAX, 0), LIFE_MS_MAX);
        let draws = 10_000_u64;
        let step = u64::MAX / draws;
        let sum: u64 = (0..draws).map(|n| life_ms(1000, n * step + step / 2)).sum();
        assert!((980..1020).contains(&(sum / draws)), "{}", sum / draws);
    }
}
