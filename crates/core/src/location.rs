//! Locations as the configuration has them: what the provider may give in each, what things cost there, and how far
//! they are from each other. A location that says nothing has no limits of its own and the catalogue's prices.
//!
//! What is in use of each is kept by `apply`; quotas, which are somebody's and not the place's, are in `quota.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Cut, Shape};
use crate::ids::WorkspaceId;
use crate::own::{Offer, OwnPrice};
use crate::quota;
use crate::settings::Settings;
use crate::state::State;
use crate::units::{Capacity, MicroUsd};

/// Of [`Place::price_ppm`]: the price as it is.
pub const PPM: u64 = 1_000_000;

/// One location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Nodes that the provider may have there, over all clusters; none: as many as it has at all.
    pub nodes_max: Option<u32>,
    /// Cores of their declared sizes, likewise.
    pub cores_max: Option<u64>,
    /// What prices are multiplied with there, in millionths.
    pub price_ppm: u64,
    /// Prices of sizes there, which go before everything else.
    pub prices: Vec<OwnPrice>,
    /// How long a message takes to another location, by its name.
    pub latency_ms: BTreeMap<Arc<str>, u32>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            nodes_max: None,
            cores_max: None,
            price_ppm: PPM,
            prices: Vec::new(),
            latency_ms: BTreeMap::new(),
        }
    }
}

/// What the nodes in a location take, together. Kept by `apply`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    pub nodes: u32,
    pub cpus_milli: u64,
}

/// What costs beside nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charges {
    /// For a gigabyte (1000³ bytes) kept for a month of 30 days.
    pub storage_gb_month: MicroUsd,
    /// For a gigabyte that goes from one location to another.
    pub transfer_gb: MicroUsd,
}

/// What of a place is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scarce {
    Nodes,
    Cores,
}

impl fmt::Display for Scarce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "nodes",
            Self::Cores => "cores",
        })
    }
}

impl Settings {
    /// A size as it is offered in a location, with its prices there.
    pub fn offer_in(&self, location: &str, size: &str) -> Option<Offer> {
        self.own.find(size).map(|offer| self.priced(location, offer))
    }

    /// Every size that a location has.
    pub fn offers_in(&self, location: &str) -> Vec<Offer> {
        let there = self.own.offers().into_iter().filter(|offer| offer.is_in(location));
        there.map(|offer| self.priced(location, offer)).collect()
    }

    fn priced(&self, location: &str, mut offer: Offer) -> Offer {
        let Some(place) = self.places.get(location) else { return offer };
        let there = |price: MicroUsd| {
            let exact = u128::from(price.0) * u128::from(place.price_ppm) / u128::from(PPM);
            MicroUsd(u64::try_from(exact).unwrap_or(u64::MAX))
        };
        offer.dedicated_price = offer.dedicated_price.map(there);
        offer.low_priority_price = offer.low_priority_price.map(there);
        if let Some(own) = place.prices.iter().find(|own| own.size.eq_ignore_ascii_case(&offer.name)) {
            offer.dedicated_price = own.dedicated.or(offer.dedicated_price);
            if let Some(price) = own.low_priority {
                offer.low_priority_price = Some(price);
                offer.low_priority_capable = true;
            }
        }
        offer
    }

    /// Whether any location has room of its own.
    pub fn has_places_with_limits(&self) -> bool {
        self.places.values().any(|place| place.nodes_max.is_some() || place.cores_max.is_some())
    }

    /// How long a message takes between two locations, if it is known: said on either side.
    pub fn latency_ms(&self, one: &str, other: &str) -> Option<u32> {
        let from = |a: &str, b: &str| self.places.get(a)?.latency_ms.get(b).copied();
        from(one, other).or_else(|| from(other, one))
    }

    /// What data that lies elsewhere means, in one sentence after the places' names.
    pub fn apart(&self, one: &str, other: &str) -> String {
        let latency = match self.latency_ms(one, other) {
            Some(ms) => format!("each request takes {ms} ms longer"),
            None => "each request takes longer".to_owned(),
        };
        let cost = match self.charges.transfer_gb {
            MicroUsd(0) => "costs transfer where your network's owner asks for it".to_owned(),
            price => format!("a gigabyte across costs {} USD", usd(price)),
        };
        format!("{latency}, and {cost}")
    }
}

/// As people write it: no zeros that say nothing, two places at least.
fn usd(price: MicroUsd) -> String {
    let text = format!("{}.{:06}", price.0 / 1_000_000, price.0 % 1_000_000);
    let zeros = text.len() - text.trim_end_matches('0').len();
    text[..text.len() - zeros.min(4)].to_owned()
}

/// How many more nodes of this size a location has room for now.
pub fn nodes_free(state: &State, location: &str, nominal: Capacity) -> u32 {
    let Some(place) = state.settings.places.get(location) else { return u32::MAX };
    let given = state.given.get(location).copied().unwrap_or_default();
    room(place, given, nominal)
}

/// How many it could ever have at once.
pub fn nodes_ever(state: &State, location: &str, nominal: Capacity) -> u32 {
    let place = state.settings.places.get(location);
    place.map_or(u32::MAX, |place| room(place, Given::default(), nominal))
}

fn room(place: &Place, given: Given, nominal: Capacity) -> u32 {
    let nodes = place.nodes_max.map_or(u32::MAX, |max| max.saturating_sub(given.nodes));
    let Some(cores_max) = place.cores_max else { return nodes };
    let free_milli = cores_max.saturating_mul(1_000).saturating_sub(given.cpus_milli);
    let by_cores = free_milli.checked_div(nominal.cpus_milli.into()).unwrap_or(u64::MAX);
    nodes.min(u32::try_from(by_cores).unwrap_or(u32::MAX))
}

/// Why the location of a cluster has no room for another node, if so.
pub fn cut(state: &State, cluster: &Cluster) -> Option<Cut> {
    missing(state, cluster, 1)
}

/// The same for so many more at once.
pub fn missing(state: &State, cluster: &Cluster, nodes: u32) -> Option<Cut> {
    let place = state.settings.places.get(&cluster.location)?;
    let given = state.given.get(&cluster.location).copied().unwrap_or_default();
    let nominal = cluster.shape.nominal;
    let cut = |of: Scarce, in_use: u64, max: u64, needed: u64| Cut::Location {
        location: cluster.location.clone(),
        of,
        in_use,
        max,
        needed,
    };
    if let Some(max) = place.nodes_max.filter(|max| given.nodes.saturating_add(nodes) > *max) {
        return Some(cut(Scarce::Nodes, given.nodes.into(), max.into(), nodes.into()));
    }
    let needed_milli = u64::from(nominal.cpus_milli) * u64::from(nodes);
    let max = place
        .cores_max
        .filter(|max| given.cpus_milli.saturating_add(needed_milli) > max.saturating_mul(1_000))?;
    Some(cut(Scarce::Cores, given.cpus_milli.div_ceil(1_000), max, needed_milli.div_ceil(1_000)))
}

/// Another location that could have so many nodes of this size now, with the quotas there: the one with most room, and
/// of those the first. Nothing where locations are no more than names.
pub fn elsewhere(
    state: &State,
    workspace: WorkspaceId,
    location: &str,
    shape: &Shape,
    nodes: u32,
) -> Option<(Arc<str>, u32)> {
    let own = state.settings.own.find(&shape.size)?;
    let free = |name: &Arc<str>| {
        let by_quota = quota::nodes_undeclared(state, workspace, name, shape);
        nodes_free(state, name, shape.nominal).min(by_quota)
    };
    let said = |name: &Arc<str>| {
        state.settings.places.contains_key(name) || quota::limits_somebody(state, workspace, name)
    };
    let names = state.settings.locations.iter().filter(|name| **name != *location && own.is_in(name));
    let there: Vec<(Arc<str>, u32)> = names
        .map(|name| Arc::from(name.as_str()))
        .map(|name: Arc<str>| (name.clone(), free(&name)))
        .filter(|(_, free)| *free >= nodes)
        .collect();
    // A place that says how much it has tells more than one that says nothing.
    let known = there.iter().filter(|(name, _)| said(name)).max_by_key(|(_, free)| *free).cloned();
    known.or_else(|| there.into_iter().next())
}

/// The same in a sentence, with the blank before it.
pub fn elsewhere_words(
    state: &State,
    workspace: WorkspaceId,
    location: &str,
    shape: &Shape,
    nodes: u32,
) -> String {
    match elsewhere(state, workspace, location, shape, nodes.max(1)) {
        Some((there, u32::MAX)) => format!(" {there} has room; nothing limits it there."),
        Some((there, 1)) => format!(" {there} has room for one such node."),
        Some((there, free)) => format!(" {there} has room for {free} such nodes."),
        None => " No other location has room.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(places: &[(&str, Place)]) -> Settings {
        let places = places.iter().map(|(name, place)| (Arc::from(*name), place.clone())).collect();
        Settings { places: Arc::new(places), ..Settings::default() }
    }

    #[test]
    fn prices_of_a_place() {
        let dear = Place { price_ppm: 1_250_000, ..Place::default() };
        let own =
            OwnPrice { size: "standard_ds3_v2".into(), dedicated: Some(MicroUsd(7)), low_priority: None };
        let special = Place { price_ppm: 2_000_000, prices: vec![own], ..Place::default() };
        let settings = settings(&[("westus", dear), ("eastus", special)]);
        let price =
            |location: &str| settings.offer_in(location, "Standard_DS3_v2").unwrap().dedicated_price.unwrap();
        let plain = price("uksouth").0;
        assert_eq!((price("westus").0, price("eastus").0), (plain * 5 / 4, 7));
        let offer = settings.offer_in("eastus", "Standard_DS3_v2").unwrap();
        let low = settings.offer_in("uksouth", "Standard_DS3_v2").unwrap().low_priority_price.unwrap();
        assert_eq!(offer.low_priority_price, Some(MicroUsd(low.0 * 2)));
    }

    #[test]
    fn what_is_across_costs() {
        let mut settings =
            settings(&[("westus", Place { latency_ms: [("eastus".into(), 60)].into(), ..Place::default() })]);
        assert_eq!(settings.latency_ms("eastus", "westus"), Some(60));
        assert!(
            settings.apart("eastus", "uksouth").starts_with("each request takes longer, and costs transfer")
        );
        settings.charges.transfer_gb = MicroUsd(20_000);
        assert_eq!(
            settings.apart("westus", "eastus"),
            "each request takes 60 ms longer, and a gigabyte across costs 0.02 USD"
        );
        assert_eq!((usd(MicroUsd(1_500)), usd(MicroUsd(2_000_000))), ("0.0015".into(), "2.00".into()));
    }

    #[test]
    fn room_is_the_lesser_of_nodes_and_cores() {
        let place = Place { nodes_max: Some(5), cores_max: Some(10), ..Place::default() };
        let four = Capacity { cpus_milli: 4_000, ..Capacity::default() };
        assert_eq!(room(&place, Given::default(), four), 2);
        assert_eq!(room(&place, Given { nodes: 4, cpus_milli: 2_000 }, four), 1);
        assert_eq!(room(&place, Given { nodes: 1, cpus_milli: 8_000 }, four), 0);
        assert_eq!(room(&Place::default(), Given { nodes: 9, cpus_milli: 0 }, four), u32::MAX);
    }
}
