//! Hashes that identify a payload and the pod sets in it.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The SHA-256 in `Assignment.payload_hash` and `Payload.hash`.
///
/// The Workload's length is hashed first, so that moving bytes from the Workload to the job changes
/// the hash.
pub fn payload_hash(workload: &[u8], job: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update((workload.len() as u64).to_be_bytes());
    hash.update(workload);
    hash.update(job);
    hash.finalize().to_vec()
}

/// The SHA-256 of a Workload's `spec.podSets`, in `Origin.pod_sets`. The order of keys and null
/// fields do not matter.
pub fn pod_sets_hash(pod_sets: &Value) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash_canonical(pod_sets, &mut hash);
    hash.finalize().to_vec()
}

fn hash_canonical(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> =
                fields.iter().filter(|(_, value)| !value.is_null()).collect();
            fields.sort_by_key(|(name, _)| *name);
            hash.update("{");
            for (name, value) in fields {
                hash.update(Value::from(name.as_str()).to_string());
                hash.update(":");
                hash_canonical(value, hash);
                hash.update(",");
            }
            hash.update("}");
        }
        Value::Array(items) => {
            hash.update("[");
            for item in items {
                hash_canonical(item, hash);
                hash.update(",");
            }
            hash.update("]");
        }
        plain => hash.update(plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{payload_hash, pod_sets_hash};

    #[test]
    fn pod_sets_hash_ignores_key_order_and_nulls() {
        let one = json!([{"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}]);
        let text = r#"[{"template":{"metadata":null,"spec":{"containers":[{"name":"c"}]}},"count":2,"name":"main"}]"#;
        assert_eq!(pod_sets_hash(&one), pod_sets_hash(&serde_json::from_str(text).unwrap()));
        for (case, other) in [
            (
                "a count",
                json!([{"name": "main", "count": 3, "template": {"spec": {"containers": [{"name": "c"}]}}}]),
            ),
            (
                "an image",
                json!([{"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "d"}]}}}]),
            ),
            ("nothing", json!([])),
        ] {
            assert_ne!(pod_sets_hash(&one), pod_sets_hash(&other), "{case}");
        }
    }

    #[test]
    fn payload_hash_depends_on_workload_length() {
        assert_ne!(payload_hash(b"ab", b"c"), payload_hash(b"a", b"bc"));
        assert_eq!(payload_hash(b"ab", b"c"), payload_hash(b"ab", b"c"));
        assert_eq!(payload_hash(b"", b"").len(), 32);
    }
}
