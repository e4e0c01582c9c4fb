//! The keys that prove copies: a hub's root key, and one key per cluster derived from it.
//! `docs/adr/0001-proof-of-copies.md` has the reasons.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The length of a key in bytes.
const BYTES: usize = 32;
/// The context of the derivation of a cluster's key.
const CONTEXT: &[u8] = b"switchyard.dev/copy-key/1/";

/// The root key of a hub. It never leaves the hub.
#[derive(Clone)]
pub struct RootKey([u8; BYTES]);

impl RootKey {
    /// Generates a key.
    #[must_use]
    pub fn generate() -> Self {
        Self(rand::random())
    }

    /// Parses the output of [`Self::text`].
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        decode(text).map(Self)
    }

    /// The key in base64.
    #[must_use]
    pub fn text(&self) -> String {
        BASE64_STANDARD.encode(self.0)
    }

    /// The key of the cluster with this uid, whatever the cluster's name or address.
    #[must_use]
    pub fn of_cluster(&self, uid: &str) -> CopyKey {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(hmac::sign(&root, &[CONTEXT, uid.as_bytes()].concat()).as_ref());
        CopyKey(bytes)
    }
}

/// The key of a cluster, which proves its copies.
#[derive(Clone, PartialEq, Eq)]
pub struct CopyKey([u8; BYTES]);

impl CopyKey {
    /// Parses the hub's message.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes for [`Self::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// Parses the output of [`Self::text`].
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        decode(text).map(Self)
    }

    /// The key in base64.
    #[must_use]
    pub fn text(&self) -> String {
        BASE64_STANDARD.encode(self.0)
    }

    /// The key for HMAC-SHA-256.
    #[must_use]
    pub fn hmac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

fn decode(text: &[u8]) -> Option<[u8; BYTES]> {
    BASE64_STANDARD.decode(text.trim_ascii()).ok()?.try_into().ok()
}

// Keeps keys out of logs.
impl std::fmt::Debug for RootKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RootKey")
    }
}

impl std::fmt::Debug for CopyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CopyKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_key_depends_on_root_and_uid_alone() {
        let (root, other) = (RootKey([1; BYTES]), RootKey([2; BYTES]));
        let again = RootKey::parse(format!("{}\n", root.text()).as_bytes()).unwrap();
        assert!(again.of_cluster("u") == root.of_cluster("u"), "read again");
        assert!(root.of_cluster("u") != root.of_cluster("v"), "another cluster");
        assert!(root.of_cluster("u") != other.of_cluster("u"), "another hub");
        let key = root.of_cluster("u");
        assert!(CopyKey::parse(key.text().as_bytes()) == Some(key.clone()));
        assert!(CopyKey::from_bytes(&key.to_bytes()) == Some(key));
        for bad in ["", "!", "AAAA"] {
            assert!(
                RootKey::parse(bad.as_bytes()).is_none()
                    && CopyKey::parse(bad.as_bytes()).is_none(),
                "{bad}"
            );
        }
    }
}
