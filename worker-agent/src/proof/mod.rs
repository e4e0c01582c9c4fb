//! Proofs: what tells a hub's copy from an object of others that carries the same marks.
//!
//! A proof is an HMAC-SHA-256 over hub id, workload uid, attempt, kind, namespace and name. Its key is the cluster's, and comes from
//! the hub. `docs/adr/0001-proof-of-copies.md` says why.

mod copies;
mod key;
mod settle;

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use switchyard_api::names;
use switchyard_jobs::meta::annotation;
use switchyard_proto::{is_attempt, is_uid};

pub use self::copies::{Copies, Unproved};
pub use self::key::{CopyKey, RootKey};
pub use self::settle::{Look, Marked, Operators, Pace, settle};

/// The context of the digest. Another encoding needs another context.
const CONTEXT: &[u8] = b"switchyard.dev/proof/1";

/// The copy that a proof is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The hub's id.
    pub hub_id: &'a str,
    /// The uid of the hub's Workload.
    pub workload_uid: &'a str,
    /// The attempt.
    pub attempt: u64,
    /// Group, version and kind, such as `batch/v1, Kind=Job`. The version does not count.
    pub gvk: &'a str,
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name, or that of its chain.
    pub name: &'a str,
}

impl Subject<'_> {
    /// Each field stands behind its length, so no two subjects have one encoding.
    fn encode(&self) -> Vec<u8> {
        let (version, kind) = self.gvk.split_once(", Kind=").unwrap_or(("", self.gvk));
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let attempt = self.attempt.to_be_bytes();
        let texts = [self.hub_id, self.workload_uid, group, kind, self.namespace, self.name];
        let mut bytes = Vec::with_capacity(256);
        for field in [CONTEXT, &attempt].into_iter().chain(texts.map(str::as_bytes)) {
            bytes.extend_from_slice(&u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
            bytes.extend_from_slice(field);
        }
        bytes
    }
}

/// The key of a cluster, and whether it is in force.
#[derive(Clone, Debug)]
pub struct Keys {
    key: Option<Arc<hmac::Key>>,
    enforced: bool,
}

impl Keys {
    /// No key: nothing is signed, and marks alone make a copy.
    pub fn none() -> Self {
        Self { key: None, enforced: false }
    }

    /// `enforced`: only a proof makes a copy. Otherwise marks alone make one, and what is made is signed.
    pub fn new(key: &CopyKey, enforced: bool) -> Self {
        Self { key: Some(Arc::new(key.hmac())), enforced }
    }

    /// Whether only a proof makes a copy.
    pub fn is_enforced(&self) -> bool {
        self.enforced
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.key.is_none()
    }

    /// The proof of a copy.
    pub fn proof(&self, subject: &Subject<'_>) -> Option<String> {
        let key = self.key.as_ref()?;
        Some(BASE64_STANDARD.encode(hmac::sign(key, &subject.encode())))
    }

    /// Whether it is the proof of that copy. Takes the same time wherever two digests differ.
    pub fn accept(&self, subject: &Subject<'_>, proof: &str) -> bool {
        let (Some(key), Ok(digest)) = (&self.key, BASE64_STANDARD.decode(proof)) else {
            return false;
        };
        hmac::verify(key, &subject.encode(), &digest).is_ok()
    }
}

/// The workload and attempt that an object names as its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The uid of the hub's Workload.
    pub(crate) workload_uid: String,
    /// The attempt.
    pub(crate) attempt: u64,
}

/// Knows the copies of one hub.
#[derive(Clone, Debug)]
pub struct Seal {
    hub_id: Arc<str>,
    keys: Keys,
}

impl Seal {
    /// Of this hub, with the keys of one cluster.
    pub fn new(hub_id: &str, keys: Keys) -> Self {
        Self { hub_id: hub_id.into(), keys }
    }

    /// The hub's id.
    pub fn hub_id(&self) -> &str {
        &self.hub_id
    }

    /// The proof of an object of this kind and place; none without a key. It holds a digest for each of its names.
    pub fn proof(
        &self,
        workload_uid: &str,
        attempt: u64,
        gvk: &str,
        (namespace, names): (&str, &[&str]),
    ) -> Option<String> {
        let hub_id = &self.hub_id;
        let digests = names.iter().map(|name| {
            self.keys.proof(&Subject { hub_id, workload_uid, attempt, gvk, namespace, name })
        });
        digests.collect::<Option<Vec<String>>>().map(|digests| digests.join(BETWEEN))
    }

    /// The marks of a copy; none if the object is none.
    pub(crate) fn read(&self, object: &Value, gvk: &str) -> Option<Claim> {
        let claim = self.claimed(object)?;
        (!self.keys.is_enforced() || self.is_proved(object, gvk, &claim)).then_some(claim)
    }

    /// The marks that an object carries, proved or not. Values that no hub gives out are none.
    pub(crate) fn claimed(&self, object: &Value) -> Option<Claim> {
        if object.pointer("/metadata/labels")?.get(names::HUB_ID)?.as_str() != Some(&self.hub_id) {
            return None;
        }
        let workload_uid =
            annotation(object, names::WORKLOAD_UID).filter(|uid| is_uid(uid))?.to_owned();
        let attempt = annotation(object, names::ATTEMPT)?
            .parse()
            .ok()
            .filter(|attempt| is_attempt(*attempt))?;
        Some(Claim { workload_uid, attempt })
    }

    /// Whether an object has marks, and no proof of them.
    pub(crate) fn is_unproved(&self, object: &Value, gvk: &str) -> bool {
        self.claimed(object).is_some_and(|claim| !self.is_proved(object, gvk, &claim))
    }

    /// Writes the proof of an object with marks.
    pub fn sign(&self, object: &mut Value, gvk: &str) {
        let Some(proof) = self.proof_of(object, gvk) else { return };
        if let Some(annotations) =
            object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.insert(names::PROOF.to_owned(), proof.into());
        }
    }

    /// The proof of an object with marks; none without a key.
    pub(crate) fn proof_of(&self, object: &Value, gvk: &str) -> Option<String> {
        let Claim { workload_uid, attempt } = self.claimed(object)?;
        let names: Vec<&str> = names_of(object, gvk).collect();
        self.proof(&workload_uid, attempt, gvk, (text(object, "/metadata/namespace"), &names))
    }

    fn is_proved(
        &self,
        object: &Value,
        gvk: &str,
        Claim { workload_uid, attempt }: &Claim,
    ) -> bool {
        let Some(proof) = annotation(object, names::PROOF) else { return false };
        let namespace = text(object, "/metadata/namespace");
        let (hub_id, attempt) = (&*self.hub_id, *attempt);
        proof.split(BETWEEN).take(NAMES).any(|digest| {
            names_of(object, gvk).any(|name| {
                self.keys.accept(
                    &Subject { hub_id, workload_uid, attempt, gvk, namespace, name },
                    digest,
                )
            })
        })
    }
}

/// Between the digests of a proof.
const BETWEEN: &str = ",";
/// An object has no more names.
const NAMES: usize = 2;

/// The names that an object is known by: its own, and that of its chain. Either may become the other one's.
fn names_of<'a>(object: &'a Value, gvk: &str) -> impl Iterator<Item = &'a str> {
    let own = text(object, "/metadata/name");
    std::iter::once(own).chain(chain(object, gvk).filter(move |chain| *chain != own))
}

/// The name that the Workloads of one elastic job have in common. The worker's controller makes all but the first, with the marks of
/// the one before.
fn chain<'a>(object: &'a Value, gvk: &str) -> Option<&'a str> {
    let name =
        annotation(object, names::WORKLOAD_SLICE_NAME).filter(|_| gvk.ends_with(", Kind=Workload"));
    name.filter(|name| !name.is_empty())
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
