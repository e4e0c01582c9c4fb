use proptest::prelude::*;
use serde_json::json;

use super::*;

const WORKLOAD: &str = "kueue.x-k8s.io/v1beta2, Kind=Workload";

pub(crate) fn key() -> CopyKey {
    CopyKey::from_bytes(&[7; 32]).unwrap()
}

/// The seal of hub `hub`, with an enforced key.
pub(crate) fn seal() -> Seal {
    Seal::new("hub", Keys::new(&key(), true))
}

/// The object as [`seal`] signs it, if it has marks.
pub(crate) fn signed(mut object: Value, gvk: &str) -> Value {
    seal().sign(&mut object, gvk);
    object
}

fn copy() -> Value {
    json!({"metadata": {
        "namespace": "ns", "name": "a", "labels": {"switchyard.dev/hub-id": "hub"},
        "annotations": {"switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "3"},
    }})
}

#[test]
fn copy_is_known_by_its_proof_alone() {
    const JOB: &str = "batch/v1, Kind=Job";
    let set = |path: &'static str, value: &'static str| {
        move |copy: &mut Value| *copy.pointer_mut(path).unwrap() = json!(value)
    };
    let forged = seal().proof_of(&copy(), JOB).unwrap();
    let other_key = Keys::new(&CopyKey::from_bytes(&[8; 32]).unwrap(), true);
    let other_key = Seal::new("hub", other_key).proof_of(&copy(), JOB).unwrap();
    let proof = |text: String| {
        move |copy: &mut Value| {
            copy["metadata"]["annotations"]["switchyard.dev/proof"] = json!(text.clone())
        }
    };
    type Change = Box<dyn Fn(&mut Value)>;
    let cases: [(&str, &str, bool, Change); 12] = [
        ("as it was made", JOB, true, Box::new(|_| {})),
        ("of another version of its kind", "batch/v2, Kind=Job", true, Box::new(|_| {})),
        ("of another group", "batch.example/v1, Kind=Job", false, Box::new(|_| {})),
        ("of another kind", "batch/v1, Kind=CronJob", false, Box::new(|_| {})),
        ("in another namespace", JOB, false, Box::new(set("/metadata/namespace", "forger"))),
        ("under another name", JOB, false, Box::new(set("/metadata/name", "b"))),
        (
            "of another attempt",
            JOB,
            false,
            Box::new(set("/metadata/annotations/switchyard.dev~1attempt", "4")),
        ),
        (
            "of another workload",
            JOB,
            false,
            Box::new(set("/metadata/annotations/switchyard.dev~1workload-uid", "v")),
        ),
        ("with what is no digest", JOB, false, Box::new(proof("?".to_owned()))),
        ("with a shorter digest", JOB, false, Box::new(proof(forged[..40].to_owned()))),
        ("with a digest of another key", JOB, false, Box::new(proof(other_key))),
        ("with none", JOB, false, Box::new(proof(String::new()))),
    ];
    for (case, gvk, ours, change) in cases {
        let mut copy = signed(copy(), JOB);
        change(&mut copy);
        assert_eq!(seal().read(&copy, gvk).is_some(), ours, "{case}");
    }
    assert_eq!(seal().read(&copy(), JOB), None, "without a proof");
}

/// As before proofs existed: jobs keep running, and fences work.
#[test]
fn marks_suffice_until_key_is_enforced() {
    const JOB: &str = "batch/v1, Kind=Job";
    for (case, keys, signs) in
        [("no key", Keys::none(), false), ("not in force", Keys::new(&key(), false), true)]
    {
        let seal = Seal::new("hub", keys);
        assert!(seal.read(&copy(), JOB).is_some(), "{case}");
        assert!(seal.is_unproved(&copy(), JOB), "{case}");
        let mut made = copy();
        seal.sign(&mut made, JOB);
        assert_eq!(
            self::seal().read(&made, JOB).is_some(),
            signs,
            "{case}: what is made meanwhile"
        );
        assert_eq!(seal.is_unproved(&made, JOB), !signs, "{case}");
    }
}

#[test]
fn chained_workloads_share_first_proof() {
    let chain = "kueue.x-k8s.io/workload-slice-name";
    let mut first = copy();
    first["metadata"]["annotations"][chain] = json!("oldest");
    for (case, first) in
        [("a chain that began on the hub", first), ("one that begins here", copy())]
    {
        let first = signed(first, WORKLOAD);
        let mut slice = first.clone();
        slice["metadata"]["name"] = json!("b");
        let named = first["metadata"]["annotations"].get(chain).cloned().unwrap_or(json!("a"));
        slice["metadata"]["annotations"][chain] = named;
        assert!(seal().read(&slice, WORKLOAD).is_some(), "{case}");
        let mut next = slice.clone();
        next["metadata"]["name"] = json!("c");
        assert!(seal().read(&next, WORKLOAD).is_some(), "{case}: the third");
        let mut other = slice.clone();
        other["metadata"]["annotations"][chain] = json!("another");
        assert!(seal().read(&other, WORKLOAD).is_none(), "{case}: of another chain");
        let mut replayed = slice;
        replayed["metadata"]["namespace"] = json!("forger");
        assert!(seal().read(&replayed, WORKLOAD).is_none(), "{case}: in another namespace");
        let mut begun = first;
        begun["metadata"]["annotations"][chain] = json!("a");
        assert!(seal().read(&begun, WORKLOAD).is_some(), "{case}: named after itself since");
    }
    let mut job = signed(copy(), "batch/v1, Kind=Job");
    job["metadata"]["annotations"][chain] = json!("a");
    job["metadata"]["name"] = json!("b");
    assert!(seal().read(&job, "batch/v1, Kind=Job").is_none(), "jobs have no chains");
}

fn subject(texts: &[String; 6], attempt: u64) -> (String, [String; 4], u64) {
    let [hub, uid, group, kind, namespace, name] = texts.clone();
    (format!("{group}/v1, Kind={kind}"), [hub, uid, namespace, name], attempt)
}

fn proved(of: &(String, [String; 4], u64)) -> Subject<'_> {
    let (gvk, [hub_id, workload_uid, namespace, name], attempt) = of;
    Subject { hub_id, workload_uid, attempt: *attempt, gvk, namespace, name }
}

proptest! {
    /// With fields that are alike or empty, their boundaries matter.
    #[test]
    fn proof_depends_on_subject(
        texts in prop::array::uniform6("[a-c]{0,3}"), attempt in 0_u64..4,
        other in prop::array::uniform6("[a-c]{0,3}"), other_attempt in 0_u64..4,
    ) {
        let keys = Keys::new(&key(), true);
        let (one, two) = (subject(&texts, attempt), subject(&other, other_attempt));
        let proof = keys.proof(&proved(&one)).unwrap();
        prop_assert!(keys.accept(&proved(&one), &proof));
        prop_assert_eq!(keys.accept(&proved(&two), &proof), one == two);
    }

    #[test]
    fn change_of_any_field_breaks_proof(
        texts in prop::array::uniform6("[a-z0-9.-]{1,40}"), attempt: u64, field in 0_usize..7, change in "[a-z]{1,4}",
    ) {
        let keys = Keys::new(&key(), true);
        let (mut other, mut other_attempt) = (texts.clone(), attempt);
        match other.get_mut(field) {
            Some(text) => text.push_str(&change),
            None => other_attempt = attempt.wrapping_add(1),
        }
        let proof = keys.proof(&proved(&subject(&texts, attempt))).unwrap();
        prop_assert!(!keys.accept(&proved(&subject(&other, other_attempt)), &proof));
    }
}
