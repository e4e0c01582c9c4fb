//! Queues workloads and checks when their requests, templates, checks or configurations change.

use std::sync::Arc;

use kube::ResourceExt as _;
use switchyard_api::v1beta2::{AdmissionCheck, Workload};
use tokio_util::sync::CancellationToken;

use super::{
    Queues,
    facts::is_provisioning_check,
    request_index::{RequestIndex, controller_of, workload_of},
};
use crate::{context::Context, stores::Stores};
use switchyard_platform::store::Key;

pub(super) fn subscribe(ctx: &Arc<Context>, queues: &Arc<Queues>, index: &Arc<RequestIndex>) {
    let stores = &ctx.stores;
    let (into, index) = (queues.clone(), index.clone());
    stores.provisioning_requests.subscribe(move |change| {
        index.apply(change).into_iter().for_each(|workload| into.workloads.add(workload));
    });
    let (into, seen) = (queues.clone(), stores.clone());
    stores.workloads.subscribe(move |change| {
        let had = change.old.as_deref().is_some_and(has_checks);
        if change.new.as_deref().is_some_and(|new| had || has_checks(new)) && has_own_checks(&seen)
        {
            into.workloads.add(change.key.clone());
        }
    });
    let (into, seen) = (queues.clone(), stores.clone());
    stores.pod_templates.subscribe(move |change| {
        let template = change.new.as_ref().or(change.old.as_ref());
        let Some(owner) = template.and_then(|it| controller_of(&**it)) else { return };
        let request = seen.provisioning_requests.get(&change.key.namespace, &owner.name);
        // A template belongs to the workload first, and to the request once that exists.
        let workload = template
            .and_then(|it| workload_of(&**it))
            .or_else(|| request.as_deref().and_then(workload_of));
        if let Some(workload) = workload {
            into.workloads.add(Key::new(&change.key.namespace, &workload.name));
        }
    });
    let (into, seen) = (queues.clone(), stores.clone());
    stores.admission_checks.subscribe(move |change| {
        // Other changes of a check do not matter to workloads.
        let spec = |check: &Option<Arc<AdmissionCheck>>| {
            check.as_ref().map(|check| (check.uid(), check.spec.clone()))
        };
        let is_own = [&change.old, &change.new]
            .into_iter()
            .flatten()
            .any(|check| is_provisioning_check(check));
        if is_own && spec(&change.old) != spec(&change.new) {
            check_changed(&into, &seen, &change.key);
        }
    });
    let (into, seen) = (queues.clone(), stores.clone());
    stores.provisioning_request_configs.subscribe(move |change| {
        let names = |check: &AdmissionCheck| {
            is_provisioning_check(check)
                && check.spec.parameters.as_ref().is_some_and(|it| it.name == *change.key.name)
        };
        for check in seen.admission_checks.filter(names) {
            check_changed(&into, &seen, &Key::of(&*check));
        }
    });
}

/// Queues everything when this replica becomes leader, and when the API server starts or stops
/// serving ProvisioningRequests.
pub(super) async fn requeue_all(ctx: &Arc<Context>, queues: &Queues, shutdown: &CancellationToken) {
    let all = || {
        for check in ctx.stores.admission_checks.filter(is_provisioning_check) {
            check_changed(queues, &ctx.stores, &Key::of(&*check));
        }
    };
    let mut served = ctx.stores.provisioning_requests.served();
    let known = async {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = served.changed() => if changed.is_err() { return },
            }
            all();
        }
    };
    tokio::join!(ctx.each_term(shutdown, all), known);
}

fn check_changed(queues: &Queues, stores: &Stores, check: &Key) {
    queues.checks.add(check.clone());
    let has = |workload: &Workload| {
        let status = workload.status.as_ref();
        status.is_some_and(|status| {
            status.admission_checks.iter().any(|state| state.name == *check.name)
        })
    };
    for workload in stores.workloads.filter(has) {
        queues.workloads.add(Key::of(&*workload));
    }
}

fn has_checks(workload: &Workload) -> bool {
    workload.status.as_ref().is_some_and(|status| !status.admission_checks.is_empty())
}

/// Skips workloads with other controllers' checks only, if no check is of this controller.
fn has_own_checks(stores: &Stores) -> bool {
    stores.admission_checks.any(is_provisioning_check) || !stores.provisioning_requests.is_empty()
}
