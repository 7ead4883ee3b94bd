//! The faces on a real control plane and ledger in a folder of its own, with a provider whose nodes never come up.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use neap_control::{Control, ControlParts, Gate, OrderSettings, clock};
use neap_core::settings::Settings;
use neap_core::{Millis, NodeId};
use neap_faces::{App, Installation, ServerFacts};
use neap_identity::{Authority, Claims, IdentitySecret, Issuer, JoinTokens, UsedNonces, Vault};
use neap_providers::{Answer, Found, NodeOrder, Provider};
use neap_storage::Store;
use neap_storage::joblog::JobLogs;
use neap_storage::sas::SasKey;
use serde_json::{Value, json};
use tower::ServiceExt;

pub const SUB: &str = "11111111-2222-4333-8444-555555555555";
pub const ML: &str = "providers/Microsoft.MachineLearningServices";

#[derive(Debug)]
struct NoNodes;

impl Provider for NoNodes {
    fn create(&self, _: NodeOrder) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    fn remove(&self, _: NodeId, _: Arc<str>) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    fn list(&self) -> Answer<'_, Vec<Found>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

pub struct World {
    pub router: Router,
    pub control: Control,
    token: String,
    _news: tokio::sync::mpsc::UnboundedSender<neap_providers::News>,
    _folder: tempfile::TempDir,
}

/// An answer taken apart.
#[derive(Debug)]
pub struct Got {
    pub status: StatusCode,
    pub headers: axum::http::HeaderMap,
    pub text: String,
    pub body: Value,
}

impl Got {
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

impl World {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let identity = root.join("identity");
        let opened = neap_control::open_ledger(&root.join("ledger"), &root.join("neap.lock"), 0).unwrap();
        let store = Arc::new(Store::open(&root.join("blobs")).unwrap());
        let now_s = clock::unix_seconds();
        let authority = Arc::new(Authority::open(&identity, &[], now_s).unwrap());
        let sas = SasKey::new(b"sas");
        let (news_sender, news) = tokio::sync::mpsc::unbounded_channel();
        let control = neap_control::start(
            opened,
            ControlParts {
                settings: Settings::default(),
                release: "test".into(),
                provider: Arc::new(NoNodes),
                news,
                gate: Gate {
                    authority,
                    tokens: JoinTokens::open(&identity.join("join.key")).unwrap(),
                    used: Mutex::new(UsedNonces::new()),
                },
                logs: JobLogs::open(store.clone(), &root.join("joblogs")).unwrap(),
                orders: OrderSettings {
                    disk: Default::default(),
                    base_url: "https://127.0.0.1:8443".into(),
                    isolation: neap_protocol::Isolation::Off,
                    log_bytes_max: 1 << 20,
                    checkpoint_interval_ms: 0,
                    tracking: None,
                    vault: Arc::new(Vault::open(&identity.join("vault.key")).unwrap()),
                },
                sas: sas.clone(),
                past_records_max: neap_control::limits::PAST_RECORDS_MAX,
            },
        )
        .await
        .unwrap();
        let issuer = Arc::new(Issuer::open(&identity.join("jwt.key")).unwrap());
        let claims = Claims {
            aud: "https://127.0.0.1:8443".into(),
            sub: "me".into(),
            name: Some("ada".into()),
            ..Claims::default()
        };
        let token = issuer.issue(claims, 3_600, now_s).unwrap();
        let app = App {
            control: control.handle.clone(),
            store,
            sas: Arc::new(sas),
            issuer,
            batches: Arc::new(neap_parallel::Batches::open(&root.join("parallel")).unwrap()),
            tracking: Arc::new(neap_tracking::Tracking::open(&root.join("tracking")).unwrap()),
            run_tokens: Arc::new(neap_identity::RunTokens::open(&identity.join("run.key")).unwrap()),
            vault: Arc::new(Vault::open(&identity.join("vault.key")).unwrap()),
            secret: Arc::new(IdentitySecret::open(&identity.join("secret")).unwrap()),
            base_url: "https://127.0.0.1:8443".into(),
            audiences: Arc::default(),
            installation: Arc::new(Installation {
                id: "inst".into(),
                subscription_id: SUB.into(),
                tenant_id: "tenant".into(),
            }),
            server: Arc::new(ServerFacts {
                version: "test".into(),
                pid: 1,
                started: Millis(0),
                isolation: Vec::new(),
                isolation_missing: Vec::new(),
                node_logs: root.join("node-logs"),
            }),
            observability: Arc::default(),
            data: Arc::default(),
            environments: Arc::default(),
            memory: Arc::default(),
            drafts: Arc::default(),
        };
        let world =
            Self { router: neap_faces::router(app), control, token, _news: news_sender, _folder: folder };
        world
            .put(&format!("/subscriptions/{SUB}/resourceGroups/neap"), json!({"location": "eastus"}))
            .await
            .expect(201);
        world.put(&ws(""), json!({"location": "eastus"})).await.expect(201);
        world
    }

    /// A request that is let in, without a body yet.
    pub fn request(&self, method: &str, path: &str) -> axum::http::request::Builder {
        let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:8443");
        request.header("authorization", format!("Bearer {}", self.token))
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Got {
        let request = self.request(method, path);
        self.send(request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap())
            .await
    }

    pub async fn send(&self, request: Request<Body>) -> Got {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Got { status: parts.status, headers: parts.headers, text, body }
    }

    pub async fn get(&self, path: &str) -> Got {
        self.call("GET", path, None).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Got {
        self.call("PUT", path, Some(body)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Got {
        self.call("POST", path, Some(body)).await
    }
}

/// A path below the default workspace.
pub fn ws(tail: &str) -> String {
    let slash = if tail.is_empty() { "" } else { "/" };
    format!("/subscriptions/{SUB}/resourceGroups/neap/{ML}/workspaces/default{slash}{tail}")
}

/// A cluster body as the SDK sends it.
pub fn cluster(max: i64) -> Value {
    json!({"location": "westus", "tags": {"a": "b"}, "properties": {"computeType": "AmlCompute", "disableLocalAuth": true, "properties": {
        "vmSize": "STANDARD_DS3_v2", "enableNodePublicIp": true, "osType": "Linux", "remoteLoginPortPublicAccess": "NotSpecified",
        "scaleSettings": {"maxNodeCount": max, "minNodeCount": 0, "nodeIdleTimeBeforeScaleDown": "PT2M"}}}})
}
