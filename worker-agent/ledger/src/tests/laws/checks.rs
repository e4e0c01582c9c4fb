//! The laws, checked after each step and at the end.

use switchyard_proto::v1::Phase;

use super::{BLOCKED, World, priority, uid};
use crate::*;

impl World {
    pub(super) fn check(&self) {
        assert!(
            self.cluster.violations.is_empty(),
            "{:?}\n{}",
            self.cluster.violations,
            self.trace.join("\n")
        );
        for stored in self.cluster.objects.values() {
            let Object::Job(job) = &stored.object else { continue };
            // The finalizer holds an end that the hub does not know.
            let known = self.hub.iter().enumerate().any(|(index, hub)| {
                uid(index) == job.meta.workload_uid
                    && hub.ended.is_some_and(|ended| ended >= job.meta.attempt)
            });
            let lost = job.end.is_some() && job.meta.finalizer_index.is_none() && !known;
            assert!(
                !lost,
                "an end the hub does not know was released: {job:?}\n{}",
                self.trace.join("\n")
            );
        }
    }

    pub(super) fn check_settled(&self) {
        for (index, hub) in self.hub.iter().enumerate() {
            let name = format!("job-{}", uid(index));
            let mine = |kind| {
                let stored = self.cluster.objects.get(&(kind, name.clone()));
                stored.filter(|it| !it.foreign).map(|it| it.object.clone())
            };
            let (workload, job) = (mine(ObjectKind::Workload), mine(ObjectKind::Job));
            let text = format!(
                "{name} wants {:?}, has {workload:?} and {job:?}\n{}",
                hub,
                self.trace.join("\n")
            );
            match hub.assignment {
                None => assert!(workload.is_none() && job.is_none(), "left over: {text}"),
                Some((_, Phase::Absent)) => panic!("a tombstone stays: {text}"),
                Some(_) if index == BLOCKED => {
                    assert!(workload.is_none() && job.is_none(), "{text}")
                }
                Some((attempt, phase)) => {
                    // An attempt reported as deleted on the worker is over until the hub starts
                    // another, even if a running creation created its objects again.
                    let Some(workload) = workload else { continue };
                    assert_eq!(workload.meta().attempt, attempt, "{text}");
                    let over = hub.taken == Some(attempt);
                    if let Object::Workload(workload) = &workload
                        && workload.finished.is_none()
                        && !over
                    {
                        let has = workload.priority.as_ref().map(|it| it.value);
                        assert_eq!(has, Some(priority((attempt, phase))), "{text}");
                    }
                    if let Some(Object::Job(job)) = job {
                        assert_eq!(job.meta.attempt, attempt, "{text}");
                        assert_eq!(job.active, phase == Phase::Run, "{text}");
                    }
                }
            }
        }
    }
}

/// One line about an object.
pub(super) fn short(object: &Object) -> String {
    let meta = object.meta();
    let facts = match object {
        Object::Workload(it) => {
            format!(
                "active {} admitted {} owned {}",
                it.active,
                it.admitted.is_some(),
                !meta.owners.is_empty()
            )
        }
        Object::Job(it) => {
            format!(
                "running {} ended {} held {}",
                it.active,
                it.end.is_some(),
                meta.finalizer_index.is_some()
            )
        }
    };
    let (kind, uid, attempt, deleting) =
        (object.kind(), &meta.workload_uid, meta.attempt, meta.deleting);
    format!("{kind:?} {} of {uid} attempt {attempt} deleting {deleting}: {facts}", meta.target.uid)
}
