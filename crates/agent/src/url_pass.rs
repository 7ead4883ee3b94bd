//! The pass that makes the signed URLs of this node's attempts valid. It lasts minutes; a new one comes with each lease
//! renewal, and every request to the blob face carries the one that is current when it is sent.

use std::sync::{Arc, Mutex, PoisonError};

use neap_protocol::{Down, Secret, URL_PASS};

/// What the server answers where the pass has expired. The request is worth another try with the next pass.
const EXPIRED: &str = "AttemptUrlExpired";

/// The current pass, shared by everything that asks the blob face.
#[derive(Clone, Debug, Default)]
pub(crate) struct UrlPass(Arc<Mutex<Secret>>);

impl UrlPass {
    /// Takes the pass that a lease brings. A message without one changes nothing.
    pub(crate) fn renew_from(&self, down: &Down) {
        if let Down::Welcome { url_pass, .. } | Down::LeaseRenewed { url_pass, .. } = down
            && !url_pass.reveal().is_empty()
        {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = url_pass.clone();
        }
    }

    /// The URL as it is to be asked now. Call it for each try: the pass may have been renewed since the last.
    pub(crate) fn on(&self, url: &str) -> String {
        let pass = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pass.reveal().is_empty() { url.to_owned() } else { format!("{url}&{URL_PASS}={}", pass.reveal()) }
    }
}

/// Whether the server refused only because the pass had expired.
pub(crate) fn is_expired(answer: &reqwest::Response) -> bool {
    answer.headers().get("x-ms-error-code").is_some_and(|code| code == EXPIRED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_carries_the_newest_pass() {
        let pass = UrlPass::default();
        let shared = pass.clone();
        let welcome = |url_pass| Down::Welcome { lease_ttl_ms: 1, heartbeat_ms: 1, url_pass };
        let renewed = |url_pass| Down::LeaseRenewed { sent_boot_ms: 1, heartbeat_ms: 0, url_pass };
        assert_eq!(shared.on("u?sig=x"), "u?sig=x");
        for (down, expected) in [
            (welcome(Secret::new("1.a")), "u?sig=x&neap-pass=1.a"),
            (renewed(Secret::new("2.b")), "u?sig=x&neap-pass=2.b"),
            (renewed(Secret::default()), "u?sig=x&neap-pass=2.b"),
        ] {
            pass.renew_from(&down);
            assert_eq!(shared.on("u?sig=x"), expected);
        }
    }
}
