//! The sizes a cluster may have and the places it may be in, as data of the project.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::units::{Capacity, MicroUsd};

/// One row of `data/vm-sizes.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// As Azure spells it: `Standard_DS3_v2`. Answers upper-case it.
    pub name: &'static str,
    pub family: &'static str,
    pub vcpus: u32,
    pub memory_mb: u64,
    pub os_disk_mb: u64,
    pub temp_disk_mb: u64,
    pub gpus: u32,
    pub gpu_type: &'static str,
    pub low_priority_capable: bool,
    pub premium_io: bool,
    pub rdma: bool,
    /// Per hour; absent where no price is published.
    pub dedicated_price: Option<MicroUsd>,
    pub low_priority_price: Option<MicroUsd>,
}

impl Size {
    pub fn capacity(&self) -> Capacity {
        Capacity { cpus_milli: self.vcpus * 1000, memory_mb: self.memory_mb, gpus: self.gpus }
    }
}

static SIZES: LazyLock<BTreeMap<String, Size>> = LazyLock::new(|| {
    include_str!("../data/vm-sizes.csv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .skip(1)
        .filter_map(parse_size)
        .map(|size| (size.name.to_ascii_lowercase(), size))
        .collect()
});

fn parse_size(line: &'static str) -> Option<Size> {
    let field: Vec<&'static str> = line.split(',').collect();
    let flag = |i: usize| field.get(i).is_some_and(|f| *f == "true");
    let number = |i: usize| field.get(i).and_then(|f| f.parse::<u64>().ok());
    let dedicated = number(11).map(MicroUsd);
    Some(Size {
        name: field.first()?,
        family: field.get(1)?,
        vcpus: u32::try_from(number(2)?).ok()?,
        memory_mb: number(3)?,
        os_disk_mb: number(4)?,
        temp_disk_mb: number(5)?,
        gpus: u32::try_from(number(6)?).ok()?,
        gpu_type: field.get(7)?,
        low_priority_capable: flag(8),
        premium_io: flag(9),
        rdma: flag(10),
        dedicated_price: dedicated,
        // Where no low-priority price is published, a fifth of the dedicated one is the documented estimate.
        low_priority_price: number(12).map(MicroUsd).or(dedicated.map(|price| MicroUsd(price.0 / 5))),
    })
}

/// Looks a size up without regard to case.
pub fn size(name: &str) -> Option<&'static Size> {
    SIZES.get(&name.to_ascii_lowercase())
}

pub fn sizes() -> impl Iterator<Item = &'static Size> {
    SIZES.values()
}

/// Sizes whose names resemble an unknown one: the same letters in another order of version or number.
pub fn resembling(name: &str) -> Vec<&'static str> {
    let wanted = name.to_ascii_lowercase();
    let stem: String =
        wanted.trim_start_matches("standard_").chars().take_while(char::is_ascii_alphabetic).collect();
    let mut close: Vec<_> = SIZES
        .values()
        .filter(|s| {
            !stem.is_empty() && s.name.to_ascii_lowercase().trim_start_matches("standard_").starts_with(&stem)
        })
        .map(|s| s.name)
        .collect();
    close.truncate(4);
    close
}

/// The locations of a fresh server: Azure's public region names.
pub fn regions() -> impl Iterator<Item = &'static str> {
    include_str!("../data/regions.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let rows = include_str!("../data/vm-sizes.csv").lines().filter(|l| !l.starts_with('#')).count() - 1;
        assert_eq!(sizes().count(), rows);
        assert_eq!(size("STANDARD_ds3_V2").map(|s| (s.vcpus, s.memory_mb)), Some((4, 14 * 1024)));
        assert!(size("Standard_Nope").is_none());
        assert!(resembling("Standard_DS99_v2").iter().all(|name| name.starts_with("Standard_DS")));
        assert!(regions().any(|r| r == "westus"));
    }
}
