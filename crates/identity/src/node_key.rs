//! The node's side of joining: a key pair that never leaves the node, and the request to certify it.

use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};

use crate::{Error, Result};

/// A new node key and its certificate request, both PEM.
#[derive(Clone)]
pub struct NodeKey {
    /// The private key (PKCS#8 PEM): kept by the node, mode 0600.
    pub key_pem: String,
    /// The request to send with the join token. What it names is ignored: the server names the node.
    pub csr_pem: String,
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey(hidden)")
    }
}

impl NodeKey {
    /// Makes an ECDSA P-256 key and a request for it.
    pub fn generate() -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map_err(|e| Error::crypto("make a node key", e))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let csr_pem = params
            .serialize_request(&key)
            .and_then(|request| request.pem())
            .map_err(|e| Error::crypto("write a certificate request", e))?;
        Ok(Self { key_pem: key.serialize_pem(), csr_pem })
    }
}
