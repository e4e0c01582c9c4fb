//! The table of all job kinds, and lookups in it.

use serde_json::Value;

use super::{
    JobKind, SuspendMode, app_wrapper, batch_job, deployment, external, job_set, kubeflow,
    leader_worker_set, pod, ray, spark_application, stateful_set, train_job,
};

static KINDS: &[&dyn JobKind] = &[
    &batch_job::BatchJob,
    &job_set::JobSet,
    &kubeflow::TF_JOB,
    &kubeflow::PYTORCH_JOB,
    &kubeflow::PADDLE_JOB,
    &kubeflow::XGBOOST_JOB,
    &kubeflow::JAX_JOB,
    &kubeflow::MPI_JOB,
    &ray::RayJob,
    &ray::RAY_CLUSTER,
    &ray::RAY_SERVICE,
    &app_wrapper::AppWrapper,
    &spark_application::SparkApplication,
    &train_job::TrainJob,
    &pod::Pod,
    &deployment::DEPLOYMENT,
    &stateful_set::STATEFUL_SET,
    &leader_worker_set::LEADER_WORKER_SET,
];

/// All built-in kinds, in the order in which they are watched.
#[must_use]
pub fn kinds() -> &'static [&'static dyn JobKind] {
    KINDS
}

/// The kinds that a configuration enables. First the built-in ones (`integrations.frameworks`), in
/// the order of [`kinds`]. Then the external ones (`Kind.version.group`), which may also name a
/// built-in kind that is not enabled.
///
/// Unknown names are left out. Kinds that are queued by their pods ([`SuspendMode::Pods`]) also
/// enable Pod.
#[must_use]
pub fn enabled_kinds(frameworks: &[String]) -> Vec<&'static dyn JobKind> {
    let named = |kind: &dyn JobKind| frameworks.iter().any(|name| name == kind.id().framework);
    let pods = kinds().iter().any(|kind| kind.suspend_mode() == SuspendMode::Pods && named(*kind));
    let mut enabled: Vec<&'static dyn JobKind> = kinds()
        .iter()
        .copied()
        .filter(|kind| named(*kind) || pods && kind.suspend_mode() == SuspendMode::Gate)
        .collect();
    enabled.extend(frameworks.iter().filter_map(|name| match framework_of(name) {
        None => external_kind(name),
        Some(built_in) if frameworks.iter().any(|it| it == built_in) => None,
        Some(_) => external::external_kind_in_place(name),
    }));
    enabled
}

/// The kind for an API group and kind, of any version: built-in, or named by the configuration.
#[must_use]
pub fn kind_for(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    external::in_place_of_built_in(group, kind)
        .or_else(|| built_in(group, kind))
        .or_else(|| external::named(group, kind))
}

pub(super) fn built_in(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    kinds().iter().copied().find(|k| k.id().group == group && k.id().kind == kind)
}

/// The name in `integrations.frameworks` of the built-in kind that `external`
/// (`Kind.version.group`) also names.
#[must_use]
pub fn framework_of(external: &str) -> Option<&'static str> {
    let mut parts = external.splitn(3, '.');
    let (kind, group) = (parts.next()?, parts.nth(1)?);
    built_in(group, kind).map(|kind| kind.id().framework)
}

/// The kind for the `apiVersion` and kind of an owner reference.
#[must_use]
pub fn kind_of_owner(api_version: &str, kind: &str) -> Option<&'static dyn JobKind> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    kind_for(group, kind)
}

/// Whether the object is a pod of a serving group, or an object between that pod and the group's
/// owner.
#[must_use]
pub fn is_serving_part(object: &Value) -> bool {
    kinds()
        .iter()
        .any(|kind| kind.serving().is_some_and(|serving| serving.owner_of(object).is_some()))
}

/// The kind that a configuration calls `Kind.version.group`. `None` if the text has another form or
/// names a built-in kind. Equal names give the same kind.
///
/// Its resource name is the plural that Kubernetes' code generators would make.
#[must_use]
pub fn external_kind(name: &str) -> Option<&'static dyn JobKind> {
    framework_of(name).is_none().then(|| external::made(name)).flatten()
}
