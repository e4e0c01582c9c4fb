//! Kueue objects as JSON, converted to the engine's.

use std::collections::BTreeMap;

use serde_json::Value;
use switchyard_scheduler::{
    AdmissionCheck, AdmissionCheckRule, AdmissionFairSharing, AdmissionScope, BorrowWithinCohort,
    ClusterQueue, Cohort, FlavorFungibility, FlavorQuotas, FungibilityPolicy,
    FungibilityPreference, LabelSelector, LocalQueue, LocalQueueKey, Name, PodSet,
    PreemptionPolicy, PreemptionRules, QueueingStrategy, Quota, ResourceFlavor, ResourceGroup,
    StopPolicy, Taint, TaintEffect, Time, Toleration, TolerationOperator, Workload, WorkloadKey,
};

use crate::{quantity, topology};

pub(crate) type Read<T> = Result<T, String>;

/// The elements of a list; none if it is missing.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn name(object: &Value) -> Read<Name> {
    text(&object["metadata"]["name"]).map(Name::from)
}

pub(crate) fn text(value: &Value) -> Read<&str> {
    value.as_str().ok_or_else(|| format!("{value} should be text"))
}

pub(crate) fn int32(value: &Value) -> Read<i32> {
    value
        .as_i64()
        .and_then(|n| i32::try_from(n).ok())
        .ok_or_else(|| format!("{value} should be a number"))
}

pub(crate) fn labels(value: &Value) -> Read<BTreeMap<String, String>> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, value)| Ok((key.clone(), text(value)?.to_owned()))).collect()
}

fn effect(value: &Value) -> Read<Option<TaintEffect>> {
    match value.as_str() {
        None | Some("") => Ok(None),
        Some("NoSchedule") => Ok(Some(TaintEffect::NoSchedule)),
        Some("PreferNoSchedule") => Ok(Some(TaintEffect::PreferNoSchedule)),
        Some("NoExecute") => Ok(Some(TaintEffect::NoExecute)),
        Some(other) => Err(format!("unknown taint effect {other}")),
    }
}

pub(crate) fn tolerations(value: &Value) -> Read<Vec<Toleration>> {
    let of = |key: &Value| key.as_str().unwrap_or_default().to_owned();
    list(value)
        .iter()
        .map(|t| {
            Ok(Toleration {
                key: of(&t["key"]),
                operator: match t["operator"].as_str() {
                    Some("Exists") => TolerationOperator::Exists,
                    _ => TolerationOperator::Equal,
                },
                value: of(&t["value"]),
                effect: effect(&t["effect"])?,
            })
        })
        .collect()
}

pub(crate) fn taints(value: &Value) -> Read<Vec<Taint>> {
    let taint = |t: &Value| -> Read<Taint> {
        Ok(Taint {
            key: text(&t["key"])?.to_owned(),
            value: t["value"].as_str().unwrap_or_default().to_owned(),
            effect: effect(&t["effect"])?.ok_or("a taint needs an effect")?,
        })
    };
    list(value).iter().map(taint).collect()
}

pub(crate) fn resource_flavor(object: &Value) -> Read<ResourceFlavor> {
    let spec = &object["spec"];
    Ok(ResourceFlavor {
        name: name(object)?,
        node_labels: labels(&spec["nodeLabels"])?,
        node_taints: taints(&spec["nodeTaints"])?,
        tolerations: tolerations(&spec["tolerations"])?,
        topology_name: spec["topologyName"].as_str().map(Name::from),
    })
}

fn resource_groups(value: &Value) -> Read<Vec<ResourceGroup>> {
    list(value)
        .iter()
        .map(|group| {
            let covered = list(&group["coveredResources"]);
            Ok(ResourceGroup {
                covered_resources: covered
                    .iter()
                    .map(|r| Ok(text(r)?.into()))
                    .collect::<Read<_>>()?,
                flavors: list(&group["flavors"]).iter().map(flavor_quotas).collect::<Read<_>>()?,
            })
        })
        .collect()
}

fn flavor_quotas(flavor: &Value) -> Read<FlavorQuotas> {
    let quota = |resource: &Value| -> Read<(Name, Quota)> {
        let name = text(&resource["name"])?;
        let limit =
            |value: &Value| value.as_str().map(|limit| quantity::amount(name, limit)).transpose();
        let quota = Quota {
            nominal: quantity::amount(name, text(&resource["nominalQuota"])?)?,
            borrowing_limit: limit(&resource["borrowingLimit"])?,
            lending_limit: limit(&resource["lendingLimit"])?,
        };
        Ok((name.into(), quota))
    };
    Ok(FlavorQuotas {
        name: text(&flavor["name"])?.into(),
        resources: list(&flavor["resources"]).iter().map(quota).collect::<Read<_>>()?,
    })
}

fn weight(spec: &Value) -> Read<i64> {
    spec["fairSharing"]["weight"].as_str().map_or(Ok(1000), quantity::milli)
}

pub(crate) fn cohort(object: &Value) -> Read<Cohort> {
    let spec = &object["spec"];
    Ok(Cohort {
        name: name(object)?,
        parent: spec["parentName"].as_str().map(Name::from),
        resource_groups: resource_groups(&spec["resourceGroups"])?,
        fair_weight_milli: weight(spec)?,
    })
}

pub(crate) fn cluster_queue(object: &Value) -> Read<ClusterQueue> {
    let spec = &object["spec"];
    Ok(ClusterQueue {
        cohort: spec["cohortName"].as_str().map(Name::from),
        strategy: match spec["queueingStrategy"].as_str() {
            Some("StrictFIFO") => QueueingStrategy::StrictFIFO,
            _ => QueueingStrategy::BestEffortFIFO,
        },
        namespace_selector: selector(&spec["namespaceSelector"])?,
        resource_groups: resource_groups(&spec["resourceGroups"])?,
        fungibility: fungibility(&spec["flavorFungibility"]),
        preemption: preemption(&spec["preemption"])?,
        stop_policy: stop_policy(spec),
        fair_weight_milli: weight(spec)?,
        admission_scope: match spec["admissionScope"]["admissionMode"].as_str() {
            Some("UsageBasedAdmissionFairSharing") => {
                AdmissionScope::UsageBasedAdmissionFairSharing
            }
            _ => AdmissionScope::default(),
        },
        admission_checks: list(&spec["admissionChecksStrategy"]["admissionChecks"])
            .iter()
            .map(check_rule)
            .collect::<Read<_>>()?,
        ..ClusterQueue::new(name(object)?)
    })
}

fn selector(value: &Value) -> Read<Option<LabelSelector>> {
    match value {
        Value::Null => Ok(None),
        value if value["matchExpressions"].is_array() => {
            Err("matchExpressions are not read here".to_owned())
        }
        value => {
            let match_labels = labels(&value["matchLabels"])?;
            Ok(Some(LabelSelector { match_labels, ..LabelSelector::default() }))
        }
    }
}

fn fungibility(value: &Value) -> FlavorFungibility {
    let policy = |value: &Value, default| match value.as_str() {
        Some("TryNextFlavor") => FungibilityPolicy::TryNextFlavor,
        Some("MayStopSearch" | "Borrow" | "Preempt") => FungibilityPolicy::MayStopSearch,
        _ => default,
    };
    let default = FlavorFungibility::default();
    FlavorFungibility {
        when_can_borrow: policy(&value["whenCanBorrow"], default.when_can_borrow),
        when_can_preempt: policy(&value["whenCanPreempt"], default.when_can_preempt),
        preference: match value["preference"].as_str() {
            Some("PreemptionOverBorrowing") => FungibilityPreference::PreemptionOverBorrowing,
            _ => FungibilityPreference::BorrowingOverPreemption,
        },
    }
}

fn preemption(value: &Value) -> Read<PreemptionRules> {
    let policy = |value: &Value| match value.as_str() {
        None | Some("Never") => Ok(PreemptionPolicy::Never),
        Some("LowerPriority") => Ok(PreemptionPolicy::LowerPriority),
        Some("LowerOrNewerEqualPriority") => Ok(PreemptionPolicy::LowerOrNewerEqualPriority),
        Some("Any") => Ok(PreemptionPolicy::Any),
        Some(other) => Err(format!("unknown preemption policy {other}")),
    };
    let borrow = &value["borrowWithinCohort"];
    let threshold = &borrow["maxPriorityThreshold"];
    Ok(PreemptionRules {
        within_cluster_queue: policy(&value["withinClusterQueue"])?,
        reclaim_within_cohort: policy(&value["reclaimWithinCohort"])?,
        borrow_within_cohort: BorrowWithinCohort {
            policy: policy(&borrow["policy"])?,
            max_priority_threshold: if threshold.is_null() {
                None
            } else {
                Some(int32(threshold)?)
            },
        },
    })
}

fn check_rule(rule: &Value) -> Read<AdmissionCheckRule> {
    let on_flavors = list(&rule["onFlavors"]).iter().map(|flavor| text(flavor).map(Name::from));
    Ok(AdmissionCheckRule {
        name: text(&rule["name"])?.into(),
        on_flavors: on_flavors.collect::<Read<_>>()?,
    })
}

pub(crate) fn admission_check(object: &Value) -> Read<AdmissionCheck> {
    let is_active =
        |condition: &Value| condition["type"] == "Active" && condition["status"] == "True";
    Ok(AdmissionCheck {
        name: name(object)?,
        controller: text(&object["spec"]["controllerName"])?.to_owned(),
        active: list(&object["status"]["conditions"]).iter().any(is_active),
    })
}

pub(crate) fn local_queue(object: &Value) -> Read<LocalQueue> {
    let key = LocalQueueKey::new(text(&object["metadata"]["namespace"])?, name(object)?);
    let spec = &object["spec"];
    let queue = LocalQueue::new(key, text(&spec["clusterQueue"])?);
    Ok(LocalQueue { stop_policy: stop_policy(spec), fair_weight_milli: weight(spec)?, ..queue })
}

/// The past usage in a LocalQueue's status.
pub(crate) fn past_usage(object: &Value) -> Read<Option<BTreeMap<Name, i128>>> {
    let status =
        &object["status"]["fairSharing"]["admissionFairSharingStatus"]["consumedResources"];
    let Some(consumed) = status.as_object() else { return Ok(None) };
    let each = consumed
        .iter()
        .map(|(name, amount)| Ok((Name::from(name.as_str()), quantity::nanos(text(amount)?)?)));
    each.collect::<Read<_>>().map(Some)
}

/// `admissionFairSharing` of the configuration.
pub(crate) fn admission_fair_sharing(section: &Value) -> Read<Option<AdmissionFairSharing>> {
    if section.is_null() {
        return Ok(None);
    }
    let weights = section["resourceWeights"].as_object().into_iter().flatten();
    Ok(Some(AdmissionFairSharing {
        half_life: quantity::seconds(text(&section["usageHalfLifeTime"])?)?,
        sampling_interval: quantity::seconds(text(&section["usageSamplingInterval"])?)?,
        resource_weights: weights
            .map(|(name, weight)| {
                Ok((Name::from(name.as_str()), weight.as_f64().ok_or("a weight is a number")?))
            })
            .collect::<Read<_>>()?,
    }))
}

fn stop_policy(spec: &Value) -> StopPolicy {
    match spec["stopPolicy"].as_str() {
        Some("Hold") => StopPolicy::Hold,
        Some("HoldAndDrain") => StopPolicy::HoldAndDrain,
        _ => StopPolicy::None,
    }
}

/// The workload's uid is its name.
pub(crate) fn workload(object: &Value) -> Read<Workload> {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let key = WorkloadKey::new(text(&metadata["namespace"])?, name(object)?);
    let created: Time = quantity::time(text(&metadata["creationTimestamp"])?)?;
    let uid = key.name.clone();
    Ok(Workload {
        priority: if spec["priority"].is_null() { 0 } else { int32(&spec["priority"])? },
        owned_by_pod: is_owned_by_pod(&metadata["ownerReferences"]),
        active: spec["active"].as_bool().unwrap_or(true),
        pod_sets: list(&spec["podSets"]).iter().map(pod_set).collect::<Read<_>>()?,
        ..Workload::new(key, uid, text(&spec["queueName"])?, created)
    })
}

fn is_owned_by_pod(owners: &Value) -> bool {
    matches!(list(owners), [owner] if owner["kind"] == "Pod")
}

fn pod_set(value: &Value) -> Read<PodSet> {
    let pod = &value["template"]["spec"];
    Ok(PodSet {
        min_count: if value["minCount"].is_null() {
            None
        } else {
            Some(int32(&value["minCount"])?)
        },
        requests: topology::pod_requests(pod)?,
        node_selector: labels(&pod["nodeSelector"])?,
        affinity: topology::affinity(pod)?,
        topology: topology::request(&value["topologyRequest"])?,
        tolerations: tolerations(&pod["tolerations"])?,
        ..PodSet::new(text(&value["name"])?, int32(&value["count"])?)
    })
}

/// `status.reclaimablePods` of a workload.
pub(crate) fn reclaimable(value: &Value) -> Read<BTreeMap<Name, i32>> {
    list(value)
        .iter()
        .map(|pods| Ok((text(&pods["name"])?.into(), int32(&pods["count"])?)))
        .collect()
}
