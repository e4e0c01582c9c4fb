//! Identities of clusters: the hub's CA, the certificates it issues, and the join tokens that
//! agents exchange for their first certificate. Also the rule by which a kubeconfig of another party is
//! trusted.
//!
//! # Guarantees
//! - A token is exchanged at most once, over all replicas: it is marked as used, under the Secret's
//!   resource version, before its certificate leaves the hub.
//! - The hub never sees an agent's private key.

pub mod authority;
pub mod ca;
pub mod kubeconfig;
pub mod store;
pub mod token;
pub mod token_store;

pub use authority::Authority;
pub use ca::Ca;
