//! `locations` and `charges` of `config.yaml`: where clusters may be, how much each place has, and what is paid for beside
//! nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use neap_core::location::{Charges, PPM, Place};
use neap_core::names;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::Config;
use super::read::Problems;
use super::sizes::{PRICE_USD_MAX, PriceRule, is_price, micro_usd};

/// What a price may be multiplied with.
const FACTOR_MAX: f64 = 1_000.0;
const LATENCY_MS_MAX: u32 = 60_000;

/// A name alone, or a name with more.
#[derive(Clone, Debug, PartialEq)]
pub enum LocationRule {
    Name(String),
    Place(PlaceRule),
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlaceRule {
    pub name: String,
    /// Nodes of all clusters there; absent: no limit of its own.
    pub max_nodes: Option<u32>,
    /// Cores of their sizes; absent: no limit of its own.
    pub max_cores: Option<u64>,
    /// Every price is multiplied with it there.
    pub price_factor: Option<f64>,
    /// USD an hour of sizes there, in place of the catalogue's and the factor's.
    pub prices: BTreeMap<String, PriceRule>,
    /// How long a message takes to other locations.
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

impl<'de> Deserialize<'de> for LocationRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameOrPlace;

        impl<'de> Visitor<'de> for NameOrPlace {
            type Value = LocationRule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a place, or keys such as `name` and `max_nodes`")
            }

            fn visit_str<E>(self, name: &str) -> Result<LocationRule, E> {
                Ok(LocationRule::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LocationRule, A::Error> {
                PlaceRule::deserialize(MapAccessDeserializer::new(map)).map(LocationRule::Place)
            }
        }

        from.deserialize_any(NameOrPlace)
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

pub(super) fn check(config: &Config, problems: &mut Problems) {
    let rules = config.locations.as_deref().unwrap_or_default();
    problems.tell_if(
        config.locations.as_ref().is_some_and(Vec::is_empty),
        "locations",
        "must name at least one place",
    );
    let all: Vec<String> = rules.iter().map(LocationRule::canonical).collect();
    for (at, name) in all.iter().enumerate() {
        let path = format!("locations[{at}]");
        problems.tell_if(name.is_empty(), &path, "each place has a name");
        if !name.is_empty() && all[..at].contains(name) {
            problems.tell(path, format!("'{name}' is there twice"));
        }
        if let LocationRule::Place(place) = &rules[at] {
            check_place(place, &format!("locations[{at}]"), &all, problems);
        }
    }
    if let Some(location) = &config.default_location
        && !config.location_names().contains(&names::canonical_location(location))
    {
        problems.tell_given("locations", "default_location".into(), not_here(location));
    }
    let charges = config.charges;
    for (price, key) in [(charges.storage_gb_month, "storage_gb_month"), (charges.transfer_gb, "transfer_gb")]
    {
        if !is_price(price) {
            problems.tell(format!("charges.{key}"), format!("must be 0 to {PRICE_USD_MAX} USD"));
        }
    }
    problems.tell_if(charges.sample_seconds == 0, "charges.sample_seconds", "must be at least 1");
}

fn check_place(place: &PlaceRule, path: &str, all: &[String], problems: &mut Problems) {
    if place.max_cores.is_some_and(|cores| cores > u64::from(u32::MAX)) {
        problems.tell(format!("{path}.max_cores"), format!("is at most {}", u32::MAX));
    }
    if place.price_factor.is_some_and(|factor| !(0.0..=FACTOR_MAX).contains(&factor)) {
        problems.tell(format!("{path}.price_factor"), format!("must be 0 to {FACTOR_MAX}"));
    }
    for (size, price) in &place.prices {
        price.check(&format!("{path}.prices.{size}"), problems);
    }
    for (to, ms) in &place.latency_ms {
        let path = format!("{path}.latency_ms.{to}");
        if !all.contains(&names::canonical_location(to)) {
            problems.tell_given("locations", path.clone(), not_here(to));
        }
        if *ms > LATENCY_MS_MAX {
            problems.tell(path, format!("is at most {LATENCY_MS_MAX}"));
        }
    }
}

pub(super) fn not_here(name: &str) -> String {
    format!("'{name}' is no location here; `locations` names them")
}
