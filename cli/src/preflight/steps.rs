//! The steps of the takeover, with their minutes. The figures are rounded up from what the steps
//! take on two cores; they grow with the number of objects.

use super::report::Step;

/// Objects that `kubectl replace` writes in a minute.
const REPLACED: usize = 600;
/// Objects that a starting Switchyard reads in a minute.
const READ: usize = 30_000;
/// Secrets that are copied by hand in a minute.
const COPIED: usize = 10;

/// Numbers on which the steps depend.
pub(super) struct Size {
    pub(super) objects: usize,
    /// Objects of kinds that may be stored in v1beta1.
    pub(super) stored_in_v1beta1: usize,
    /// Kubeconfig Secrets of workers.
    pub(super) secrets: usize,
    pub(super) is_hub: bool,
    /// Whether Helm installed Kueue.
    pub(super) is_of_helm: bool,
}

pub(super) fn steps(size: &Size) -> Vec<Step> {
    let step = |name: &str, jobs: &str, abort: &str, minutes: usize, is_gap, section: &str| Step {
        name: name.to_owned(),
        jobs: jobs.to_owned(),
        abort: abort.to_owned(),
        minutes,
        is_gap,
        link: format!("docs/migrate.md#{section}"),
    };
    let back = if size.is_hub { "Back to the manager" } else { "Back to Kueue, from its step 1" };
    let gap = if size.is_hub {
        "jobs on workers go on; create no Jobs until the hub has started: without webhooks they lack \
         managedBy, start on this cluster, and can never be dispatched"
    } else {
        "running jobs go on; new Jobs start without quota and are suspended in step 'Start \
         Switchyard'; new Pods, Deployments and StatefulSets stay outside quota"
    };
    let mut all = Vec::new();
    if size.stored_in_v1beta1 > 0 {
        all.push(step(
            "Store all objects in v1beta2",
            "nothing",
            "nothing is to be undone",
            1 + size.stored_in_v1beta1.div_ceil(REPLACED),
            false,
            "before",
        ));
    }
    all.push(step(
        "Stop Kueue and delete its webhooks",
        gap,
        match size.is_of_helm {
            true => "helm upgrade kueue, as in 'Back with Helm', starts Kueue again",
            false => "apply Kueue's manifests again and scale its Deployment up",
        },
        1,
        true,
        "step-by-step",
    ));
    if size.is_hub && size.secrets > 0 {
        all.push(step(
            &format!("Copy {} kubeconfig Secrets to switchyard-system", size.secrets),
            "jobs on workers go on; their status stands still",
            "as after the step before; delete the copies",
            size.secrets.div_ceil(COPIED),
            true,
            "a-multikueue-manager",
        ));
    }
    all.push(step(
        "Install Switchyard's CRDs and roles",
        "as before",
        back,
        1,
        true,
        "step-by-step",
    ));
    all.push(step(
        "Start Switchyard",
        "waiting jobs are queued in their order once it is ready",
        back,
        1 + size.objects.div_ceil(READ),
        true,
        "step-by-step",
    ));
    all.push(step(
        "Compare pods, Workloads and queues with the lists from before",
        "nothing",
        back,
        1,
        false,
        "checking-the-result",
    ));
    all
}
