//! Sizes of the installation's own, and other prices for those of the catalogue.

use neap_core::own::{Own, OwnPrice, OwnSize};
use neap_core::{Capacity, MicroUsd, names};
use serde::Deserialize;

use super::Config;

/// A size of the installation's own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRule {
    pub name: String,
    /// What quotas by family count it under; its own name where it is absent.
    #[serde(default)]
    pub family: Option<String>,
    pub cores: u32,
    pub memory_gb: f64,
    #[serde(default)]
    pub gpus: u32,
    /// USD an hour.
    #[serde(default)]
    pub price: f64,
    /// USD an hour; absent: it has no low-priority tier.
    #[serde(default)]
    pub low_priority_price: Option<f64>,
    /// Absent: everywhere.
    #[serde(default)]
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

    pub(super) fn is_good(self) -> bool {
        [self.dedicated, self.low_priority].into_iter().flatten().all(is_price)
    }
}

/// A node that costs more is a slip of the pen.
const PRICE_USD_MAX: f64 = 1_000_000.0;

pub(super) fn is_price(price: f64) -> bool {
    price.is_finite() && (0.0..=PRICE_USD_MAX).contains(&price)
}

pub(super) fn micro_usd(usd: f64) -> MicroUsd {
    MicroUsd((usd * 1_000_000.0).round() as u64)
}

impl Config {
    pub(super) fn check_sizes(&self, problems: &mut Vec<String>) {
        for size in &self.sizes {
            let name = &size.name;
            let plain = !name.is_empty()
                && name.len() <= 64
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            if !plain {
                problems
                    .push(format!("sizes: '{name}' is no name; letters, digits, '_' and '-', at most 64"));
            }
            if self.sizes.iter().filter(|other| other.name.eq_ignore_ascii_case(name)).count() > 1 {
                problems.push(format!("sizes: '{name}' is there twice"));
            }
            if size.cores == 0 || size.cores > 100_000 || !(0.001..=1_000_000.0).contains(&size.memory_gb) {
                problems
                    .push(format!("sizes: '{name}' needs 1 to 100000 cores and 0.001 to 1000000 memory_gb"));
            }
            if size.gpus > neap_sandbox::GPUS_MAX {
                problems.push(format!("sizes: '{name}' has more than {} GPUs", neap_sandbox::GPUS_MAX));
            }
            if !is_price(size.price) || size.low_priority_price.is_some_and(|price| !is_price(price)) {
                problems
                    .push(format!("sizes: the prices of '{name}' must be 0 to {PRICE_USD_MAX} USD an hour"));
            }
        }
        for (name, price) in &self.prices {
            if neap_core::catalogue::size(name).is_none() {
                problems.push(format!(
                    "prices: '{name}' is not in the catalogue; sizes of your own have their price with them"
                ));
            }
            if !price.is_good() {
                problems.push(format!("prices: those of '{name}' must be 0 to {PRICE_USD_MAX} USD an hour"));
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
