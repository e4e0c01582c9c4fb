//! A test binary of its own: an external framework that replaces a built-in kind does so for the
//! whole process.

use switchyard_config::load;
use switchyard_jobs::{enabled_kinds, kind_for};

#[test]
fn disabled_built_in_kind_named_as_external_is_sent() {
    let config = |frameworks: &str, external: &str| {
        load(&format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
             featureGates: {{SparkApplicationIntegration: true}}\n\
             integrations: {{frameworks: [{frameworks}]}}\nmultiKueue: {{externalFrameworks: [{{name: {external}}}]}}\n"
        ))
    };
    let names = |frameworks: &str, external: &str| -> Vec<&str> {
        let all = config(frameworks, external).unwrap().all_frameworks();
        enabled_kinds(&all).iter().map(|kind| kind.id().framework).collect()
    };
    // Kueue's manager does not send this kind by itself, but Switchyard does.
    let (spark, by_name) =
        ("sparkoperator.k8s.io/sparkapplication", "SparkApplication.v1beta2.sparkoperator.k8s.io");
    assert_eq!(names(spark, by_name), [spark]);
    assert!(kind_for("sparkoperator.k8s.io", "SparkApplication").unwrap().makes_workloads());

    let (pytorch, by_name) = ("kubeflow.org/pytorchjob", "PyTorchJob.v1.kubeflow.org");
    assert!(
        config(pytorch, by_name)
            .unwrap_err()
            .to_string()
            .contains("conflicts with a built-in MultiKueue adapter")
    );
    assert_eq!(names("batch/job", by_name), ["batch/job", by_name]);
    let kind = kind_for("kubeflow.org", "PyTorchJob").unwrap();
    assert!(!kind.makes_workloads(), "somebody else makes them");
    assert!(kind_for("batch", "Job").unwrap().makes_workloads());
}
