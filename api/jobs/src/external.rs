//! External frameworks: kinds that only the configuration names (`multiKueue.externalFrameworks`,
//! `integrations.externalFrameworks`). Another controller makes their Workloads, on the hub and on
//! workers. Switchyard sends the objects and mirrors their status. It knows only the name of the
//! kind and that `spec.managedBy` names the controller.

use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::remote::remote_object;
use super::{
    JobEnd, JobError, JobKind, KindId, KindProfile, Managed, PodSetInfo, Remote, RemoteMeta, status,
};
use switchyard_api::v1beta2::PodSet;

/// A kind that the configuration names.
#[derive(Debug, Clone, Copy)]
struct External {
    id: KindId,
}

/// All kinds named so far. They are never freed: a configuration names few, and a process reads one
/// configuration.
static NAMED: RwLock<Vec<&'static External>> = RwLock::new(Vec::new());

/// Whether one of them replaces a built-in kind that is not enabled.
static SHADOWS: AtomicBool = AtomicBool::new(false);

/// As [`crate::external_kind`], for a built-in kind that is not enabled. From then on, the external
/// kind replaces the built-in kind in this process.
pub(super) fn external_kind_in_place(name: &str) -> Option<&'static dyn JobKind> {
    SHADOWS.store(true, Ordering::Relaxed);
    made(name)
}

pub(super) fn made(name: &str) -> Option<&'static dyn JobKind> {
    let mut parts = name.splitn(3, '.');
    let (kind, version, group) = (parts.next()?, parts.next()?, parts.next()?);
    // Names of built-in frameworks contain dots, too.
    if name.contains('/') || [kind, version, group].iter().any(|part| part.is_empty()) {
        return None;
    }
    let mut named = NAMED.write();
    if let Some(known) = named.iter().find(|known| known.id.framework == name) {
        return Some(*known);
    }
    let keep = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
    let plural = keep(&kube::core::ApiResource::from_gvk(&gvk).plural);
    let id = KindId {
        group: keep(group),
        version: keep(version),
        kind: keep(kind),
        plural,
        framework: keep(name),
    };
    let made: &'static External = Box::leak(Box::new(External { id }));
    named.push(made);
    Some(made)
}

/// As [`named`], for built-in kinds that were replaced.
pub(super) fn in_place_of_built_in(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    SHADOWS.load(Ordering::Relaxed).then(|| named(group, kind)).flatten()
}

/// The external kind of this group and name, if the configuration named it.
pub(super) fn named(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    let named = NAMED.read();
    let found =
        named.iter().copied().find(|known| known.id.group == group && known.id.kind == kind)?;
    Some(found)
}

/// The state of such a job is known only from its Workload. So the job counts as suspended, never
/// reports its end, and is never changed.
impl KindProfile for External {
    fn id(&self) -> KindId {
        self.id
    }

    fn is_active(&self, _job: &Value) -> bool {
        false
    }

    fn finished(&self, _job: &Value) -> Option<JobEnd> {
        None
    }

    fn pods_ready(&self, _job: &Value) -> bool {
        false
    }
}

impl JobKind for External {
    fn managed(&self) -> Option<&dyn Managed> {
        Some(self)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn makes_workloads(&self) -> bool {
        false
    }

    fn reports_completion(&self) -> bool {
        false
    }

    fn pod_sets(&self, _job: &Value) -> Result<Vec<PodSet>, JobError> {
        Err(JobError::Malformed {
            field: "kind".into(),
            problem: format!(
                "{} is an external framework; its own controller makes its workloads",
                self.id.kind
            ),
        })
    }

    fn is_suspended(&self, _job: &Value) -> bool {
        true
    }

    fn suspend(&self, _job: &mut Value) {}

    fn run(&self, _job: &mut Value, _infos: &[PodSetInfo]) -> Result<(), JobError> {
        Ok(())
    }

    fn restore(&self, _job: &mut Value, _pod_sets: &[PodSet]) -> bool {
        false
    }
}

impl Managed for External {
    /// The kind's own webhook sets the manager.
    fn can_default_managed_by(&self, _job: &Value) -> bool {
        false
    }
}

impl Remote for External {
    /// The whole object, except for its status and metadata of this cluster.
    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value {
        let mut copy = remote_object(self.id, job, remote);
        if let Some(fields) = copy.as_object_mut() {
            for (field, value) in job.as_object().into_iter().flatten() {
                if field != "status" && !fields.contains_key(field) {
                    fields.insert(field.clone(), value.clone());
                }
            }
        }
        self.set_managed_by(&mut copy, None);
        copy
    }

    fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value> {
        status::copied(local, remote)
    }

    fn reset_status(&self, local: &Value, _now: Timestamp) -> Option<Value> {
        (!status::fields(local).is_empty()).then(|| json!({}))
    }
}
