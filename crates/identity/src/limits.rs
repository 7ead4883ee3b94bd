//! Every limit and lifetime of this crate, in one place. Units are last in the names.

/// Lifetime of the local certificate authority.
pub const CA_LIFETIME_S: i64 = 10 * 365 * 86_400;
/// An authority with less than this left is renewed: clients have so long to fetch the new bundle.
pub const CA_RENEW_BEFORE_S: i64 = 2 * 365 * 86_400;
/// Lifetime of the server certificate.
pub const SERVER_LIFETIME_S: i64 = 90 * 86_400;
/// A server certificate with less than this left is replaced.
pub const SERVER_RENEW_BEFORE_S: i64 = 30 * 86_400;
/// How far certificates are dated back, for machines whose clocks are behind.
pub const CERTIFICATE_BACKDATE_S: i64 = 3_600;
/// How much a token's `nbf` may lie ahead: our own clock may have been set back since it was issued.
pub const TOKEN_NOT_BEFORE_LEEWAY_S: i64 = 60;
/// Longest JWT that is looked at.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Longest certificate request that is parsed.
pub const CSR_BYTES_MAX: usize = 16 * 1024;
/// Longest join token that is looked at.
pub const JOIN_TOKEN_BYTES_MAX: usize = 512;
/// Join-token nonces remembered at once.
pub const USED_NONCES_MAX: usize = 65_536;
/// Work factor of password hashes made now.
pub const PASSWORD_ITERATIONS: u32 = 210_000;
/// A stored hash that asks for more work than this is refused: it would stall the server.
pub const PASSWORD_ITERATIONS_MAX: u32 = 10_000_000;
/// Length of the keys and secrets made here.
pub const KEY_BYTES: usize = 32;
