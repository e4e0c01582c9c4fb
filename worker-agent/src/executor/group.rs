//! Groups of pods. The ledger knows one job a workload: here the members of a group are put together to that job.
//!
//! The job of a group has a uid that no object has, of workload and attempt, by which it is known again in an action. As
//! events of one watch come in the order of their versions, what they put together up to a version is how the group stood
//! then, and that version is the job's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use switchyard_jobs::JobKind;
use switchyard_jobs::meta::{self, is_deleting};

use super::act::Access;
use super::parts::shown;
use super::read::read_meta;
use crate::proof::Seal;
use switchyard_ledger::{JobEnd, Meta, Object, RemoteJob, Seen, Target};

/// The uid of the job that the members of a group are together.
fn uid_of(workload_uid: &str, attempt: u64) -> String {
    format!("{workload_uid}/{attempt}")
}

/// The workload and the attempt of a job that is a group.
pub(super) fn group_of(target: &Target) -> Option<(&str, u64)> {
    let (workload_uid, attempt) = target.uid.rsplit_once('/')?;
    Some((workload_uid, attempt.parse().ok()?))
}

/// Whether the object is a member of a group.
pub(super) fn is_member(access: &Access, object: &Value) -> bool {
    access.job_kind.is_some_and(|kind| kind.group_of(object).is_some())
}

/// The job that these members of one attempt are together, none if they are not this hub's. `lost`: members are missing
/// that had not ended.
pub(super) fn read_group(
    members: Vec<Value>,
    access: &Access,
    seal: &Seal,
    lost: bool,
) -> Option<RemoteJob> {
    let kind = access.job_kind?;
    let metas: Vec<Meta> =
        members.iter().filter_map(|it| read_meta(it, &access.gvk, seal)).collect();
    let first = metas.first()?.clone();
    let name = meta::prebuilt_workload_name(members.first()?).to_owned();
    let meta = Meta {
        target: Target { uid: uid_of(&first.workload_uid, first.attempt), name, ..first.target },
        version: metas.iter().map(|it| it.version).max().unwrap_or_default(),
        deleting: metas.iter().all(|it| it.deleting),
        held: metas.iter().any(|it| it.held.is_some()).then_some(0),
        owners: Vec::new(),
        ..first
    };
    let broken = lost || members.iter().any(|it| is_deleting(it) && was_taken_away(kind, it));
    let status = shown(statuses(&members));
    let group = kind.compose(members);
    // Pods that are deleted fail: that is not how the group has ended.
    let end = kind.finished(&group).filter(|_| !broken).map(|finished| JobEnd {
        success: finished.success,
        reason: if finished.success { "Succeeded" } else { "Failed" }.to_owned(),
        message: finished.message,
    });
    let (suspended, active) = (kind.is_suspended(&group), kind.is_active(&group));
    Some(RemoteJob {
        meta,
        suspended,
        active,
        tells_its_end: true,
        several: true,
        broken,
        end,
        status,
    })
}

/// The statuses of the members that stay, by their names.
fn statuses(members: &[Value]) -> Map<String, Value> {
    let stays = members.iter().filter(|it| !is_deleting(it));
    let status = |it: &Value| {
        let name = it.pointer("/metadata/name").and_then(Value::as_str)?;
        Some((name.to_owned(), it.get("status")?.clone()))
    };
    stays.filter_map(status).collect()
}

/// Whether a member that goes, or has gone, had not ended by itself before: what is deleted fails.
fn was_taken_away(kind: &dyn JobKind, member: &Value) -> bool {
    let deleted = meta::time_at(member, "/metadata/deletionTimestamp");
    let before =
        || kind.ended_at(member).zip(deleted).is_some_and(|(ended, deleted)| ended < deleted);
    kind.finished(member).is_none_or(|end| !end.success && deleted.is_some() && !before())
}

#[derive(Default)]
struct Group {
    /// By their uids.
    members: BTreeMap<String, Value>,
    version: u64,
    /// A member has gone that had not ended.
    lost: bool,
}

/// The groups of one hub, put together from what one watch tells.
pub(super) struct Groups {
    access: Access,
    seal: Seal,
    groups: BTreeMap<String, Group>,
    /// While a list is coming: the members that were in it.
    listing: Option<BTreeSet<String>>,
}

impl Groups {
    pub(super) fn new(access: Access, seal: Seal) -> Self {
        Self { access, seal, groups: BTreeMap::new(), listing: None }
    }

    /// A list begins: what it lacks is gone, and until its end nothing is told.
    pub(super) fn begin_list(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// The list has come to its end: all groups as they stand, and those that are no more. Their uids go into the list's.
    pub(super) fn end_list(&mut self, uids: &mut BTreeSet<String>) -> Vec<Seen> {
        let listed = self.listing.take().unwrap_or_default();
        let groups: Vec<String> = self.groups.keys().cloned().collect();
        let mut seen = Vec::new();
        for uid in groups {
            let Some(group) = self.groups.get(&uid) else { continue };
            let gone: Vec<Value> = group
                .members
                .iter()
                .filter(|(it, _)| !listed.contains(*it))
                .map(|(_, it)| it.clone())
                .collect();
            let mut told = None;
            for member in gone {
                // What was deleted in between has a version of its own, that nothing else has.
                let version =
                    self.groups.get(&uid).map_or(0, |group| group.version.saturating_add(1));
                told = self.drop_member(&uid, &member, version);
            }
            seen.extend(told.or_else(|| self.tell(&uid)));
            if self.groups.contains_key(&uid) {
                uids.insert(uid);
            }
        }
        seen
    }

    /// A member is there, in this state.
    pub(super) fn apply(&mut self, object: Value) -> Option<Seen> {
        let meta = read_meta(&object, &self.access.gvk, &self.seal)?;
        let uid = uid_of(&meta.workload_uid, meta.attempt);
        let group = self.groups.entry(uid.clone()).or_default();
        group.version = group.version.max(meta.version);
        group.members.insert(meta.target.uid.clone(), object);
        if let Some(listing) = &mut self.listing {
            listing.insert(meta.target.uid);
            return None;
        }
        self.tell(&uid)
    }

    /// A member is gone; this was its last state, with the version of its deletion.
    pub(super) fn remove(&mut self, object: &Value) -> Option<Seen> {
        let meta = read_meta(object, &self.access.gvk, &self.seal)?;
        self.drop_member(&uid_of(&meta.workload_uid, meta.attempt), object, meta.version)
    }

    fn drop_member(&mut self, uid: &str, member: &Value, version: u64) -> Option<Seen> {
        let kind = self.access.job_kind?;
        let group = self.groups.get_mut(uid)?;
        let last = group.members.remove(meta::uid(member))?;
        group.version = group.version.max(version);
        group.lost |= was_taken_away(kind, member);
        if !group.members.is_empty() {
            return self.tell(uid);
        }
        self.groups.remove(uid);
        let job = read_group(vec![last], &self.access, &self.seal, true)?;
        let (kind, workload_uid, target) =
            (self.access.kind(), job.meta.workload_uid, job.meta.target);
        Some(Seen::Deleted { kind, workload_uid, target })
    }

    fn tell(&self, uid: &str) -> Option<Seen> {
        let group = self.groups.get(uid)?;
        let mut job = read_group(
            group.members.values().cloned().collect(),
            &self.access,
            &self.seal,
            group.lost,
        )?;
        job.meta.version = group.version;
        Some(Seen::Applied(Box::new(Object::Job(job))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proof::tests::{seal, signed};

    fn pod(name: &str, version: u64, phase: &str) -> Value {
        let pod = json!({
            "metadata": {
                "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
                "labels": {
                    "switchyard.dev/hub-id": "hub", "kueue.x-k8s.io/pod-group-name": "g",
                    "kueue.x-k8s.io/prebuilt-workload-name": "g",
                },
                "annotations": {
                    "switchyard.dev/workload-uid": "w", "switchyard.dev/attempt": "3",
                    "kueue.x-k8s.io/pod-group-total-count": "2",
                },
                "finalizers": ["switchyard.dev/terminal-state"],
            },
            "status": {"phase": phase},
        });
        signed(pod, "v1, Kind=Pod")
    }

    fn deleting(mut pod: Value) -> Value {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:10Z");
        pod
    }

    fn groups() -> Groups {
        Groups::new(Access::job(&switchyard_jobs::pod::Pod), seal())
    }

    /// What was told of a group: version, how many pods it shows, and how it stands.
    fn told(seen: Option<Seen>) -> String {
        match seen {
            None => "nothing".into(),
            Some(Seen::Deleted { target, .. }) => format!("{} is gone", target.uid),
            Some(Seen::Applied(object)) => match *object {
                Object::Job(job) => {
                    let pods: Value = serde_json::from_slice(&job.status).unwrap();
                    let stands = match (&job.end, job.broken, job.meta.deleting) {
                        (Some(_), ..) => "ended",
                        (None, _, true) => "deleting",
                        (None, true, false) => "broken",
                        (None, false, false) => "there",
                    };
                    let pods = pods["pods"].as_object().unwrap().len();
                    format!(
                        "{} at {}: {pods} pods, {stands}",
                        job.meta.target.uid, job.meta.version
                    )
                }
                Object::Workload(_) => "a Workload".into(),
            },
            Some(_) => "something else".into(),
        }
    }

    #[test]
    fn members_are_one_job_of_the_newest_version() {
        let mut groups = groups();
        assert_eq!(told(groups.apply(pod("a", 5, "Running"))), "w/3 at 5: 1 pods, there");
        assert_eq!(told(groups.apply(pod("b", 6, "Running"))), "w/3 at 6: 2 pods, there");
        assert_eq!(told(groups.apply(pod("a", 7, "Succeeded"))), "w/3 at 7: 2 pods, there");
        assert_eq!(told(groups.apply(pod("b", 8, "Succeeded"))), "w/3 at 8: 2 pods, ended");
        assert_eq!(
            told(groups.remove(&deleting(pod("a", 9, "Succeeded")))),
            "w/3 at 9: 1 pods, there"
        );
        assert_eq!(told(groups.remove(&deleting(pod("b", 10, "Succeeded")))), "w/3 is gone");
        assert_eq!(told(groups.remove(&pod("b", 11, "Succeeded"))), "nothing");
    }

    #[test]
    fn a_group_is_broken_by_a_pod_that_is_taken_away_and_not_by_one_that_failed() {
        let mut groups = groups();
        groups.apply(pod("a", 5, "Running"));
        assert_eq!(told(groups.apply(pod("b", 6, "Failed"))), "w/3 at 6: 2 pods, there");
        assert_eq!(
            told(groups.apply(deleting(pod("a", 7, "Running")))),
            "w/3 at 7: 1 pods, broken"
        );
        assert_eq!(
            told(groups.remove(&deleting(pod("a", 8, "Failed")))),
            "w/3 at 8: 1 pods, broken"
        );
        assert_eq!(
            told(groups.apply(deleting(pod("b", 9, "Failed")))),
            "w/3 at 9: 0 pods, deleting"
        );
    }

    #[test]
    fn a_list_tells_of_each_group_once_and_of_what_is_gone_since() {
        let mut groups = groups();
        groups.begin_list();
        assert_eq!(
            told(groups.apply(pod("b", 9, "Running"))),
            "nothing",
            "not before all have come"
        );
        groups.apply(pod("a", 5, "Running"));
        let mut uids = BTreeSet::new();
        let seen: Vec<String> =
            groups.end_list(&mut uids).into_iter().map(|it| told(Some(it))).collect();
        assert_eq!(
            (seen, uids),
            (vec!["w/3 at 9: 2 pods, there".to_owned()], BTreeSet::from(["w/3".to_owned()]))
        );
        groups.begin_list();
        groups.apply(pod("b", 9, "Running"));
        let seen: Vec<String> =
            groups.end_list(&mut BTreeSet::new()).into_iter().map(|it| told(Some(it))).collect();
        assert_eq!(seen, ["w/3 at 10: 1 pods, broken"]);
        groups.begin_list();
        let mut uids = BTreeSet::new();
        let seen: Vec<String> =
            groups.end_list(&mut uids).into_iter().map(|it| told(Some(it))).collect();
        assert_eq!((seen, uids), (vec!["w/3 is gone".to_owned()], BTreeSet::new()));
    }
}
