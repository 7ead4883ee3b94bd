//! Requests to addresses that users name: data on the web, datastores with an endpoint. The server must not fetch for a
//! user what only the server can reach (its own loopback, the private network, the cloud's metadata service).
//!
//! A host name is resolved once, the addresses are checked, and the connection goes to an address that was checked, so a
//! name cannot change between the check and the connection. An address that is written out is checked before the request.
//! Redirects are followed up to a limit, and each one is checked the same way. Proxies of the environment are not used:
//! they would connect where no check has been.
//!
//! What the operator configures (alerts, collectors of traces) does not pass through here.

mod address;
mod limit;
mod rules;

use std::sync::Arc;

use object_store::client::{
    HttpClient as ObjectClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Method, RequestBuilder, Url, redirect};

pub use address::is_public;
pub use rules::{Allowed, OutgoingRules, Refused};

use crate::{ELSEWHERE_REDIRECTS_MAX, ELSEWHERE_REQUEST_MAX};

/// A client that connects only where the rules allow it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpClient {
    http: reqwest::Client,
    rules: Arc<OutgoingRules>,
}

impl HttpClient {
    /// From a builder with the caller's TLS and timeouts.
    pub fn new(builder: reqwest::ClientBuilder, rules: OutgoingRules) -> reqwest::Result<Self> {
        let rules = Arc::new(rules);
        let redirects = Arc::clone(&rules);
        let policy = redirect::Policy::custom(move |attempt| {
            if attempt.previous().len() > ELSEWHERE_REDIRECTS_MAX {
                return attempt.error(format!("more than {ELSEWHERE_REDIRECTS_MAX} redirects"));
            }
            match redirects.check_url(attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(refused) => attempt.error(refused),
            }
        });
        let http = builder
            .no_proxy()
            .timeout(ELSEWHERE_REQUEST_MAX)
            .redirect(policy)
            .dns_resolver(Resolver(Arc::clone(&rules)))
            .build()?;
        Ok(Self { http, rules })
    }

    pub(super) fn request(&self, method: Method, url: &str) -> Result<RequestBuilder, super::Error> {
        let url: Url = url.parse().map_err(|_| super::Error::BadName(url.to_owned()))?;
        self.rules.check_url(&url).map_err(super::Error::Refused)?;
        Ok(self.http.request(method, url))
    }
}

/// Resolves a name and gives only addresses that may be connected to.
#[derive(Debug)]
struct Resolver(Arc<OutgoingRules>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let rules = Arc::clone(&self.0);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted = rules.permitted(name.as_str(), found)?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

/// What `object_store` asks with: the same client, the same checks, and answers that are kept in memory have a limit.
#[derive(Debug)]
struct ObjectService(HttpClient);

impl HttpClient {
    pub(super) fn for_objects(&self) -> ObjectClient {
        ObjectClient::new(ObjectService(self.clone()))
    }
}

impl HttpService for ObjectService {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> std::pin::Pin<
        Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'async_trait>,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            // `object_store` unwraps this one; an endpoint that is no URL must be an error.
            let url: Url = request.uri().to_string().parse().map_err(|_| refused(Refused::not_a_url()))?;
            self.0.rules.check_url(&url).map_err(refused)?;
            let is_streamed = request.method() == Method::GET && !limit::is_listing(request.uri().query());
            let answer = HttpService::call(&self.0.http, request).await.map_err(|error| {
                // A refusal is final. As an error of the connection it would be tried again for minutes.
                match Refused::in_chain(&error) {
                    Some(found) => refused(found),
                    None => error,
                }
            })?;
            if is_streamed && answer.status().is_success() { Ok(answer) } else { Ok(limit::limited(answer)) }
        })
    }
}

fn refused(why: Refused) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, why)
}
