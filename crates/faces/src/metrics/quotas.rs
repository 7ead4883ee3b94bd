//! Each limit on cores and clusters: what it is, what is held of it, and what nodes use.

use neap_core::quota::{self, QuotaKey};

use super::exposition::{Exposition, Kind};
use crate::app::App;

pub(crate) fn write(out: &mut Exposition, app: &App) {
    let state = app.state();
    let usage = |key: &QuotaKey| state.quota_usage.get(key).copied().unwrap_or_default();
    let mut gauge = |name, help: &str, value: &dyn Fn(&QuotaKey, u64) -> u64| {
        let mut family = out.family(name, Kind::Gauge, help);
        for (key, limit) in state.quotas.iter().filter(|(key, _)| key.pool != quota::Pool::NodesPerCluster) {
            let (quota, of) = (key.pool.azure_name(), quota::holder_words(&state, &key.holder));
            let labels = [("quota", quota.as_str()), ("location", &*key.location), ("of", of.as_str())];
            family.sample(&labels, value(key, *limit));
        }
    };
    gauge("neap_quota_limit", "How much may be held: cores, or clusters.", &|_, limit| limit);
    gauge("neap_quota_held", "What clusters have declared of it.", &|key, _| usage(key).held);
    gauge("neap_quota_in_use", "Cores of nodes.", &|key, _| usage(key).in_use);
}
