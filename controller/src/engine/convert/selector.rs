//! Converts selectors, taints and tolerations of Kubernetes into the engine's.

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1 as meta};
use switchyard_scheduler as engine;

pub(super) fn label_selector(selector: &meta::LabelSelector) -> engine::LabelSelector {
    let expressions = selector.match_expressions.iter().flatten();
    engine::LabelSelector {
        match_labels: super::labels(selector.match_labels.as_ref()),
        match_expressions: expressions
            .map(|expression| {
                requirement(&expression.key, &expression.operator, expression.values.as_deref())
            })
            .collect(),
    }
}

/// The required node affinity of a pod. One of its terms must match.
pub(super) fn affinity(affinity: Option<&core::Affinity>) -> Vec<engine::NodeSelectorTerm> {
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let requirements = |list: Option<&Vec<core::NodeSelectorRequirement>>| {
        list.into_iter()
            .flatten()
            .map(|each| requirement(&each.key, &each.operator, each.values.as_deref()))
            .collect()
    };
    let term = |term: &core::NodeSelectorTerm| engine::NodeSelectorTerm {
        match_expressions: requirements(term.match_expressions.as_ref()),
        match_fields: requirements(term.match_fields.as_ref()),
    };
    required.into_iter().flat_map(|selector| &selector.node_selector_terms).map(term).collect()
}

fn requirement(key: &str, operator: &str, values: Option<&[String]>) -> engine::Requirement {
    let operator = match operator {
        "In" => engine::Operator::In,
        "NotIn" => engine::Operator::NotIn,
        "Exists" => engine::Operator::Exists,
        "DoesNotExist" => engine::Operator::DoesNotExist,
        "Gt" => engine::Operator::Gt,
        "Lt" => engine::Operator::Lt,
        // The API server rejects unknown operators. Here an unknown one matches nothing.
        _ => {
            return engine::Requirement {
                key: key.to_owned(),
                operator: engine::Operator::In,
                values: Vec::new(),
            };
        }
    };
    engine::Requirement {
        key: key.to_owned(),
        operator,
        values: values.unwrap_or_default().to_vec(),
    }
}

pub(crate) fn toleration(toleration: &core::Toleration) -> engine::Toleration {
    engine::Toleration {
        key: toleration.key.clone().unwrap_or_default(),
        operator: match toleration.operator.as_deref() {
            Some("Exists") => engine::TolerationOperator::Exists,
            _ => engine::TolerationOperator::Equal,
        },
        value: toleration.value.clone().unwrap_or_default(),
        effect: toleration.effect.as_deref().and_then(effect),
    }
}

/// `None` if Kubernetes does not know the taint's effect.
pub(crate) fn taint(taint: &core::Taint) -> Option<engine::Taint> {
    Some(engine::Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: effect(&taint.effect)?,
    })
}

fn effect(effect: &str) -> Option<engine::TaintEffect> {
    match effect {
        "NoSchedule" => Some(engine::TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(engine::TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(engine::TaintEffect::NoExecute),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_operator_matches_nothing() {
        let selector = label_selector(&meta::LabelSelector {
            match_expressions: Some(vec![meta::LabelSelectorRequirement {
                key: "a".into(),
                operator: "Resembles".into(),
                values: Some(vec!["b".into()]),
            }]),
            match_labels: None,
        });
        assert!(!selector.matches(&[("a".to_owned(), "b".to_owned())].into()));
        assert!(label_selector(&meta::LabelSelector::default()).matches(&Default::default()));
    }
}
