//! Checks the API server, the CRDs and the program.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::ResourceExt as _;

use super::explain::CheckName;
use super::facts::{ClusterFacts, Server};
use super::mode::Mode;
use super::report::Line;

/// Oldest minor version of Kubernetes that the chart allows.
pub(crate) const MIN_MINOR: u32 = 32;

/// Difference of clocks in seconds that is warned of. Leases and tokens last longer.
const SKEW_WARNING: i64 = 5;
/// Difference of clocks in seconds that makes fresh certificates and tokens invalid.
const SKEW_FAILURE: i64 = 60;

/// Checks version and clock of the API server.
pub(super) fn check_server(facts: &ClusterFacts) -> Vec<Line> {
    let server = match &facts.server {
        Ok(server) => server,
        Err(error) => {
            let mend = "name the cluster with --kubeconfig or --context, and try `kubectl version`";
            return vec![Line::failure(
                CheckName::ApiServer,
                format!("the API server does not answer: {error}"),
                mend,
            )];
        }
    };
    let version = match kubernetes_minor(&server.version) {
        Some(minor) if minor < MIN_MINOR => Line::failure(
            CheckName::KubernetesVersion,
            format!("Kubernetes {} is older than 1.{MIN_MINOR}", server.version),
            format!("upgrade the cluster to Kubernetes 1.{MIN_MINOR} or later"),
        ),
        _ => Line::ok(CheckName::KubernetesVersion, format!("Kubernetes {}", server.version)),
    };
    vec![version, check_clock(CheckName::Clocks, server, "this machine")]
}

/// The minor number of a version such as v1.36.3.
pub(crate) fn kubernetes_minor(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').nth(1)?.parse().ok()
}

/// Compares the API server's clock with another machine's.
fn check_clock(check: CheckName, server: &Server, other: &str) -> Line {
    match server.ahead {
        None => Line::unread(check, "the API server says no time"),
        Some(ahead) => compare_clocks(check, "the API server's clock", ahead, other),
    }
}

/// Compares two clocks. `ahead`: seconds by which the first one is fast.
pub(super) fn compare_clocks(check: CheckName, clock: &str, ahead: i64, other: &str) -> Line {
    let (amount, word) = (ahead.abs(), if ahead > 0 { "ahead of" } else { "behind" });
    let message = format!("{clock} is {amount} s {word} that of {other}");
    let mend = "synchronize both with NTP: certificates and join tokens are valid by the clock of the reader";
    match amount {
        SKEW_FAILURE.. => Line::failure(check, message, mend),
        SKEW_WARNING.. => Line::warning(check, message, mend),
        _ => Line::ok(check, format!("{clock} agrees with that of {other}")),
    }
}

/// Checks that the CRDs exist, are established and have this version's fields.
pub(super) fn check_crds(facts: &ClusterFacts, mode: Mode) -> Vec<Line> {
    let found = match &facts.crds {
        Ok(found) => found,
        Err(error) => return vec![Line::unread(CheckName::Crds, error)],
    };
    let mend = format!(
        "kubectl apply --server-side --filename {}, or helm upgrade with crds.install=true",
        mode.manifest()
    );
    let (mut lines, wanted) = (Vec::new(), switchyard_api::crds());
    for crd in &wanted {
        let name = crd.name_any();
        let Some(there) = found.iter().find(|it| it.name_any() == name) else {
            lines.push(Line::failure(CheckName::Crds, format!("{name} is missing"), mend.clone()));
            continue;
        };
        if !is_established(there) {
            lines.push(Line::failure(
                CheckName::Crds,
                format!("{name} is not established"),
                format!("kubectl describe crd {name}"),
            ));
        }
        let missing = missing_fields(crd, there);
        if !missing.is_empty() {
            let message = format!("{name} is of another version: it lacks {}", shorten(&missing));
            lines.push(Line::failure(CheckName::Crds, message, mend.clone()));
        }
    }
    if lines.is_empty() {
        lines.push(Line::ok(
            CheckName::Crds,
            format!(
                "all {} are there, and of version {}",
                wanted.len(),
                switchyard_api::build::VERSION
            ),
        ));
    }
    lines
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Established" && it.status == "True")
}

/// Fields of the storage version that the installed CRD lacks; the API server would drop them.
fn missing_fields(
    wanted: &CustomResourceDefinition,
    there: &CustomResourceDefinition,
) -> Vec<String> {
    let Some(version) = wanted.spec.versions.iter().find(|version| version.storage) else {
        return Vec::new();
    };
    let other = there.spec.versions.iter().find(|it| it.name == version.name && it.served);
    let Some(other) = other else { return vec![format!("version {}", version.name)] };
    let schema = |version: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion| {
        version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.clone()).unwrap_or_default()
    };
    let mut missing = Vec::new();
    compare(&schema(version), &schema(other), "", &mut missing);
    missing
}

fn compare(
    wanted: &JSONSchemaProps,
    there: &JSONSchemaProps,
    path: &str,
    missing: &mut Vec<String>,
) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
    if there.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, schema) in wanted.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        match there.properties.as_ref().and_then(|properties| properties.get(name)) {
            Some(other) => compare(schema, other, &path, missing),
            None => missing.push(path),
        }
    }
    if let (
        Some(JSONSchemaPropsOrArray::Schema(wanted)),
        Some(JSONSchemaPropsOrArray::Schema(there)),
    ) = (&wanted.items, &there.items)
    {
        compare(wanted, there, &format!("{path}[]"), missing);
    }
}

/// The first few names, and the number of the others.
pub(crate) fn shorten(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let first = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Checks the Deployment, its pods, leadership and rights.
pub(super) fn check_program(facts: &ClusterFacts, mode: Mode) -> Vec<Line> {
    let mut lines = vec![check_deployment(facts, mode)];
    lines.extend(facts.deployment().and_then(replica_fault));
    for pod in facts.pods.as_deref().unwrap_or_default() {
        lines.extend(pod_fault(pod, mode));
    }
    lines.push(check_leader(facts));
    lines.push(match &facts.denied {
        Err(error) => Line::unread(CheckName::Rights, error),
        Ok(denied) if denied.is_empty() => Line::ok(CheckName::Rights, format!("{} has the rights of its roles", mode.name())),
        Ok(denied) => Line::failure(
            CheckName::Rights,
            format!("{} may not: {}", mode.name(), shorten(denied)),
            format!(
                "install its roles again: helm upgrade, or kubectl apply --server-side --filename {}",
                mode.manifest()
            ),
        ),
    });
    lines
}

fn check_deployment(facts: &ClusterFacts, mode: Mode) -> Line {
    let name = mode.name();
    let Some(deployment) = facts.deployment() else {
        let message = format!("{name} runs, but no Deployment in {} runs it", facts.namespace);
        return Line::warning(
            CheckName::Deployment,
            message,
            "install it with the chart, unless you start it by other means",
        );
    };
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready =
        deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let message = format!("{ready} of {wanted} replicas of {name} are ready");
    let logs = format!("kubectl --namespace {} logs deployment/{name}", facts.namespace);
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let image =
        pod.and_then(|pod| pod.containers.first()).and_then(|container| container.image.clone());
    let version = image
        .as_deref()
        .and_then(|image| image.split('@').next()?.rsplit_once(':'))
        .map(|(_, tag)| tag);
    let own = switchyard_api::build::VERSION;
    match (ready, version) {
        (0, _) => Line::failure(CheckName::Deployment, message, logs),
        (ready, _) if ready < wanted => Line::warning(CheckName::Deployment, message, logs),
        (_, Some(version)) if version.trim_start_matches('v') != own => Line::warning(
            CheckName::Version,
            format!("{name} is of version {version}, this command line of {own}"),
            "use the command line of the same release: what it compares is of its own version",
        ),
        _ => Line::ok(CheckName::Deployment, message),
    }
}

/// Why the Deployment's pods are not created, as the API server answers.
fn replica_fault(deployment: &Deployment) -> Option<Line> {
    let conditions = deployment.status.as_ref()?.conditions.as_deref()?;
    let failure = conditions.iter().find(|it| it.type_ == "ReplicaFailure" && it.status == "True");
    let message = failure?.message.clone().unwrap_or_default();
    let mend = if message.contains("PodSecurity") {
        "the chart's defaults fit the level restricted: set controllerManager.hostNetwork, controllerManager.manager.podSecurityContext and \
         controllerManager.manager.containerSecurityContext to what the namespace's level allows, or change the namespace's label \
         pod-security.kubernetes.io/enforce"
    } else if message.contains("quota") {
        "raise the namespace's ResourceQuota, or lower controllerManager.manager.resources and controllerManager.replicas"
    } else {
        "kubectl describe replicasets has the reason: a policy, a webhook or a limit of the namespace refuses the pods"
    };
    let message = format!("pods of {} are not created: {}", deployment.name_any(), message.trim());
    Some(Line::failure(CheckName::Pods, message, mend))
}

/// Why a pod does not run, as the scheduler or the kubelet reports it.
fn pod_fault(pod: &Pod, mode: Mode) -> Option<Line> {
    if !pod.name_any().starts_with(mode.name()) {
        return None;
    }
    unscheduled(pod).or_else(|| container_fault(pod))
}

/// Why a pod has no node.
fn unscheduled(pod: &Pod) -> Option<Line> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let condition =
        conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
    let message = format!(
        "pod {} has no node: {}: {}",
        pod.name_any(),
        condition.reason.as_deref().unwrap_or_default(),
        condition.message.as_deref().unwrap_or_default().trim()
    );
    let mend = "add a node that fits, or change controllerManager.manager.resources, controllerManager.nodeSelector, \
                controllerManager.tolerations or controllerManager.affinity";
    Some(Line::failure(CheckName::Pods, message, mend))
}

fn container_fault(pod: &Pod) -> Option<Line> {
    let status = pod.status.as_ref()?;
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let mut statuses = statuses.into_iter().flatten().flatten();
    // An init container that has succeeded is ready.
    let status = statuses.find(|status| !status.ready)?;
    let state = status.state.as_ref()?;
    let last_message = status
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref())
        .and_then(|it| it.message.clone());
    let (reason, detail) = match (&state.waiting, &state.terminated) {
        (Some(waiting), _) => (
            waiting.reason.clone().unwrap_or_default(),
            last_message.or_else(|| waiting.message.clone()).unwrap_or_default(),
        ),
        (None, Some(ended)) => (
            ended.reason.clone().unwrap_or_default(),
            ended.message.clone().unwrap_or_else(|| format!("exit code {}", ended.exit_code)),
        ),
        (None, None) => return None,
    };
    if matches!(reason.as_str(), "ContainerCreating" | "PodInitializing") {
        let message = format!("pod {} is being started", pod.name_any());
        return Some(Line::warning(
            CheckName::Pods,
            message,
            "if that lasts, kubectl describe pod has the reason, such as a Secret that is missing",
        ));
    }
    let message = format!("pod {}: {reason}: {}", pod.name_any(), detail.trim());
    let mend = match reason.as_str() {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" => {
            "load the image onto the nodes, or name the registry with global.imageRegistry and its credentials with \
             global.imagePullSecrets"
        }
        _ => "kubectl logs --previous has the reason",
    };
    Some(Line::failure(CheckName::Pods, message, mend))
}

fn check_leader(facts: &ClusterFacts) -> Line {
    let mend = format!(
        "kubectl --namespace {} get pods; then read the log of one that does not lead",
        facts.namespace
    );
    let lease = match &facts.lease {
        Ok(Some(lease)) => lease.spec.clone().unwrap_or_default(),
        Ok(None) => return Line::failure(CheckName::Leader, "no replica has ever led", mend),
        Err(error) => return Line::unread(CheckName::Leader, error),
    };
    let holder = lease.holder_identity.clone().unwrap_or_default();
    let Some(renewed) = lease.renew_time.as_ref().filter(|_| !holder.is_empty()) else {
        return Line::failure(CheckName::Leader, "no replica leads", mend);
    };
    let age = facts.seconds_since(renewed);
    if is_overdue(&lease, age) {
        return Line::failure(
            CheckName::Leader,
            format!("no replica leads: {holder} renewed its Lease {age} s ago"),
            mend,
        );
    }
    Line::ok(CheckName::Leader, format!("{holder} leads"))
}

/// Whether a Lease that was renewed `age` seconds ago has expired.
pub(super) fn is_overdue(lease: &LeaseSpec, age: i64) -> bool {
    // The server's time is in whole seconds.
    age > i64::from(lease.lease_duration_seconds.unwrap_or(15)) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::report::Outcome;

    #[test]
    fn clock_difference_decides_the_outcome() {
        for (ahead, outcome, expected) in [
            (0, Outcome::Ok, "agrees"),
            (-4, Outcome::Ok, "agrees"),
            (5, Outcome::Warning, "5 s ahead of that of east"),
            (-3600, Outcome::Failure, "3600 s behind that of east"),
        ] {
            let line = compare_clocks(CheckName::Clocks, "the hub's clock", ahead, "east");
            assert_eq!(line.outcome, outcome, "{ahead}");
            assert!(line.message.contains(expected), "{}", line.message);
        }
    }

    #[test]
    fn oldest_kubernetes_is_that_of_the_chart() {
        let chart = include_str!("../../../deploy/charts/switchyard/Chart.yaml");
        assert!(chart.contains(&format!("kubeVersion: \">=1.{MIN_MINOR}.0-0\"")), "{chart}");
    }

    #[test]
    fn crd_of_another_version_lacks_fields() {
        let wanted = switchyard_api::crds()
            .into_iter()
            .find(|crd| crd.name_any().starts_with("multikueueclusters"))
            .unwrap();
        assert!(missing_fields(&wanted, &wanted).is_empty());
        let mut older = wanted.clone();
        let schema = older.spec.versions[0]
            .schema
            .as_mut()
            .and_then(|it| it.open_api_v3_schema.as_mut())
            .unwrap();
        let status = schema.properties.as_mut().and_then(|it| it.get_mut("status")).unwrap();
        status.properties.as_mut().unwrap().remove("agent");
        assert_eq!(missing_fields(&wanted, &older), [".status.agent"]);
        older.spec.versions.retain(|version| version.name == "v1beta1");
        assert_eq!(missing_fields(&wanted, &older), ["version v1beta2"]);
    }

    #[test]
    fn long_lists_are_shortened() {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        assert_eq!(shorten(&names[..2]), "a, b");
        assert_eq!(shorten(&names), "a, b, c and 2 more");
    }
}
