//! How to reach and read the objects of one kind.

use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use switchyard_jobs::{JobKind, owner_gvk};
use switchyard_ledger::{Object, ObjectKind, Target};

use super::HandledKind;
use super::read::{read_job, read_workload};
use crate::proof::Seal;

/// How to reach and read the objects of one kind.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) resource: ApiResource,
    pub(crate) gvk: Arc<str>,
    /// None for Workloads.
    pub(crate) job_kind: Option<&'static dyn JobKind>,
}

impl Access {
    pub(crate) fn workload() -> Self {
        Self { resource: workload_resource(), gvk: workload_gvk(), job_kind: None }
    }

    pub(crate) fn job(kind: &'static dyn JobKind) -> Self {
        Self {
            resource: kind.id().api_resource(),
            gvk: owner_gvk(kind.id()).into(),
            job_kind: Some(kind),
        }
    }

    pub(super) fn kind(&self) -> ObjectKind {
        if self.job_kind.is_some() { ObjectKind::Job } else { ObjectKind::Workload }
    }

    /// The access to an existing object, if it is of one of these kinds.
    pub(super) fn of(target: &Target, kinds: &[HandledKind]) -> Option<Self> {
        let jobs = kinds.iter().map(|known| Self::job(known.kind));
        std::iter::once(Self::workload()).chain(jobs).find(|access| access.gvk == target.gvk)
    }

    /// The object as the ledger knows it, if it is one of this hub's copies.
    pub(super) fn read(&self, object: &Value, seal: &Seal) -> Option<Object> {
        match self.job_kind {
            None => read_workload(object, &self.gvk, seal).map(Object::Workload),
            Some(kind) => read_job(object, kind, &self.gvk, seal).map(Object::Job),
        }
    }
}

pub(super) fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn workload_resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "Workload");
    ApiResource::from_gvk_with_plural(&gvk, "workloads")
}

fn workload_gvk() -> Arc<str> {
    "kueue.x-k8s.io/v1beta2, Kind=Workload".into()
}
