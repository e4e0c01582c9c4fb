//! The most that the containers of a pod use at one time, as Kubernetes'
//! `component-helpers/resource` adds it up.
//!
//! Init containers run one after the other. A sidecar, which is an init container with the restart
//! policy `Always`, keeps running beside all containers after it. The other containers run
//! together.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::quantity::Exact;

/// The use of containers: one amount, or amounts by resource.
pub trait Usage: Clone + Default {
    /// Adds the use of another container that runs at the same time.
    fn add(&mut self, more: &Self);

    /// Raises each amount to at least the other's.
    fn raise(&mut self, least: &Self);
}

impl Usage for i64 {
    fn add(&mut self, more: &Self) {
        *self = self.saturating_add(*more);
    }

    fn raise(&mut self, least: &Self) {
        *self = (*self).max(*least);
    }
}

impl Usage for BTreeMap<String, Exact> {
    fn add(&mut self, more: &Self) {
        for (resource, amount) in more {
            let sum = self.entry(resource.clone()).or_insert(Exact::ZERO);
            *sum = sum.plus(*amount);
        }
    }

    fn raise(&mut self, least: &Self) {
        for (resource, amount) in least {
            let most = self.entry(resource.clone()).or_insert(*amount);
            *most = (*most).max(*amount);
        }
    }
}

/// A container's list in the pod's spec, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerField {
    /// `initContainers` or `containers`.
    pub list: &'static str,
    /// Index in the list.
    pub index: usize,
}

impl fmt::Display for ContainerField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.list, self.index)
    }
}

/// The containers of a pod, init containers first.
pub fn containers_of(pod: &PodSpec) -> impl Iterator<Item = (ContainerField, &Container)> {
    let field =
        |list: &'static str| move |(index, container)| (ContainerField { list, index }, container);
    let init = pod.init_containers.iter().flatten().enumerate().map(field("initContainers"));
    init.chain(pod.containers.iter().enumerate().map(field("containers")))
}

/// The most that the pod's containers use at one time, given the use of each container.
///
/// # Errors
/// The first error of a container's use.
pub fn peak<'a, U: Usage, E>(
    pod: &'a PodSpec,
    mut use_of: impl FnMut(&'a Container, ContainerField) -> Result<U, E>,
) -> Result<U, E> {
    let (mut sidecars, mut starting) = (U::default(), U::default());
    let mut running = None;
    for (field, container) in containers_of(pod) {
        let used = use_of(container, field)?;
        if field.list == "containers" {
            running.get_or_insert_with(|| sidecars.clone()).add(&used);
            continue;
        }
        let mut at_once = sidecars.clone();
        at_once.add(&used);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.clone_from(&at_once);
        }
        starting.raise(&at_once);
    }
    let mut most = running.unwrap_or(sidecars);
    most.raise(&starting);
    Ok(most)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn container(amount: i64) -> Value {
        json!({"name": amount.to_string()})
    }

    fn sidecar(amount: i64) -> Value {
        json!({"name": amount.to_string(), "restartPolicy": "Always"})
    }

    #[rstest]
    #[case::no_containers(&[], &[], 0)]
    #[case::containers_run_together(&[], &[container(1), container(2)], 3)]
    #[case::init_containers_run_one_by_one(&[container(3), container(4)], &[container(1)], 4)]
    // https://github.com/kubernetes/website/pull/57373
    #[case::sidecar_runs_beside_a_later_init_container(&[sidecar(1), container(2)], &[container(1)], 3)]
    #[case::earlier_init_container_runs_alone(&[container(4), sidecar(2)], &[container(1)], 4)]
    #[case::sidecars_add_up(&[sidecar(1), sidecar(2)], &[container(3)], 6)]
    #[case::sidecars_alone(&[sidecar(1), container(5), sidecar(2)], &[], 6)]
    fn peak_follows_the_order_of_start(
        #[case] init: &[Value],
        #[case] containers: &[Value],
        #[case] want: i64,
    ) {
        let pod = json!({"initContainers": init, "containers": containers});
        let pod: PodSpec = serde_json::from_value(pod).unwrap();
        let use_of = |container: &Container, _: ContainerField| {
            Ok::<i64, Infallible>(container.name.parse().unwrap())
        };
        assert_eq!(peak(&pod, use_of), Ok(want));
    }
}
