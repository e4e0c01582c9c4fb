//! `apps/v1` Deployment: each of its pods is a job.
//!
//! The webhook copies queue and priority class into the pod template. So a change of the queue
//! replaces the pods, like any change of the template. Pods without quota wait; the others run.

use serde_json::Value;

use super::KindId;
use super::by_pods::{ByPods, PodOwner, copy_queue_labels, gate_pods_of, write};
use super::topology::{PodRanks, TopologySource};
use switchyard_api::v1beta2::PodSet;
use switchyard_syntax::names;

/// The kind `apps/v1` Deployment.
#[derive(Debug, Clone, Copy)]
pub struct Deployment;

/// Deployment as a job kind.
pub static DEPLOYMENT: PodOwner<Deployment> = PodOwner(Deployment);

const TEMPLATE: &[&str] = &["spec", "template"];

impl ByPods for Deployment {
    fn id(&self) -> KindId {
        KindId {
            group: "apps",
            version: "v1",
            kind: "Deployment",
            plural: "deployments",
            framework: "deployment",
        }
    }

    fn mark(&self, object: &mut Value) {
        gate_pods_of(object, TEMPLATE, self.id().framework);
        write(object, TEMPLATE, "labels", names::MANAGED, "true");
        copy_queue_labels(object, TEMPLATE);
    }

    /// Each pod is one pod set and has the same annotations.
    fn topology_source(&self, object: &Value, _index: usize, _pod_set: &PodSet) -> TopologySource {
        TopologySource::at(object, TEMPLATE, PodRanks::default())
    }
}
