//! The commands of `docs/install.md` that remove everything, as they stand there. Switchyard runs as
//! a process, since nodes run no images here.

use std::time::Duration;

use switchyard_e2e::single::Single;
use switchyard_e2e::{ClusterSpec, Environment, NodeSpec, fixture};

use crate::common::shell::{self, Shell};

const PAGE: &str = "docs/install.md";
const WAIT: Duration = Duration::from_secs(300);

/// A command of sed: the pods of a job run until they are deleted.
const FOREVER: &str =
    r"s|^  template:$|&\n    metadata: {annotations: {e2e.switchyard.dev/run-for: forever}}|";

const SECTIONS: [&str; 6] = [
    "### Empty the queues",
    "### Uninstall",
    "### Disable conversion",
    "### Strip the finalizers",
    "### Delete the CRDs",
    "### Start suspended jobs",
];

/// The commands of the sections from this one on.
fn commands(from: &str) -> Vec<String> {
    let sections = SECTIONS.into_iter().skip_while(|heading| *heading != from);
    sections.flat_map(|heading| shell::commands(PAGE, heading)).collect()
}

/// A cluster where one job runs and one waits.
async fn begin(environment: &Environment) -> (Shell, Single) {
    let cluster = environment.cluster("one");
    let shell = Shell::new(&[cluster]).await;
    shell.run("helm install switchyard deploy/charts/switchyard --namespace switchyard-system --create-namespace");
    let single = Single::start(cluster).await.unwrap();
    shell.run("sed 's/nominalQuota: 100/nominalQuota: 500m/' examples/single/queues.yaml | kubectl apply -f -");
    shell.run(&format!("sed '{FOREVER}' examples/jobs/job.yaml | kubectl apply -f -"));
    shell.until(&active("job"), &["2"], WAIT).await;
    let second = format!("sed 's/name: job$/name: second/; {FOREVER}' examples/jobs/job.yaml");
    shell.run(&format!("{second} | kubectl apply -f -"));
    let waits = "kubectl --namespace team-a get job second --output=jsonpath={.spec.suspend}";
    shell.until(waits, &["true"], WAIT).await;
    let workloads = "kubectl --namespace team-a get workloads.kueue.x-k8s.io --output=name | wc -l";
    shell.until(workloads, &["2"], WAIT).await;
    (shell, single)
}

fn active(job: &str) -> String {
    format!("kubectl --namespace team-a get job {job} --output=jsonpath={{.status.active}}")
}

async fn environment(name: &str) -> Environment {
    let spec = ClusterSpec::new("one").node(NodeSpec::new("node").cpu(8));
    Environment::builder(name).cluster(spec).start().await.unwrap()
}

/// Waits until a command succeeds and lists nothing.
async fn lists_nothing(shell: &Shell, command: &str) {
    let line = format!("left=$({command}) && echo \"left: [$left]\"");
    shell.until(&line, &["left: []"], WAIT).await;
}

/// Stores a ClusterQueue in `v1beta1`, as an older Kueue did, with a value that `v1beta2` lacks. No
/// webhook converts it.
async fn store_in_v1beta1(shell: &Shell) {
    let definition = |is_old: bool, conversion: &str| {
        format!(
            r#"kubectl patch crd clusterqueues.kueue.x-k8s.io --type=json --patch='[
              {{"op": "test", "path": "/spec/versions/1/name", "value": "v1beta1"}},
              {{"op": "replace", "path": "/spec/versions/1/storage", "value": {is_old}}},
              {{"op": "replace", "path": "/spec/versions/0/storage", "value": {}}},
              {{"op": "replace", "path": "/spec/conversion", "value": {conversion}}}]'"#,
            !is_old
        )
    };
    let nowhere = r#"{"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": "https://127.0.0.1:1"}, "conversionReviewVersions": ["v1"]}}"#;
    let old = r#"{"metadata": {"annotations": {"stored": "'$(date +%N)'"}},
        "spec": {"flavorFungibility": {"whenCanBorrow": "Borrow"}}}"#;
    // The API server learns of the change a moment later.
    let line = format!(
        "{} && kubectl patch clusterqueues.v1beta1.kueue.x-k8s.io team-a --type=merge --patch='{old}' && {}
         kubectl get clusterqueues.kueue.x-k8s.io 2>&1 || true",
        definition(true, r#"{"strategy": "None"}"#),
        definition(false, nowhere),
    );
    shell.until(&line, &["conversion webhook for kueue.x-k8s.io/v1beta1"], WAIT).await;
}

async fn nothing_is_left(shell: &Shell) {
    // A group leaves discovery some time after its CRDs.
    lists_nothing(shell, "kubectl api-resources --api-group=kueue.x-k8s.io --output=name").await;
    let found = shell.run(
        "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations --output=name",
    );
    assert!(!found.contains("switchyard"), "{found}");
}

#[test]
fn everything_goes_while_switchyard_runs() {
    fixture::run(async {
        let environment = environment("emptied").await;
        let (shell, single) = begin(&environment).await;
        let mut single = Some(single);
        for line in commands("### Empty the queues") {
            if line.starts_with("helm uninstall")
                && let Some(single) = single.take()
            {
                // Only the running program removes the finalizers of Workloads.
                let workloads = "kubectl get workloads.kueue.x-k8s.io --all-namespaces";
                lists_nothing(&shell, &format!("{workloads} --output=name")).await;
                single.stop().await;
            }
            let said = shell.run(&line);
            let is_stripped = |line: &str| {
                line.ends_with(" patched") && !line.starts_with("customresourcedefinition")
            };
            assert!(!said.lines().any(is_stripped), "a finalizer was left: {said}");
        }
        nothing_is_left(&shell).await;
        assert_eq!(shell.run("kubectl --namespace team-a get jobs --output=name"), "");
    });
}

#[test]
fn what_is_left_goes_without_switchyard() {
    fixture::run(async {
        let environment = environment("abandoned").await;
        let (shell, single) = begin(&environment).await;
        single.stop().await;
        for line in shell::commands(PAGE, "### Uninstall") {
            shell.run(&line);
        }
        store_in_v1beta1(&shell).await;
        for line in commands("### Disable conversion") {
            if line.contains("finalizers") {
                // The page says to repeat this one.
                let patched = "clusterqueue.kueue.x-k8s.io/team-a patched";
                shell.until(&line, &[patched], WAIT).await;
            } else {
                shell.run(&line);
            }
        }
        nothing_is_left(&shell).await;
        for (job, expected) in [("job", "it goes on"), ("second", "it starts")] {
            let suspended = format!(
                "kubectl --namespace team-a get job {job} --output=jsonpath={{.spec.suspend}}"
            );
            assert_eq!(shell.run(&suspended), "false", "{expected}");
        }
    });
}
