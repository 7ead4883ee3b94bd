//! TLS for the one port: HTTP clients are not asked for a certificate, agents are.

use std::sync::Arc;

use neap_identity::Authority;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

#[derive(Debug)]
pub struct Tls {
    pub http: Arc<ServerConfig>,
    pub agents: Arc<ServerConfig>,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the TLS library: {0}")]
    Rustls(#[from] rustls::Error),
    #[error("the client certificate verifier: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Looks the certificate up at every handshake, so that a renewed one is used without a restart.
#[derive(Debug)]
struct Current(Arc<Authority>);

impl ResolvesServerCert for Current {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let identity = self.0.server_for(hello.server_name());
        let provider = CryptoProvider::get_default()?;
        let key = provider.key_provider.load_private_key(identity.key.clone_key()).ok()?;
        Some(Arc::new(CertifiedKey::new(identity.chain.clone(), key)))
    }
}

impl Tls {
    pub fn new(authority: &Arc<Authority>) -> Result<Self, TlsError> {
        // Whoever comes first sets it; they are the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let resolver = Arc::new(Current(authority.clone()));
        let mut http = ServerConfig::builder().with_no_client_auth().with_cert_resolver(resolver.clone());
        http.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];

        let mut roots = RootCertStore::empty();
        roots.add(authority.ca_der())?;
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build()?;
        let mut agents =
            ServerConfig::builder().with_client_cert_verifier(verifier).with_cert_resolver(resolver);
        agents.alpn_protocols = vec![neap_protocol::ALPN.to_vec(), neap_protocol::STREAM_ALPN.to_vec()];
        Ok(Self { http: Arc::new(http), agents: Arc::new(agents) })
    }
}
