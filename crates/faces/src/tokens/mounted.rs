//! The token face of the running server.

use std::sync::Arc;

use super::{Holder, TokenFace};
use crate::app::App;

impl From<App> for TokenFace {
    /// The holder of the identity secret is the owner of the installation.
    fn from(app: App) -> Self {
        Self {
            issuer: app.issuer.clone(),
            secret: app.secret.clone(),
            holder: Holder {
                tenant_id: app.installation.tenant_id.clone(),
                object_id: app.installation.id.clone(),
                name: "owner".to_owned(),
            },
            base_url: app.base_url.clone(),
            now_s: Arc::new(move || app.now_s()),
        }
    }
}
