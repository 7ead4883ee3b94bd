//! The HTTP clients for what the server asks by itself: notices and spans, and data elsewhere. They trust what clients of this
//! installation trust: the public roots and Neap's own CA.

use std::path::Path;
use std::time::Duration;

use neap_storage::foreign::{HttpClient, OutgoingRules};
use rustls::pki_types::{CertificateDer, pem::PemObject};

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    #[error("the CA bundle {path}: {problem}")]
    Bundle { path: String, problem: String },
    #[error("the TLS library: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// For receivers that the operator configures: alerts and collectors. They may be anywhere.
pub fn client(bundle: &Path) -> Result<reqwest::Client, OutgoingError> {
    Ok(builder(bundle)?.timeout(ANSWER).redirect(reqwest::redirect::Policy::none()).build()?)
}

/// For data at addresses that users name: it connects to the public internet and to what `rules` list.
pub fn data_client(bundle: &Path, rules: OutgoingRules) -> Result<HttpClient, OutgoingError> {
    Ok(HttpClient::new(builder(bundle)?.read_timeout(IDLE), rules)?)
}

fn builder(bundle: &Path) -> Result<reqwest::ClientBuilder, OutgoingError> {
    let unreadable = |problem: String| OutgoingError::Bundle { path: bundle.display().to_string(), problem };
    let mut roots = rustls::RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(bundle).map_err(|e| unreadable(e.to_string()))?;
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT)
        .user_agent(concat!("neap/", env!("CARGO_PKG_VERSION"))))
}

/// Why it failed, without the URL: that may hold a secret.
pub fn why(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
