//! `locations` and `charges` of `config.yaml`: where clusters may be, how much each place has, and what is paid for beside
//! nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use neap_core::location::{Charges, PPM, Place};
use neap_core::names;
use serde::Deserialize;

use super::sizes::{PriceRule, is_price, micro_usd};

/// What a price may be multiplied with.
const FACTOR_MAX: f64 = 1_000.0;
const LATENCY_MS_MAX: u32 = 60_000;

/// A name alone, or a name with more.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum LocationRule {
    Name(String),
    Place(PlaceRule),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceRule {
    pub name: String,
    /// Nodes of all clusters there; absent: no limit of its own.
    #[serde(default)]
    pub max_nodes: Option<u32>,
    /// Cores of their sizes; absent: no limit of its own.
    #[serde(default)]
    pub max_cores: Option<u64>,
    /// Every price is multiplied with it there.
    #[serde(default)]
    pub price_factor: Option<f64>,
    /// USD an hour of sizes there, in place of the catalogue's and the factor's.
    #[serde(default)]
    pub prices: BTreeMap<String, PriceRule>,
    /// How long a message takes to other locations.
    #[serde(default)]
    pub latency_ms: BTreeMap<String, u32>,
}

impl LocationRule {
    pub fn canonical(&self) -> String {
        names::canonical_location(match self {
            Self::Name(name) => name,
            Self::Place(place) => &place.name,
        })
    }
}

/// In USD.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChargeRules {
    /// For a gigabyte kept for 30 days.
    pub storage_gb_month: f64,
    /// For a gigabyte from one location to another.
    pub transfer_gb: f64,
    /// How often storage is looked at.
    pub sample_seconds: u64,
}

impl Default for ChargeRules {
    fn default() -> Self {
        Self { storage_gb_month: 0.0, transfer_gb: 0.0, sample_seconds: 3600 }
    }
}

impl ChargeRules {
    /// How often storage is to be looked at, where it is paid for at all.
    pub fn sampling(self) -> Option<Duration> {
        (self.storage_gb_month > 0.0).then(|| Duration::from_secs(self.sample_seconds))
    }

    pub fn charges(self) -> Charges {
        Charges {
            storage_gb_month: micro_usd(self.storage_gb_month),
            transfer_gb: micro_usd(self.transfer_gb),
        }
    }
}

/// Those that say more than their name.
pub(super) fn places(rules: &[LocationRule]) -> BTreeMap<Arc<str>, Place> {
    let more = rules.iter().filter_map(|rule| match rule {
        LocationRule::Name(_) => None,
        LocationRule::Place(place) => Some((rule.canonical().into(), place_of(place))),
    });
    more.collect()
}

fn place_of(rule: &PlaceRule) -> Place {
    let ppm = rule.price_factor.map_or(PPM, |factor| (factor * PPM as f64).round() as u64);
    let name = |name: &String| names::canonical_location(name).into();
    Place {
        nodes_max: rule.max_nodes,
        cores_max: rule.max_cores,
        price_ppm: ppm,
        prices: rule.prices.iter().map(|(size, price)| price.own(size)).collect(),
        latency_ms: rule.latency_ms.iter().map(|(to, ms)| (name(to), *ms)).collect(),
    }
}

pub(super) fn check(rules: &[LocationRule], charges: ChargeRules, problems: &mut Vec<String>) {
    let all: Vec<String> = rules.iter().map(LocationRule::canonical).collect();
    for (at, name) in all.iter().enumerate() {
        if name.is_empty() {
            problems.push("locations: each has a name".into());
        }
        if all[..at].contains(name) {
            problems.push(format!("locations: '{name}' is there twice"));
        }
    }
    for rule in rules {
        let LocationRule::Place(place) = rule else { continue };
        let name = &place.name;
        if place.max_cores.is_some_and(|cores| cores > u64::from(u32::MAX)) {
            problems.push(format!("locations: max_cores of '{name}' is at most {}", u32::MAX));
        }
        if place.price_factor.is_some_and(|factor| !(0.0..=FACTOR_MAX).contains(&factor)) {
            problems.push(format!("locations: price_factor of '{name}' must be 0 to {FACTOR_MAX}"));
        }
        for (size, price) in &place.prices {
            if !price.is_good() {
                problems.push(format!("locations: the prices of '{size}' in '{name}' cannot be"));
            }
        }
        for (to, ms) in &place.latency_ms {
            if !all.contains(&names::canonical_location(to)) {
                problems.push(format!(
                    "locations: latency_ms of '{name}' names '{to}', which is no location here"
                ));
            }
            if *ms > LATENCY_MS_MAX {
                problems.push(format!("locations: latency_ms of '{name}' is at most {LATENCY_MS_MAX}"));
            }
        }
    }
    if !is_price(charges.storage_gb_month) || !is_price(charges.transfer_gb) {
        problems.push("charges: storage_gb_month and transfer_gb are USD, 0 or more".into());
    }
    if charges.sample_seconds == 0 {
        problems.push("charges: sample_seconds must be at least 1".into());
    }
}
