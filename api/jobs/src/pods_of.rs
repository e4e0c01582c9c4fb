//! How the pods of a job are selected: by the label that its controller writes.

use switchyard_syntax::names;

/// The kinds whose controllers write the uid of their job on its pods, and the label.
const BY_UID: [(&str, &str); 2] =
    [("Job", "batch.kubernetes.io/controller-uid"), ("JobSet", "jobset.sigs.k8s.io/jobset-uid")];

/// The kinds whose controllers write the name of their job on its pods, and the label. A later job may have the same name.
const BY_NAME: [(&str, &str); 8] = [
    ("JAXJob", TRAINING),
    ("MPIJob", TRAINING),
    ("PaddleJob", TRAINING),
    ("PyTorchJob", TRAINING),
    ("RayCluster", "ray.io/cluster"),
    ("TFJob", TRAINING),
    // Its JobSet has its name.
    ("TrainJob", "jobset.sigs.k8s.io/jobset-name"),
    ("XGBoostJob", TRAINING),
];
const TRAINING: &str = "training.kubeflow.org/job-name";

/// The longest value of a label.
const LABEL_LENGTH: usize = 63;

/// Selects the pods of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSelector {
    /// A label selector.
    pub labels: String,
    /// Whether it selects no pods of other jobs. Otherwise the annotation [`names::WORKLOAD`] that a start writes on pods
    /// tells them apart.
    pub is_exact: bool,
}

/// The selector of the pods of a job, whose kind is not `Pod`.
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
