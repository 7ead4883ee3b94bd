//! Windows on a cluster's scale, and what they make of it; kept with the timer of the next look.

use std::sync::Arc;

use super::clusters::with_cluster;
use crate::event::{ClusterScheduled, WindowDeleted, WindowFilled, WindowPut};
use crate::state::{State, Timer};
use crate::units::Millis;
use crate::window::{Scheduled, Window};

pub(super) fn put(state: &mut State, at: Millis, e: &WindowPut) {
    let key: Arc<str> = e.name.to_lowercase().into();
    with_cluster(state, e.cluster, |cluster| {
        let created = cluster.windows.get(&key).map_or(at, |window| window.created);
        let window = Window {
            name: e.name.clone(),
            enabled: e.enabled,
            min: e.min,
            max: e.max,
            stops: e.stops,
            zone: e.zone.clone(),
            spans: e.spans.clone(),
            refill_at: e.refill_at,
            document: e.document,
            by: e.by.clone(),
            created,
            modified: at,
        };
        cluster.windows.insert(key, Arc::new(window));
    });
}

pub(super) fn filled(state: &mut State, e: &WindowFilled) {
    with_cluster(state, e.cluster, |cluster| {
        if let Some(window) = cluster.windows.get_mut(&*e.name.to_lowercase()).map(Arc::make_mut) {
            window.spans.clone_from(&e.spans);
            window.refill_at = e.refill_at;
        }
    });
}

pub(super) fn deleted(state: &mut State, e: &WindowDeleted) {
    with_cluster(state, e.cluster, |cluster| drop(cluster.windows.remove(&*e.name.to_lowercase())));
}

pub(super) fn scheduled(state: &mut State, e: &ClusterScheduled) {
    let Some(before) = state.clusters.get(&e.id).map(|cluster| cluster.scheduled.next) else { return };
    before.map(|at| state.timers.remove(&(at, Timer::Window(e.id))));
    e.next.map(|at| state.timers.insert((at, Timer::Window(e.id))));
    with_cluster(state, e.id, |cluster| {
        (cluster.scale.min, cluster.scale.max) = (e.min, e.max);
        cluster.scheduled = Scheduled {
            min_by: e.min_by.clone(),
            max_by: e.max_by.clone(),
            until: e.until.clone(),
            next: e.next,
        };
    });
}
