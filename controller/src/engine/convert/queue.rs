//! ClusterQueues, Cohorts, LocalQueues and ResourceFlavors.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use switchyard_api::{
    quantity::{self, amount_of},
    v1beta2 as api,
};
use switchyard_scheduler::{self as engine, Amount, LocalQueueKey, Name};

use super::{name_of, names, selector};

pub(super) fn cluster_queue(queue: &api::ClusterQueue) -> engine::ClusterQueue {
    let spec = &queue.spec;
    let checks = spec.admission_checks().iter();
    engine::ClusterQueue {
        name: name_of(queue),
        cohort: reference(spec.cohort_name.as_deref()),
        strategy: match spec.queueing_strategy {
            api::QueueingStrategy::StrictFIFO => engine::QueueingStrategy::StrictFIFO,
            api::QueueingStrategy::BestEffortFIFO => engine::QueueingStrategy::BestEffortFIFO,
        },
        namespace_selector: spec.namespace_selector.as_ref().map(selector::label_selector),
        resource_groups: resource_groups(&spec.resource_groups),
        fungibility: fungibility(&spec.flavor_fungibility),
        preemption: preemption(&spec.preemption),
        admission_checks: checks
            .map(|rule| engine::AdmissionCheckRule {
                name: Name::from(rule.name.as_str()),
                on_flavors: names(&rule.on_flavors),
            })
            .collect(),
        stop_policy: stop_policy(spec.stop_policy),
        fair_weight_milli: weight(spec.fair_sharing.as_ref()),
        admission_scope: match spec.admission_scope.as_ref().map(|scope| scope.admission_mode) {
            Some(api::AdmissionMode::UsageBasedAdmissionFairSharing) => {
                engine::AdmissionScope::UsageBasedAdmissionFairSharing
            }
            Some(api::AdmissionMode::NoAdmissionFairSharing) | None => {
                engine::AdmissionScope::NoAdmissionFairSharing
            }
        },
        deleting: queue.metadata.deletion_timestamp.is_some(),
        last_acceptable: (spec.concurrent_admission_policy.as_ref()).and_then(|policy| {
            reference(policy.migration.constraints.as_ref()?.last_acceptable_flavor_name.as_deref())
        }),
    }
}

pub(super) fn cohort(cohort: &api::Cohort) -> engine::Cohort {
    engine::Cohort {
        name: name_of(cohort),
        parent: reference(cohort.spec.parent_name.as_deref()),
        resource_groups: resource_groups(&cohort.spec.resource_groups),
        fair_weight_milli: weight(cohort.spec.fair_sharing.as_ref()),
    }
}

pub(super) fn local_queue(queue: &api::LocalQueue) -> engine::LocalQueue {
    let namespace = Name::from(queue.metadata.namespace.as_deref().unwrap_or_default());
    engine::LocalQueue {
        key: LocalQueueKey { namespace, name: name_of(queue) },
        cluster_queue: Name::from(queue.spec.cluster_queue.as_deref().unwrap_or_default()),
        stop_policy: stop_policy(queue.spec.stop_policy),
        fair_weight_milli: weight(queue.spec.fair_sharing.as_ref()),
        deleting: queue.metadata.deletion_timestamp.is_some(),
    }
}

pub(super) fn resource_flavor(flavor: &api::ResourceFlavor) -> engine::ResourceFlavor {
    engine::ResourceFlavor {
        name: name_of(flavor),
        node_labels: flavor.spec.node_labels.clone(),
        node_taints: flavor.spec.node_taints.iter().filter_map(selector::taint).collect(),
        tolerations: flavor.spec.tolerations.iter().map(selector::toleration).collect(),
        topology_name: reference(flavor.spec.topology_name.as_deref()),
    }
}

/// Label keys of a Topology's levels, the highest first.
pub(super) fn levels(topology: &api::Topology) -> Vec<Name> {
    topology.spec.levels.iter().map(|level| Name::from(level.node_label.as_str())).collect()
}

fn reference(name: Option<&str>) -> Option<Name> {
    name.filter(|name| !name.is_empty()).map(Name::from)
}

fn resource_groups(groups: &[api::ResourceGroup]) -> Vec<engine::ResourceGroup> {
    let quota = |resource: &api::ResourceQuota| {
        let amount = |quantity: &Quantity| Amount::new(amount_of(&resource.name, quantity));
        let quota = engine::Quota {
            nominal: amount(&resource.nominal_quota),
            borrowing_limit: resource.borrowing_limit.as_ref().map(amount),
            lending_limit: resource.lending_limit.as_ref().map(amount),
        };
        (Name::from(resource.name.as_str()), quota)
    };
    let flavor = |flavor: &api::FlavorQuotas| engine::FlavorQuotas {
        name: Name::from(flavor.name.as_str()),
        resources: flavor.resources.iter().map(quota).collect(),
    };
    let group = |group: &api::ResourceGroup| engine::ResourceGroup {
        covered_resources: names(&group.covered_resources),
        flavors: group.flavors.iter().map(flavor).collect(),
    };
    groups.iter().map(group).collect()
}

fn stop_policy(policy: api::StopPolicy) -> engine::StopPolicy {
    match policy {
        api::StopPolicy::None => engine::StopPolicy::None,
        api::StopPolicy::Hold => engine::StopPolicy::Hold,
        api::StopPolicy::HoldAndDrain => engine::StopPolicy::HoldAndDrain,
    }
}

/// The weight in thousandths. 1,000 if it is missing or malformed.
fn weight(sharing: Option<&api::FairSharing>) -> i64 {
    let weight = sharing.and_then(|sharing| sharing.weight.as_ref());
    weight.map_or(1000, |weight| {
        quantity::parse(&weight.0).map_or(1000, quantity::Exact::milli_value)
    })
}

fn fungibility(fungibility: &api::FlavorFungibility) -> engine::FlavorFungibility {
    let policy = |policy| match policy {
        api::FlavorFungibilityPolicy::MayStopSearch => engine::FungibilityPolicy::MayStopSearch,
        api::FlavorFungibilityPolicy::TryNextFlavor => engine::FungibilityPolicy::TryNextFlavor,
    };
    engine::FlavorFungibility {
        when_can_borrow: policy(fungibility.when_can_borrow),
        when_can_preempt: policy(fungibility.when_can_preempt),
        preference: match fungibility.preference {
            Some(api::FlavorFungibilityPreference::PreemptionOverBorrowing) => {
                engine::FungibilityPreference::PreemptionOverBorrowing
            }
            Some(api::FlavorFungibilityPreference::BorrowingOverPreemption) | None => {
                engine::FungibilityPreference::BorrowingOverPreemption
            }
        },
    }
}

fn preemption(preemption: &api::ClusterQueuePreemption) -> engine::PreemptionRules {
    use engine::PreemptionPolicy as Policy;
    engine::PreemptionRules {
        within_cluster_queue: match preemption.within_cluster_queue {
            api::WithinClusterQueue::Never => Policy::Never,
            api::WithinClusterQueue::LowerPriority => Policy::LowerPriority,
            api::WithinClusterQueue::LowerOrNewerEqualPriority => Policy::LowerOrNewerEqualPriority,
        },
        reclaim_within_cohort: match preemption.reclaim_within_cohort {
            api::ReclaimWithinCohort::Never => Policy::Never,
            api::ReclaimWithinCohort::LowerPriority => Policy::LowerPriority,
            api::ReclaimWithinCohort::Any => Policy::Any,
        },
        borrow_within_cohort: engine::BorrowWithinCohort {
            policy: match preemption.borrow_within_cohort.policy {
                api::BorrowWithinCohortPolicy::Never => Policy::Never,
                api::BorrowWithinCohortPolicy::LowerPriority => Policy::LowerPriority,
            },
            max_priority_threshold: preemption.borrow_within_cohort.max_priority_threshold,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_queue_keeps_order_units_and_defaults() {
        let queue: api::ClusterQueue = serde_json::from_value(serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
            "spec": {
                "cohortName": "", "namespaceSelector": {},
                "resourceGroups": [{
                    "coveredResources": ["cpu", "memory"],
                    "flavors": [
                        {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "1500m"}, {"name": "memory", "nominalQuota": "1.5Gi"}]},
                        {"name": "on-demand", "resources": [{"name": "cpu", "nominalQuota": 2}, {"name": "memory", "nominalQuota": "1G", "borrowingLimit": "1"}]}
                    ]
                }],
                "stopPolicy": "Hold", "fairSharing": {"weight": "0.5"}
            }
        }))
        .unwrap();
        let queue = cluster_queue(&queue);
        assert_eq!(queue.cohort, None, "an empty name is none");
        assert_eq!(queue.stop_policy, engine::StopPolicy::Hold);
        assert_eq!(queue.fair_weight_milli, 500);
        let quotas: Vec<String> = queue.resource_groups[0]
            .flavors
            .iter()
            .flat_map(|flavor| {
                flavor
                    .resources
                    .iter()
                    .map(move |(name, quota)| format!("{} {name} {}", flavor.name, quota.nominal))
            })
            .collect();
        assert_eq!(
            quotas,
            [
                "spot cpu 1500",
                "spot memory 1610612736",
                "on-demand cpu 2000",
                "on-demand memory 1000000000"
            ]
        );
    }
}
