//! `limits` of `config.yaml`: how many connections and requests the server takes, and how long each may last.

use neap_core::settings::Settings;
use serde::Deserialize;

/// What clients may ask of this server. Nodes are not clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests answered per second, over all clients.
    pub requests_per_second: u32,
    /// Requests that may come at once after a quiet time; by default as many as one second's.
    pub burst: Option<u32>,
    /// Requests being worked on at the same time.
    pub requests_in_flight: u32,
    /// Bytes of request bodies held in memory at the same time, in each lane.
    pub body_bytes_in_flight: u64,
    /// Connections of clients and nodes, all together.
    pub connections: usize,
    /// Connections from one address that have shown a credential.
    pub connections_per_address: usize,
    /// Connections that have shown no credential: all together, and from one address.
    pub unauthenticated_connections: usize,
    pub unauthenticated_connections_per_address: usize,
    /// How long a connection may go without showing one.
    pub unauthenticated_seconds: u64,
    /// Requests without a credential.
    pub unauthenticated_requests_per_second: u32,
    pub unauthenticated_requests_in_flight: u32,
    /// How long a connection is kept open for another request.
    pub idle_seconds: u64,
    /// Jobs that may wait on one cluster.
    pub waiting_jobs: usize,
    /// Records of the log that are replayed for one question about the past.
    pub past_records: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_per_second: 10_000,
            burst: None,
            requests_in_flight: 1024,
            body_bytes_in_flight: 256 * 1024 * 1024,
            connections: 16_384,
            connections_per_address: 4_096,
            unauthenticated_connections: 1_024,
            unauthenticated_connections_per_address: 64,
            unauthenticated_seconds: 20,
            unauthenticated_requests_per_second: 500,
            unauthenticated_requests_in_flight: 64,
            idle_seconds: 60,
            waiting_jobs: Settings::default().waiting_jobs_max,
            past_records: neap_control::limits::PAST_RECORDS_MAX,
        }
    }
}
