//! Sizes and prices of the installation's own, from its configuration, beside the catalogue that the project brings.
//!
//! They decide what a cluster may be and what its nodes cost, so they are in the log with `server.started`. A cluster
//! keeps the shape and the price that it was created with.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::catalogue::{self, Size};
use crate::units::{Capacity, MicroUsd};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    pub sizes: Vec<OwnSize>,
    pub prices: Vec<OwnPrice>,
}

/// A size that the catalogue does not have, or has otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnSize {
    pub name: Arc<str>,
    pub family: Arc<str>,
    pub capacity: Capacity,
    /// Per hour.
    pub price: MicroUsd,
    /// None: it has no low-priority tier.
    pub low_priority_price: Option<MicroUsd>,
    /// Canonical; none: everywhere.
    pub locations: Vec<Arc<str>>,
}

/// Another price for a size of the catalogue, per hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnPrice {
    pub size: Arc<str>,
    pub dedicated: Option<MicroUsd>,
    pub low_priority: Option<MicroUsd>,
}

/// A size as it is offered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub name: Arc<str>,
    pub family: Arc<str>,
    pub capacity: Capacity,
    pub os_disk_mb: u64,
    pub temp_disk_mb: u64,
    pub premium_io: bool,
    pub low_priority_capable: bool,
    pub dedicated_price: Option<MicroUsd>,
    pub low_priority_price: Option<MicroUsd>,
    /// Canonical; none: everywhere.
    pub locations: Vec<Arc<str>>,
    /// The installation's own: no series of Azure's is retired for it.
    pub own: bool,
}

impl Offer {
    pub fn is_in(&self, location: &str) -> bool {
        self.locations.is_empty() || self.locations.iter().any(|here| **here == *location)
    }

    fn of_catalogue(size: &Size) -> Self {
        Self {
            name: size.name.into(),
            family: size.family.into(),
            capacity: size.capacity(),
            os_disk_mb: size.os_disk_mb,
            temp_disk_mb: size.temp_disk_mb,
            premium_io: size.premium_io,
            low_priority_capable: size.low_priority_capable,
            dedicated_price: size.dedicated_price,
            low_priority_price: size.low_priority_price,
            locations: Vec::new(),
            own: false,
        }
    }

    fn of_own(size: &OwnSize) -> Self {
        Self {
            name: size.name.clone(),
            family: size.family.clone(),
            capacity: size.capacity,
            os_disk_mb: 0,
            temp_disk_mb: 0,
            premium_io: false,
            low_priority_capable: size.low_priority_price.is_some(),
            dedicated_price: Some(size.price),
            low_priority_price: size.low_priority_price,
            locations: size.locations.clone(),
            own: true,
        }
    }
}

impl Own {
    /// A size by its name, without regard to case: an own one before the catalogue's.
    pub fn find(&self, name: &str) -> Option<Offer> {
        match self.sizes.iter().find(|size| size.name.eq_ignore_ascii_case(name)) {
            Some(own) => Some(Offer::of_own(own)),
            None => catalogue::size(name).map(|size| self.priced(Offer::of_catalogue(size))),
        }
    }

    /// Every size, own ones first.
    pub fn offers(&self) -> Vec<Offer> {
        let is_own = |name: &str| self.sizes.iter().any(|own| own.name.eq_ignore_ascii_case(name));
        let others = catalogue::sizes().filter(|size| !is_own(size.name));
        let own = self.sizes.iter().map(Offer::of_own);
        own.chain(others.map(|size| self.priced(Offer::of_catalogue(size)))).collect()
    }

    /// Every family of sizes.
    pub fn families(&self) -> BTreeSet<Arc<str>> {
        let own = self.sizes.iter().map(|size| size.family.clone());
        own.chain(catalogue::sizes().map(|size| Arc::from(size.family))).collect()
    }

    fn priced(&self, mut offer: Offer) -> Offer {
        if let Some(price) = self.prices.iter().find(|price| price.size.eq_ignore_ascii_case(&offer.name)) {
            offer.dedicated_price = price.dedicated.or(offer.dedicated_price);
            if let Some(low_priority) = price.low_priority {
                offer.low_priority_price = Some(low_priority);
                offer.low_priority_capable = true;
            }
        }
        offer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Own {
        Own {
            sizes: vec![OwnSize {
                name: "Rack-8x".into(),
                family: "rack".into(),
                capacity: Capacity { cpus_milli: 64_000, memory_mb: 512, gpus: 8 },
                price: MicroUsd(5),
                low_priority_price: None,
                locations: vec!["cellar".into()],
            }],
            prices: vec![OwnPrice {
                size: "standard_ds3_v2".into(),
                dedicated: Some(MicroUsd(7)),
                low_priority: None,
            }],
        }
    }

    #[test]
    fn an_own_size_is_found_beside_the_catalogues() {
        let own = own();
        let rack = own.find("RACK-8X").unwrap();
        assert_eq!((rack.capacity.gpus, rack.low_priority_capable, rack.own), (8, false, true));
        assert!(rack.is_in("cellar") && !rack.is_in("eastus"));
        assert!(own.find("Standard_D2s_v3").is_some_and(|size| size.is_in("eastus") && !size.own));
        assert_eq!(own.find("Rack-9x"), None);
        assert_eq!(own.offers().len(), catalogue::sizes().count() + 1);
        assert!(own.families().contains("rack"));
    }

    #[test]
    fn an_own_price_is_laid_over_the_catalogues() {
        let size = own().find("Standard_DS3_v2").unwrap();
        assert_eq!(size.dedicated_price, Some(MicroUsd(7)));
        assert_eq!(size.low_priority_price, catalogue::size("Standard_DS3_v2").unwrap().low_priority_price);
        assert_eq!(
            Own::default().find("Standard_DS3_v2").unwrap().dedicated_price,
            catalogue::size("Standard_DS3_v2").unwrap().dedicated_price
        );
    }
}
