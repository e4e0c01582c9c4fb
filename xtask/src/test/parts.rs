//! Builds the programs of the test clusters from Go modules, once per machine.

use switchyard_parts::{Part, Parts};

use crate::report::{Report, Tier};
use crate::run;

/// The programs that cluster tests start.
const PARTS: [Part; 10] = [
    Part::Etcd,
    Part::ApiServer,
    Part::ControllerManager,
    Part::Scheduler,
    Part::Kwok,
    Part::Kueue,
    Part::Helm,
    Part::Kubectl,
    Part::KubectlKueue,
    Part::PodRequests,
];

/// Builds missing parts, with `nodes` also those of real nodes. Returns false if a part cannot be built.
pub(super) fn build(report: &Report, nodes: bool) -> bool {
    let title = "build etcd, Kubernetes, kwok, Kueue, Helm and kubectl";
    let built = report.part(Tier::Build, title, || {
        let parts = Parts::new()?;
        let kubelet = nodes.then_some(&Part::Kubelet);
        PARTS.iter().chain(kubelet).try_for_each(|part| parts.binary(*part).map(drop))?;
        Ok(())
    });
    built.is_some()
}

/// Whether this machine can build them.
pub(super) fn has_go() -> bool {
    run::has("go", "version")
}

/// Whether one of them is not built yet, as on a new machine.
pub(super) fn missing() -> bool {
    Parts::new().is_ok_and(|parts| PARTS.iter().any(|part| !parts.is_built(*part)))
}
