//! Who may speak for a cluster: the hub's authority, the certificates it gives, and the one-time tokens that are
//! exchanged for the first of them.
//!
//! # Guarantees
//! - A token is exchanged at most once, over all replicas: it is marked as used, under the Secret's resource version,
//!   before a certificate is made.
//! - Private keys of agents are never seen here.

pub mod authority;
pub mod ca;
pub mod identity;
pub mod store;
pub mod token;

pub use authority::Authority;
pub use ca::Ca;
pub use identity::ClusterIdentity;
