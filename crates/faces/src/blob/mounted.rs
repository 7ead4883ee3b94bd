//! The blob face of the running server.

use super::{BlobFace, live};
use crate::app::App;
use crate::{ask, audience, elsewhere};
use std::sync::Arc;

impl From<App> for BlobFace {
    fn from(app: App) -> Self {
        let (store, sas, clock) = (app.store.clone(), app.sas.clone(), app.clone());
        let opener = app.clone();
        let bearer = move |headers: &axum::http::HeaderMap, uri: &axum::http::Uri| {
            let base = ask::base_url(uri, headers, &app.base_url);
            audience::authenticate(&app, headers, &base).is_ok()
        };
        let state = opener.clone();
        let is_live = move |bound| live::is_live(&state.state(), bound);
        let mut face =
            Self::new(store, sas, Arc::new(bearer), Arc::new(move || clock.now_s()), Arc::new(is_live));
        face.elsewhere = Some(Arc::new(move |account, container, name, query, write| {
            elsewhere::open(&opener, account, container, name, query, write)
        }));
        face
    }
}
