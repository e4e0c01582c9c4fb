//! The state of one Workload.

use switchyard_api::conditions::{self, ADMITTED, FINISHED, QUOTA_RESERVED};
use switchyard_api::v1beta2::{Admission, Workload};
use switchyard_api::{names, variants};
use switchyard_jobs::elastic;

use crate::cluster::mark;

fn holds(workload: &Workload, condition: &str) -> bool {
    workload
        .status
        .as_ref()
        .is_some_and(|status| conditions::is_true(&status.conditions, condition))
}

pub(crate) fn is_finished(workload: &Workload) -> bool {
    holds(workload, FINISHED)
}

/// `Admitted` is True and it has quota.
pub(crate) fn is_admitted(workload: &Workload) -> bool {
    reservation(workload).is_some() && holds(workload, ADMITTED)
}

/// The uid of the hub's Workload, if this one is a copy.
pub(crate) fn original_uid(workload: &Workload) -> Option<&str> {
    mark(&workload.metadata.annotations, names::WORKLOAD_UID)
}

/// The quota of a Workload that is active, has an owner, or is a hub's copy. No controller releases
/// the quota of any other Workload, so it does not count.
pub(crate) fn reservation(workload: &Workload) -> Option<&Admission> {
    let is_owned =
        || workload.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let may_run = workload.spec.is_active() || is_owned() || original_uid(workload).is_some();
    let holds_quota = may_run && holds(workload, QUOTA_RESERVED) && !is_finished(workload);
    workload.status.as_ref()?.admission.as_ref().filter(|_| holds_quota)
}

/// Whether its pods may run. A replacement slice of an elastic job may still wait for its admission
/// checks while the pods of the old slice run.
pub(crate) fn allows_pods(workload: &Workload) -> bool {
    let replaces = || elastic::is_slice(workload) && elastic::replacement_for(workload).is_some();
    is_admitted(workload) || reservation(workload).is_some() && replaces()
}

/// Whether queues count its charge. A Workload with variants shows the quota of the admitted
/// variant, which counts by itself.
pub(crate) fn is_counted(workload: &Workload) -> bool {
    !(variants::is_parent(workload) && variants::parent_of(workload).is_none())
}
