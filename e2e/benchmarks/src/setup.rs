//! The clusters, queues and Jobs of a measurement, the same in every system.

use std::time::Duration;

use switchyard_e2e::{ClusterSpec, JobBuilder, NodeSpec};
use switchyard_flags::bench::burst::Form;

pub(super) use switchyard_e2e::fleet::HUB;
/// The worker clusters, in every system.
pub(super) const WORKERS: [&str; 3] = ["w1", "w2", "w3"];
/// The LocalQueue that all Jobs go to.
pub(super) const QUEUE: &str = "main";
/// CPUs of each worker, and of the hub's quota: enough for all at once, so no job waits for quota.
pub(super) const CPUS: &str = "100000";

/// The Job of a number, as it runs on a worker.
pub(super) fn job(namespace: &str, index: usize, time: Duration) -> JobBuilder {
    JobBuilder::new(namespace, &name(index)).queue(QUEUE).cpu("1").run_for(time)
}

/// The name of a number's Job.
pub(super) fn name(index: usize) -> String {
    format!("job-{index:05}")
}

/// The number of a Job's name.
pub(super) fn number(name: &str) -> Option<usize> {
    name.strip_prefix("job-")?.parse().ok()
}

/// A worker cluster for a form.
pub(super) fn worker(name: &str, form: Form) -> ClusterSpec {
    let spec = ClusterSpec::new(name);
    match form {
        Form::Dispatch => spec.without_controller("job-controller"),
        Form::Finish => {
            let node =
                |name: &str| NodeSpec::new(name).resource("cpu", CPUS).resource("pods", "100000");
            spec.nodes([node("n1"), node("n2")])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_name_says_its_number() {
        assert_eq!(number(&name(42)), Some(42));
        assert_eq!(number("job-x"), None);
    }
}
