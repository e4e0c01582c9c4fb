//! Kinds that only the configuration names (`multiKueue.externalFrameworks`, `integrations.externalFrameworks`): another
//! controller makes their workloads, in this cluster and in the workers. Their objects are sent and their status is shown
//! without knowing more of them than their name, and that `spec.managedBy` says who runs them.

use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::meta::str_at;
use super::plain::set;
use super::remote::remote_object;
use super::{Finished, JobError, JobKind, KindId, PodSetInfo, RemoteMeta};
use switchyard_api::v1beta2::PodSet;

/// A kind that the configuration names.
#[derive(Debug, Clone, Copy)]
struct External {
    id: KindId,
}

/// Those named so far. They stay: a configuration names few, and a process reads one.
static NAMED: RwLock<Vec<&'static External>> = RwLock::new(Vec::new());

/// Whether one of them is a kind that is built in, and not enabled.
static SHADOWS: AtomicBool = AtomicBool::new(false);

/// The kind that a configuration calls `Kind.version.group`; none when the text has another form, or names a kind that is
/// built in. The same name gives the same kind.
///
/// The name of its resource is the plural that Kubernetes' own code generators would make.
#[must_use]
pub fn external_kind(name: &str) -> Option<&'static dyn JobKind> {
    super::framework_of(name).is_none().then(|| made(name)).flatten()
}

/// The same for a name of a kind that is built in and not enabled: from then on it is what that kind is.
pub(super) fn external_kind_in_place(name: &str) -> Option<&'static dyn JobKind> {
    SHADOWS.store(true, Ordering::Relaxed);
    made(name)
}

fn made(name: &str) -> Option<&'static dyn JobKind> {
    let mut parts = name.splitn(3, '.');
    let (kind, version, group) = (parts.next()?, parts.next()?, parts.next()?);
    // Names of built-in frameworks have dots, too.
    if name.contains('/') || [kind, version, group].iter().any(|part| part.is_empty()) {
        return None;
    }
    let mut named = NAMED.write().unwrap_or_else(PoisonError::into_inner);
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

/// As [`named`], for a kind that may be built in.
pub(super) fn in_place_of_built_in(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    SHADOWS.load(Ordering::Relaxed).then(|| named(group, kind)).flatten()
}

/// The kind of this group and name that a configuration has named.
pub(super) fn named(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    let named = NAMED.read().unwrap_or_else(PoisonError::into_inner);
    let found =
        named.iter().copied().find(|known| known.id.group == group && known.id.kind == kind)?;
    Some(found)
}

fn status(job: &Value) -> Map<String, Value> {
    job.get("status").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// What a job of the kind does is read from its workload alone: it counts as suspended and as never ending by itself, and
/// nothing in it is changed.
impl JobKind for External {
    fn id(&self) -> KindId {
        self.id
    }

    fn makes_workloads(&self) -> bool {
        false
    }

    fn tells_its_end(&self) -> bool {
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

    fn is_active(&self, _job: &Value) -> bool {
        false
    }

    fn run(&self, _job: &mut Value, _infos: &[PodSetInfo]) -> Result<(), JobError> {
        Ok(())
    }

    fn restore(&self, _job: &mut Value, _pod_sets: &[PodSet]) -> bool {
        false
    }

    fn finished(&self, _job: &Value) -> Option<Finished> {
        None
    }

    fn pods_ready(&self, _job: &Value) -> bool {
        false
    }

    fn managed_by<'a>(&self, job: &'a Value) -> Option<&'a str> {
        Some(str_at(job, "/spec/managedBy")).filter(|manager| !manager.is_empty())
    }

    fn set_managed_by(&self, job: &mut Value, manager: Option<&str>) {
        set(job, &["spec", "managedBy"], manager.map(Value::from));
    }

    /// Its own webhook says who runs it.
    fn can_default_managed_by(&self, _job: &Value) -> bool {
        false
    }

    /// The whole object but for its status and what is of this cluster.
    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value {
        let mut copy = remote_object(
            self.id,
            job,
            job.get("spec").cloned().unwrap_or_else(|| json!({})),
            remote,
        );
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
        let wanted = status(remote);
        (!wanted.is_empty() && wanted != status(local)).then_some(Value::Object(wanted))
    }

    fn reset_status(&self, local: &Value, _now: Timestamp) -> Option<Value> {
        (!status(local).is_empty()).then(|| json!({}))
    }
}
