//! Time, capacity and money as integers with a type.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Wall-clock milliseconds since 1970, as the control plane counts them: never decreasing within a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    #[must_use]
    pub const fn plus(self, span_ms: u64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }

    /// How long ago `earlier` was; zero if it is not in the past.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// RFC 3339 with milliseconds and `Z`, as every face prints times.
    pub fn rfc3339(self) -> String {
        jiff::Timestamp::from_millisecond(i64::try_from(self.0).unwrap_or(i64::MAX))
            .map_or_else(|_| String::from("9999-12-31T23:59:59.999Z"), |t| format!("{t:.3}"))
    }
}

/// What a node has, what a job needs, what is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    pub cpus_milli: u32,
    pub memory_mb: u64,
    pub gpus: u32,
}

impl Capacity {
    pub const fn fits(self, need: Self) -> bool {
        need.cpus_milli <= self.cpus_milli && need.memory_mb <= self.memory_mb && need.gpus <= self.gpus
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpus_milli: self.cpus_milli.saturating_add(other.cpus_milli),
            memory_mb: self.memory_mb.saturating_add(other.memory_mb),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }

    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            cpus_milli: self.cpus_milli.saturating_sub(other.cpus_milli),
            memory_mb: self.memory_mb.saturating_sub(other.memory_mb),
            gpus: self.gpus.saturating_sub(other.gpus),
        }
    }

    /// The smaller of each: what a size truly gives on a machine.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            cpus_milli: self.cpus_milli.min(other.cpus_milli),
            memory_mb: self.memory_mb.min(other.memory_mb),
            gpus: self.gpus.min(other.gpus),
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.cpus_milli / 1000, self.cpus_milli % 1000);
        if rest == 0 {
            write!(f, "{}, ", many(whole, "core"))?;
        } else {
            write!(f, "{whole}.{rest:03} cores, ")?;
        }
        write!(f, "{} MB", self.memory_mb)?;
        if self.gpus > 0 { write!(f, ", {}", many(self.gpus, "GPU")) } else { Ok(()) }
    }
}

/// `1 node`, `2 nodes`: for sentences.
pub fn many(count: impl Into<u64>, one: &str) -> String {
    match count.into() {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}

/// `1 node of S is`, `2 nodes of S are`: for sentences.
pub fn nodes_are(nodes: impl Into<u64>, of: &str) -> String {
    match nodes.into() {
        1 => format!("1 node{of} is"),
        n => format!("{n} nodes{of} are"),
    }
}

/// `1 more node of 4 cores is needed`, `2 more nodes of 4 cores are needed`.
pub fn more_nodes_are(nodes: u32, of: &str) -> String {
    match nodes {
        1 => format!("1 more node{of} is"),
        n => format!("{n} more nodes{of} are"),
    }
}

/// `1 job waits`, `2 jobs wait`.
pub fn jobs_wait(jobs: u64) -> String {
    match jobs {
        1 => "1 job waits".into(),
        n => format!("{n} jobs wait"),
    }
}

/// Money in millionths of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// What `span_ms` cost at this price per hour, rounded down; a segment is the difference of two of these.
    pub const fn over(self, span_ms: u64) -> u128 {
        self.0 as u128 * span_ms as u128 / 3_600_000
    }
}

impl fmt::Display for MicroUsd {
    /// `$12.50`, `$0.004211`: cents at least, and as much below as there is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, rest) = (self.0 / 1_000_000, format!("{:06}", self.0 % 1_000_000));
        let tail = rest[2..].trim_end_matches('0');
        write!(f, "${dollars}.{}{tail}", &rest[..2])
    }
}
