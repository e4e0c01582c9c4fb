//! Pod groups: combines the members of a group into the one job that the ledger knows.
//!
//! The job's uid consists of workload uid and attempt; no object has it. Actions find the group by
//! it. The events of one watch arrive in the order of their versions. So after each event the group
//! is known as of that version, which becomes the job's version.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use switchyard_jobs::JobKind;
use switchyard_jobs::meta::{self, is_deleting};
use switchyard_ledger::{JobEnd, Meta, Object, RemoteJob, Target, WatchEvent};

use super::access::Access;
use super::read::read_meta;
use super::serving_pods::statuses_json;
use crate::proof::Seal;

/// The uid of a group's job.
fn uid_of(workload_uid: &str, attempt: u64) -> String {
    format!("{workload_uid}/{attempt}")
}

/// The workload and attempt of a group's job.
pub(super) fn group_of(target: &Target) -> Option<(&str, u64)> {
    let (workload_uid, attempt) = target.uid.rsplit_once('/')?;
    Some((workload_uid, attempt.parse().ok()?))
}

/// Whether the object is a member of a group.
pub(super) fn is_member(access: &Access, object: &Value) -> bool {
    access.job_kind.is_some_and(|kind| kind.group_of(object).is_some())
}

/// Combines the members of one attempt into a job; none if they are not this hub's. `lost`: a
/// missing member had not ended.
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
        finalizer_index: metas.iter().any(|it| it.finalizer_index.is_some()).then_some(0),
        owners: Vec::new(),
        ..first
    };
    let has_lost_member =
        lost || members.iter().any(|it| is_deleting(it) && was_removed_early(kind, it));
    let status = statuses_json(statuses(kind, &members));
    let group = kind.compose(members);
    // Deleted pods fail, which does not end the group.
    let end = kind.finished(&group).filter(|_| !has_lost_member).map(|finished| JobEnd {
        success: finished.success,
        reason: if finished.success { "Succeeded" } else { "Failed" }.to_owned(),
        message: finished.message,
    });
    let (suspended, active) = (kind.is_suspended(&group), kind.is_active(&group));
    Some(RemoteJob {
        meta,
        suspended,
        active,
        reports_completion: true,
        may_change: true,
        has_lost_member,
        end,
        status,
    })
}

/// The statuses of the members that stay or ended by themselves, by name.
fn statuses(kind: &dyn JobKind, members: &[Value]) -> Map<String, Value> {
    let stays = members.iter().filter(|it| !is_deleting(it) || !was_removed_early(kind, it));
    let status = |it: &Value| {
        let name = it.pointer("/metadata/name").and_then(Value::as_str)?;
        Some((name.to_owned(), it.get("status")?.clone()))
    };
    stays.filter_map(status).collect()
}

/// Whether a deleted member had not ended by itself before: deleted pods fail.
fn was_removed_early(kind: &dyn JobKind, member: &Value) -> bool {
    let deleted = meta::time_at(member, "/metadata/deletionTimestamp");
    let before =
        || kind.ended_at(member).zip(deleted).is_some_and(|(ended, deleted)| ended < deleted);
    kind.finished(member).is_none_or(|end| !end.success && deleted.is_some() && !before())
}

#[derive(Default)]
struct Group {
    /// By uid.
    members: BTreeMap<String, Value>,
    version: u64,
    /// A member that had not ended is gone.
    lost: bool,
}

/// The groups of one hub, as one watch reports them.
pub(super) struct Groups {
    access: Access,
    seal: Seal,
    groups: BTreeMap<String, Group>,
    /// During a list: the members in it.
    listing: Option<BTreeSet<String>>,
}

impl Groups {
    pub(super) fn new(access: Access, seal: Seal) -> Self {
        Self { access, seal, groups: BTreeMap::new(), listing: None }
    }

    /// Starts a list. It reports nothing until its end.
    pub(super) fn begin_list(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// Ends a list. Returns all groups, and those that are gone; adds their uids to the list's.
    pub(super) fn end_list(&mut self, uids: &mut BTreeSet<String>) -> Vec<WatchEvent> {
        let listed = self.listing.take().unwrap_or_default();
        let groups: Vec<String> = self.groups.keys().cloned().collect();
        let mut events = Vec::new();
        for uid in groups {
            let Some(group) = self.groups.get(&uid) else { continue };
            let gone: Vec<Value> = group
                .members
                .iter()
                .filter(|(it, _)| !listed.contains(*it))
                .map(|(_, it)| it.clone())
                .collect();
            let mut last = None;
            for member in gone {
                // A member that was deleted unobserved gets a version that no other event has.
                let version =
                    self.groups.get(&uid).map_or(0, |group| group.version.saturating_add(1));
                last = self.drop_member(&uid, &member, version);
            }
            events.extend(last.or_else(|| self.event(&uid)));
            if self.groups.contains_key(&uid) {
                uids.insert(uid);
            }
        }
        events
    }

    /// A member's current state.
    pub(super) fn apply(&mut self, object: Value) -> Option<WatchEvent> {
        let meta = read_meta(&object, &self.access.gvk, &self.seal)?;
        let uid = uid_of(&meta.workload_uid, meta.attempt);
        let group = self.groups.entry(uid.clone()).or_default();
        group.version = group.version.max(meta.version);
        group.members.insert(meta.target.uid.clone(), object);
        if let Some(listing) = &mut self.listing {
            listing.insert(meta.target.uid);
            return None;
        }
        self.event(&uid)
    }

    /// A deleted member's last state, with the version of its deletion.
    pub(super) fn remove(&mut self, object: &Value) -> Option<WatchEvent> {
        let meta = read_meta(object, &self.access.gvk, &self.seal)?;
        self.drop_member(&uid_of(&meta.workload_uid, meta.attempt), object, meta.version)
    }

    /// Drops a member that lost its marks. During a list, its end does that.
    pub(super) fn disown(&mut self, member: &str) -> Option<WatchEvent> {
        if self.listing.is_some() {
            return None;
        }
        let (uid, object, version) = self.groups.iter().find_map(|(uid, group)| {
            let object = group.members.get(member)?.clone();
            Some((uid.clone(), object, group.version.saturating_add(1)))
        })?;
        self.drop_member(&uid, &object, version)
    }

    fn drop_member(&mut self, uid: &str, member: &Value, version: u64) -> Option<WatchEvent> {
        let kind = self.access.job_kind?;
        let group = self.groups.get_mut(uid)?;
        let last = group.members.remove(meta::uid(member))?;
        group.version = group.version.max(version);
        group.lost |= was_removed_early(kind, member);
        if !group.members.is_empty() {
            return self.event(uid);
        }
        self.groups.remove(uid);
        let job = read_group(vec![last], &self.access, &self.seal, true)?;
        let (kind, workload_uid, target) =
            (self.access.kind(), job.meta.workload_uid, job.meta.target);
        Some(WatchEvent::Deleted { kind, workload_uid, target })
    }

    fn event(&self, uid: &str) -> Option<WatchEvent> {
        let group = self.groups.get(uid)?;
        let mut job = read_group(
            group.members.values().cloned().collect(),
            &self.access,
            &self.seal,
            group.lost,
        )?;
        job.meta.version = group.version;
        Some(WatchEvent::Applied(Box::new(Object::Job(job))))
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

    /// A reported group in one line: version, number of pods, and state.
    fn describe(events: Option<WatchEvent>) -> String {
        match events {
            None => "nothing".into(),
            Some(WatchEvent::Deleted { target, .. }) => format!("{} is gone", target.uid),
            Some(WatchEvent::Applied(object)) => match *object {
                Object::Job(job) => {
                    let pods: Value = serde_json::from_slice(&job.status).unwrap();
                    let stands = match (&job.end, job.has_lost_member, job.meta.deleting) {
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
    fn member_that_lost_its_marks_leaves_its_group() {
        let mut groups = groups();
        groups.apply(pod("a", 1, "Running"));
        groups.apply(pod("b", 2, "Running"));
        let Some(WatchEvent::Applied(object)) = groups.disown("uid-b") else { panic!() };
        let Object::Job(job) = *object else { panic!() };
        assert!(job.has_lost_member && job.meta.version == 3, "{:?}", job.meta.version);
        assert!(matches!(groups.disown("uid-a"), Some(WatchEvent::Deleted { .. })));
        assert!(groups.disown("uid-a").is_none());
    }

    #[test]
    fn members_form_one_job_of_newest_version() {
        let mut groups = groups();
        assert_eq!(describe(groups.apply(pod("a", 5, "Running"))), "w/3 at 5: 1 pods, there");
        assert_eq!(describe(groups.apply(pod("b", 6, "Running"))), "w/3 at 6: 2 pods, there");
        assert_eq!(describe(groups.apply(pod("a", 7, "Succeeded"))), "w/3 at 7: 2 pods, there");
        assert_eq!(describe(groups.apply(pod("b", 8, "Succeeded"))), "w/3 at 8: 2 pods, ended");
        assert_eq!(
            describe(groups.remove(&deleting(pod("a", 9, "Succeeded")))),
            "w/3 at 9: 1 pods, there"
        );
        assert_eq!(describe(groups.remove(&deleting(pod("b", 10, "Succeeded")))), "w/3 is gone");
        assert_eq!(describe(groups.remove(&pod("b", 11, "Succeeded"))), "nothing");
    }

    #[test]
    fn removed_pod_breaks_group_and_failed_pod_does_not() {
        let mut groups = groups();
        groups.apply(pod("a", 5, "Running"));
        assert_eq!(describe(groups.apply(pod("b", 6, "Failed"))), "w/3 at 6: 2 pods, there");
        assert_eq!(
            describe(groups.apply(deleting(pod("a", 7, "Running")))),
            "w/3 at 7: 1 pods, broken"
        );
        assert_eq!(
            describe(groups.remove(&deleting(pod("a", 8, "Failed")))),
            "w/3 at 8: 1 pods, broken"
        );
        assert_eq!(
            describe(groups.apply(deleting(pod("b", 9, "Failed")))),
            "w/3 at 9: 0 pods, deleting"
        );
    }

    #[test]
    fn list_reports_each_group_once_and_missing_members() {
        let mut groups = groups();
        groups.begin_list();
        assert_eq!(
            describe(groups.apply(pod("b", 9, "Running"))),
            "nothing",
            "not before all have come"
        );
        groups.apply(pod("a", 5, "Running"));
        let mut uids = BTreeSet::new();
        let events: Vec<String> =
            groups.end_list(&mut uids).into_iter().map(|it| describe(Some(it))).collect();
        assert_eq!(
            (events, uids),
            (vec!["w/3 at 9: 2 pods, there".to_owned()], BTreeSet::from(["w/3".to_owned()]))
        );
        groups.begin_list();
        groups.apply(pod("b", 9, "Running"));
        let events: Vec<String> = groups
            .end_list(&mut BTreeSet::new())
            .into_iter()
            .map(|it| describe(Some(it)))
            .collect();
        assert_eq!(events, ["w/3 at 10: 1 pods, broken"]);
        groups.begin_list();
        let mut uids = BTreeSet::new();
        let events: Vec<String> =
            groups.end_list(&mut uids).into_iter().map(|it| describe(Some(it))).collect();
        assert_eq!((events, uids), (vec!["w/3 is gone".to_owned()], BTreeSet::new()));
    }
}
