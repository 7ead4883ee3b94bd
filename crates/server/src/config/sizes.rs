//! Sizes of the installation's own, and other prices for those of the catalogue.

use neap_core::own::{Own, OwnPrice, OwnSize};
use neap_core::{Capacity, MicroUsd, names};
use serde::Deserialize;

use super::Config;
use super::locations::not_here;
use super::read::Problems;

/// A size of the installation's own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SizeRule {
    pub name: String,
    /// What quotas by family count it under; its own name where it is absent.
    pub family: Option<String>,
    pub cores: u32,
    pub memory_gb: f64,
    pub gpus: u32,
    /// USD an hour.
    pub price: f64,
    /// USD an hour; absent: it has no low-priority tier.
    pub low_priority_price: Option<f64>,
    /// Absent: everywhere.
    pub locations: Vec<String>,
}

/// USD an hour; what is absent is the catalogue's.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceRule {
    #[serde(default)]
    pub dedicated: Option<f64>,
    #[serde(default)]
    pub low_priority: Option<f64>,
}

impl PriceRule {
    pub(super) fn own(self, size: &str) -> OwnPrice {
        OwnPrice {
            size: size.into(),
            dedicated: self.dedicated.map(micro_usd),
            low_priority: self.low_priority.map(micro_usd),
        }
    }

    pub(super) fn check(self, path: &str, problems: &mut Problems) {
        for (price, key) in [(self.dedicated, "dedicated"), (self.low_priority, "low_priority")] {
            check_price(price, &format!("{path}.{key}"), problems);
        }
    }
}

/// A node that costs more is a slip of the pen.
pub(super) const PRICE_USD_MAX: f64 = 1_000_000.0;

pub(super) fn is_price(price: f64) -> bool {
    price.is_finite() && (0.0..=PRICE_USD_MAX).contains(&price)
}

fn check_price(price: Option<f64>, path: &str, problems: &mut Problems) {
    if price.is_some_and(|price| !is_price(price)) {
        problems.tell(path, format!("must be 0 to {PRICE_USD_MAX} USD an hour"));
    }
}

pub(super) fn micro_usd(usd: f64) -> MicroUsd {
    MicroUsd((usd * 1_000_000.0).round() as u64)
}

fn is_plain(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

impl Config {
    pub(super) fn check_sizes(&self, problems: &mut Problems) {
        for (at, size) in self.sizes.iter().enumerate() {
            let path = format!("sizes[{at}]");
            if self.sizes[..at].iter().any(|other| other.name.eq_ignore_ascii_case(&size.name)) {
                problems.tell(format!("{path}.name"), format!("'{}' is there twice", size.name));
            }
            self.check_size(size, &path, problems);
        }
        for (name, price) in &self.prices {
            let path = format!("prices.{name}");
            problems.tell_if(
                neap_core::catalogue::size(name).is_none(),
                &path,
                "is not in the catalogue; sizes of your own have their price with them",
            );
            price.check(&path, problems);
        }
    }

    fn check_size(&self, size: &SizeRule, path: &str, problems: &mut Problems) {
        for (name, key) in [(Some(&size.name), "name"), (size.family.as_ref(), "family")] {
            if name.is_some_and(|name| !is_plain(name)) {
                problems.tell(format!("{path}.{key}"), "must be 1 to 64 letters, digits, '_' and '-'");
            }
        }
        if !(1..=100_000).contains(&size.cores) {
            problems.tell(format!("{path}.cores"), "must be 1 to 100000");
        }
        if !(0.001..=1_000_000.0).contains(&size.memory_gb) {
            problems.tell(format!("{path}.memory_gb"), "must be 0.001 to 1000000");
        }
        if size.gpus > neap_sandbox::GPUS_MAX {
            problems.tell(format!("{path}.gpus"), format!("is at most {}", neap_sandbox::GPUS_MAX));
        }
        check_price(Some(size.price), &format!("{path}.price"), problems);
        check_price(size.low_priority_price, &format!("{path}.low_priority_price"), problems);
        let here = self.location_names();
        for (at, location) in size.locations.iter().enumerate() {
            if !here.contains(&names::canonical_location(location)) {
                problems.tell_given("locations", format!("{path}.locations[{at}]"), not_here(location));
            }
        }
    }

    /// Sizes and prices as the core counts them.
    pub(super) fn own(&self) -> Own {
        let sizes = self.sizes.iter().map(|size| OwnSize {
            name: size.name.as_str().into(),
            family: size.family.as_deref().unwrap_or(&size.name).into(),
            capacity: Capacity {
                cpus_milli: size.cores * 1_000,
                memory_mb: (size.memory_gb * 1024.0).round() as u64,
                gpus: size.gpus,
            },
            price: micro_usd(size.price),
            low_priority_price: size.low_priority_price.map(micro_usd),
            locations: size.locations.iter().map(|l| names::canonical_location(l).into()).collect(),
        });
        let prices = self.prices.iter().map(|(size, price)| price.own(size)).collect();
        Own { sizes: sizes.collect(), prices }
    }
}
