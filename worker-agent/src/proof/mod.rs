//! Proofs: they tell a hub's copy from a foreign object with the same marks.
//!
//! A proof is an HMAC-SHA-256 over hub id, workload uid, attempt, kind, namespace and name, with
//! the cluster's key, which the hub issues. `docs/adr/0001-proof-of-copies.md` has the reasons.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use switchyard_api::names;
use switchyard_jobs::meta::annotation;
use switchyard_proto::copy_key::CopyKey;
use switchyard_proto::{is_attempt, is_uid};

/// The context of the digest. Another encoding needs another context.
const CONTEXT: &[u8] = b"switchyard.dev/proof/1";

/// The fields that a proof covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    pub hub_id: &'a str,
    /// The uid of the hub's Workload.
    pub workload_uid: &'a str,
    pub attempt: u64,
    /// Group, version and kind, such as `batch/v1, Kind=Job`. The proof ignores the version.
    pub gvk: &'a str,
    pub namespace: &'a str,
    /// The object's name, or the name of its chain.
    pub name: &'a str,
}

impl Subject<'_> {
    /// Each field follows its length, so that no two subjects have the same encoding.
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

/// The key of a cluster, and whether it is enforced.
#[derive(Clone, Debug)]
pub struct Keys {
    key: Option<Arc<hmac::Key>>,
    enforced: bool,
}

impl Keys {
    /// No key: the agent signs nothing, and marks suffice for a copy.
    pub fn none() -> Self {
        Self { key: None, enforced: false }
    }

    /// With `enforced`, only a proof makes a copy. Without it, marks suffice, and new copies are
    /// signed.
    pub fn new(key: &CopyKey, enforced: bool) -> Self {
        Self { key: Some(Arc::new(key.hmac())), enforced }
    }

    /// Whether only a proof makes a copy.
    pub fn is_enforced(&self) -> bool {
        self.enforced
    }

    /// Whether there is no key.
    pub fn is_none(&self) -> bool {
        self.key.is_none()
    }

    /// The proof of a copy; none without a key.
    pub fn proof(&self, subject: &Subject<'_>) -> Option<String> {
        let key = self.key.as_ref()?;
        Some(BASE64_STANDARD.encode(hmac::sign(key, &subject.encode())))
    }

    /// Whether this is the copy's proof. The comparison takes constant time.
    pub fn accept(&self, subject: &Subject<'_>, proof: &str) -> bool {
        let (Some(key), Ok(digest)) = (&self.key, BASE64_STANDARD.decode(proof)) else {
            return false;
        };
        hmac::verify(key, &subject.encode(), &digest).is_ok()
    }
}

/// The workload and attempt in an object's marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) workload_uid: String,
    pub(crate) attempt: u64,
}

/// Recognizes and signs the copies of one hub.
#[derive(Clone, Debug)]
pub struct Seal {
    hub_id: Arc<str>,
    keys: Keys,
}

impl Seal {
    pub fn new(hub_id: &str, keys: Keys) -> Self {
        Self { hub_id: hub_id.into(), keys }
    }

    pub fn hub_id(&self) -> &str {
        &self.hub_id
    }

    /// The proof of an object, with a digest for each of its names; none without a key.
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

    /// The marks of a copy; none if the object is not a copy.
    pub(crate) fn read(&self, object: &Value, gvk: &str) -> Option<Claim> {
        let claim = self.claimed(object)?;
        (!self.keys.is_enforced() || self.is_proved(object, gvk, &claim)).then_some(claim)
    }

    /// An object's marks, proved or not. Values that no hub assigns are ignored.
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

    /// Whether an object has marks but no valid proof.
    pub(crate) fn is_unproved(&self, object: &Value, gvk: &str) -> bool {
        self.claimed(object).is_some_and(|claim| !self.is_proved(object, gvk, &claim))
    }

    /// Adds the proof to an object with marks.
    pub fn sign(&self, object: &mut Value, gvk: &str) {
        let Some(proof) = self.proof_of(object, gvk) else { return };
        if let Some(annotations) =
            object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.insert(names::PROOF.to_owned(), proof.into());
        }
    }

    /// The proof for an object with marks; none without a key.
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

/// Separates the digests of a proof.
const BETWEEN: &str = ",";
/// The most names of an object.
const NAMES: usize = 2;

/// The names of an object: its own, and the name of its chain. Either can become the other's.
fn names_of<'a>(object: &'a Value, gvk: &str) -> impl Iterator<Item = &'a str> {
    let own = text(object, "/metadata/name");
    std::iter::once(own).chain(chain(object, gvk).filter(move |chain| *chain != own))
}

/// The name that the Workloads of an elastic job share. The worker's controller creates all but the
/// first, with the marks of the previous one.
fn chain<'a>(object: &'a Value, gvk: &str) -> Option<&'a str> {
    let name =
        annotation(object, names::WORKLOAD_SLICE_NAME).filter(|_| gvk.ends_with(", Kind=Workload"));
    name.filter(|name| !name.is_empty())
}

pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
