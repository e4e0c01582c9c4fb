//! Selectors of a job's pods, by the label that its controller sets.

use switchyard_syntax::names;

use super::batch_job::CONTROLLER_UID;

/// Kinds whose controllers label pods with the uid of their job, and the label.
const BY_UID: [(&str, &str); 2] =
    [("Job", CONTROLLER_UID), ("JobSet", "jobset.sigs.k8s.io/jobset-uid")];

/// Kinds whose controllers label pods with the name of their job, and the label. A later job may
/// have the same name.
const BY_NAME: [(&str, &str); 8] = [
    ("JAXJob", TRAINING),
    ("MPIJob", TRAINING),
    ("PaddleJob", TRAINING),
    ("PyTorchJob", TRAINING),
    ("RayCluster", "ray.io/cluster"),
    ("TFJob", TRAINING),
    // A TrainJob's JobSet has the TrainJob's name.
    ("TrainJob", "jobset.sigs.k8s.io/jobset-name"),
    ("XGBoostJob", TRAINING),
];
const TRAINING: &str = "training.kubeflow.org/job-name";

/// Longest label value.
const LABEL_LENGTH: usize = 63;

/// Selects the pods of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSelector {
    /// A label selector.
    pub labels: String,
    /// Whether it selects no pods of other jobs. If not, the annotation [`names::WORKLOAD`] of
    /// started pods distinguishes them.
    pub is_exact: bool,
}

/// The selector of a job's pods. Not for the kind Pod.
#[must_use]
pub fn pod_selector(kind: &str, name: &str, uid: &str) -> PodSelector {
    let label = |labels: &[(&str, &'static str)]| {
        labels.iter().find(|(of, _)| kind == *of).map(|(_, label)| *label)
    };
    if let Some(label) = label(&BY_UID) {
        return PodSelector { labels: format!("{label}={uid}"), is_exact: true };
    }
    let labels = match label(&BY_NAME).filter(|_| name.len() <= LABEL_LENGTH) {
        Some(label) => format!("{label}={name}"),
        None => names::POD_SET.to_owned(),
    };
    PodSelector { labels, is_exact: false }
}
