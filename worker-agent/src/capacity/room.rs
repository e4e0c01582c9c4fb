//! Free amounts of the nodes of each flavor, as counted bins. Pure.
//!
//! # Guarantees
//! - A report never exceeds what nodes have: amounts are rounded down, and bins that are merged get
//!   the smallest amounts of their nodes.
//! - Without merged bins an amount is understated by less than 1/128. Merging keeps the largest
//!   nodes apart, and rounds the others down further: first to 1/16, 1/8, 1/4 and 1/2, then to the
//!   smallest of them.
//! - The bounds of [`switchyard_proto::room`] hold: the rest of flavors, bins and resources is left
//!   out.
//! - A flavor is `coarse` once bins are merged, or nodes, bins or resources are left out. Otherwise
//!   each open node is in a bin, less the 1/128.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use switchyard_api::v1beta2::ResourceFlavor;
use switchyard_controller::engine::convert::nodes::taints_beyond;
use switchyard_controller::stores::FreeNode;
use switchyard_proto::room::{
    MAX_ALL_BINS, MAX_AMOUNT, MAX_BINS, MAX_FLAVORS, MAX_RESOURCES, MAX_TAINTS,
};
use switchyard_proto::v1;

/// Resources that are reported before others.
const FIRST: [&str; 4] = ["pods", "cpu", "memory", "ephemeral-storage"];

/// Significant bits of a reported amount, and fewer while there are too many different nodes.
const BITS: [u32; 5] = [8, 5, 4, 3, 2];

type Amounts = BTreeMap<String, i64>;

/// Key, value and effect of the taints for which pods of a flavor need a toleration of their own.
type OwnTaints = BTreeSet<(String, String, String)>;

/// The room of each flavor that has nodes. A flavor without any is left out: an autoscaler may add
/// the first, or its quota is not one of nodes.
pub(super) fn rooms(nodes: &[FreeNode], flavors: &[Arc<ResourceFlavor>]) -> Vec<v1::FlavorRoom> {
    let named = |flavor: &ResourceFlavor| flavor.metadata.name.clone().unwrap_or_default();
    let mut sorted: Vec<&ResourceFlavor> = flavors.iter().map(Arc::as_ref).collect();
    sorted.sort_by_cached_key(|flavor| named(flavor));
    let labelled = sorted.into_iter().filter_map(|flavor| {
        let has = |(index, node): (usize, &FreeNode)| {
            node.has_labels(&flavor.spec.node_labels).then_some(index)
        };
        let nodes: Vec<usize> = nodes.iter().enumerate().filter_map(has).collect();
        (!nodes.is_empty()).then_some((flavor, nodes))
    });
    let labelled: Vec<_> = labelled.take(MAX_FLAVORS).collect();
    let mut flavors_of = vec![0_usize; nodes.len()];
    labelled.iter().flat_map(|(_, nodes)| nodes).for_each(|node| flavors_of[*node] += 1);
    let most = MAX_BINS.min(MAX_ALL_BINS / labelled.len().max(1));
    let room = |(flavor, own): &(&ResourceFlavor, Vec<usize>)| {
        let open = own.iter().map(|index| &nodes[*index]).filter(|node| node.takes_pods());
        let mut leaves_out = false;
        let mut reported_nodes = Vec::new();
        for node in open {
            let Some(free) = reported(&node.free) else { continue };
            let taints = own_taints(&taints_beyond(node.taints(), flavor));
            leaves_out |= taints.is_none() || free.len() < node.free.len();
            reported_nodes.extend(taints.map(|taints| (taints, free)));
        }
        let (bins, is_merged) = bins(&reported_nodes, most);
        v1::FlavorRoom {
            flavor: named(flavor),
            bins,
            shared: own.iter().any(|node| flavors_of[*node] > 1),
            coarse: leaves_out || is_merged,
        }
    };
    labelled.iter().map(room).collect()
}

/// The taints for which pods need a toleration of their own. `None` if there are too many.
fn own_taints(taints: &[&Taint]) -> Option<OwnTaints> {
    let own = |taint: &&Taint| {
        (taint.key.clone(), taint.value.clone().unwrap_or_default(), taint.effect.clone())
    };
    let own: OwnTaints = taints.iter().map(own).collect();
    (own.len() <= MAX_TAINTS).then_some(own)
}

/// Counts equal nodes, in at most so many bins. Returns also whether bins were merged or dropped
/// for that.
fn bins(nodes: &[(OwnTaints, Amounts)], most: usize) -> (Vec<v1::NodeBin>, bool) {
    let mut counted: BTreeMap<(&OwnTaints, Amounts), u32> = BTreeMap::new();
    let mut is_merged = false;
    for bits in BITS {
        is_merged |= bits < BITS[0];
        counted.clear();
        for (taints, free) in nodes {
            let rounded = free.iter().map(|(name, amount)| (name.clone(), round(*amount, bits)));
            *counted.entry((taints, rounded.collect())).or_default() += 1;
        }
        if counted.len() <= most {
            break;
        }
    }
    let mut bins: Vec<_> = counted.into_iter().collect();
    // Nodes that any pod may use come first.
    bins.sort_by_cached_key(|((taints, free), _)| (taints.len(), Reverse(size(free))));
    let rest = bins.split_off(bins.len().min(most));
    if let Some(((taints, free), count)) = bins.last_mut() {
        // The last bin stands for all smaller nodes with its taints too.
        for ((_, other), nodes) in rest.into_iter().filter(|((other, _), _)| other == taints) {
            *count = count.saturating_add(nodes);
            free.retain(|name, _| other.contains_key(name));
            for (name, amount) in free.iter_mut() {
                *amount = (*amount).min(other[name]);
            }
        }
    }
    let bin = |((taints, free), nodes): ((&OwnTaints, Amounts), u32)| v1::NodeBin {
        nodes,
        free: free.into_iter().collect(),
        taints: taints
            .iter()
            .map(|(key, value, effect)| v1::Taint {
                key: key.clone(),
                value: value.clone(),
                effect: effect.clone(),
            })
            .collect(),
    };
    (bins.into_iter().map(bin).collect(), is_merged)
}

/// The amounts to report of a node. `None` if no pod fits any more.
fn reported(free: &Amounts) -> Option<Amounts> {
    let amount = |name: &str| free.get(name).copied().unwrap_or(0).clamp(0, MAX_AMOUNT);
    if free.contains_key("pods") && amount("pods") == 0 {
        return None;
    }
    let is_first = |name: &str| FIRST.contains(&name);
    let first =
        FIRST.iter().filter(|name| free.contains_key(**name)).map(|name| (*name).to_owned());
    let others = free.keys().filter(|name| !is_first(name)).cloned();
    let names = first.chain(others).take(MAX_RESOURCES);
    Some(names.map(|name| (name.clone(), amount(&name))).collect())
}

/// Keeps so many significant bits.
fn round(amount: i64, bits: u32) -> i64 {
    let used = i64::BITS - amount.max(0).leading_zeros();
    let dropped = used.saturating_sub(bits);
    (amount.max(0) >> dropped) << dropped
}

/// Orders nodes by size: devices, then memory, then cpu.
fn size(free: &Amounts) -> (i64, i64, i64) {
    let devices = free.iter().filter(|(name, _)| name.contains('/')).map(|(_, amount)| *amount);
    let of = |name: &str| free.get(name).copied().unwrap_or(0);
    (devices.fold(0, i64::saturating_add), of("memory"), of("cpu"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: &[(&str, &str)], taint: Option<&str>, cpu: i64) -> Value {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let taints: Vec<Value> =
            taint.into_iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        json!({
            "metadata": {"labels": labels}, "spec": {"taints": taints},
            "status": {
                "allocatable": {"cpu": format!("{cpu}m")},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    fn cordoned(mut node: Value) -> Value {
        node["spec"]["unschedulable"] = true.into();
        node
    }

    fn free(nodes: impl IntoIterator<Item = Value>) -> Vec<FreeNode> {
        let stores = switchyard_controller::stores::Stores::for_nodes();
        for (number, mut node) in nodes.into_iter().enumerate() {
            node["metadata"]["name"] = format!("n{number}").into();
            stores.nodes.insert(serde_json::from_value(node).unwrap());
        }
        stores.free_nodes()
    }

    fn flavor(name: &str, spec: &Value) -> Arc<ResourceFlavor> {
        let flavor = json!({"metadata": {"name": name}, "spec": spec});
        Arc::new(serde_json::from_value(flavor).unwrap())
    }

    fn text(rooms: &[v1::FlavorRoom]) -> Vec<String> {
        let bin = |bin: &v1::NodeBin| {
            let taints: String = bin.taints.iter().map(|taint| format!("!{}", taint.key)).collect();
            format!("{}x{}{taints}", bin.nodes, bin.free["cpu"])
        };
        let text = |room: &v1::FlavorRoom| {
            let bins: Vec<String> = room.bins.iter().map(bin).collect();
            let shared = if room.shared { " shared" } else { "" };
            let coarse = if room.coarse { " coarse" } else { "" };
            format!("{}: {}{shared}{coarse}", room.flavor, bins.join(" "))
        };
        rooms.iter().map(text).collect()
    }

    #[test]
    fn labels_and_taints_decide_which_nodes_count() {
        let spot = [("tier", "spot")];
        let nodes = free([
            node(&spot, None, 1_000),
            node(&spot, None, 1_000),
            node(&spot, Some("gpu"), 2_000),
            node(&[("tier", "closed")], Some("other"), 4_000),
            cordoned(node(&[("tier", "closed")], None, 8_000)),
            cordoned(node(&[("tier", "drained")], None, 8_000)),
        ]);
        let labels = |tier: &str| json!({"tier": tier});
        let taint = json!([{"key": "gpu", "effect": "NoSchedule"}]);
        let tolerations = json!([{"key": "other", "operator": "Exists"}]);
        let flavors = [
            flavor("spot", &json!({"nodeLabels": labels("spot")})),
            flavor("gpu", &json!({"nodeLabels": labels("spot"), "nodeTaints": taint})),
            flavor("closed", &json!({"nodeLabels": labels("closed"), "tolerations": tolerations})),
            flavor("drained", &json!({"nodeLabels": labels("drained")})),
            flavor("none", &json!({"nodeLabels": labels("none")})),
        ];
        assert_eq!(
            text(&rooms(&nodes, &flavors)),
            [
                "closed: 1x4000",
                "drained: ",
                "gpu: 1x2000 2x1000 shared",
                "spot: 2x1000 1x2000!gpu shared",
            ]
        );
        assert!(rooms(&[], &[flavor("f", &json!({}))]).is_empty(), "no nodes, nothing known");
    }

    #[test]
    fn many_different_nodes_become_few_bins() {
        let nodes = free((0..5_000).map(|cpu| node(&[], None, 100 + cpu * 7)));
        let rooms = rooms(&nodes, &[flavor("f", &json!({}))]);
        let bins = &rooms[0].bins;
        assert!(bins.len() <= MAX_BINS, "{}", bins.len());
        assert_eq!(bins.iter().map(|bin| bin.nodes).sum::<u32>(), 5_000, "none is lost");
    }

    #[test]
    fn merged_or_dropped_bins_make_a_flavor_coarse() {
        let many = MAX_BINS as i64 + 1;
        let is_coarse =
            |nodes: Vec<Value>| rooms(&free(nodes), &[flavor("f", &json!({}))])[0].coarse;
        let odd = |number: i64| 1_000 + 8 * number;
        let plain = |count: i64| -> Vec<Value> {
            (0..count).map(|number| node(&[], None, odd(number))).collect()
        };
        let tainted = |count: i64| -> Vec<Value> {
            (0..count).map(|number| node(&[], Some(&format!("t{number}")), 1_000)).collect()
        };
        assert!(!is_coarse(plain(many - 1)), "each has a bin");
        assert!(!is_coarse(vec![node(&[], None, 1_000); 5_000]), "equal nodes");
        assert!(is_coarse(plain(many)));
        assert!(!is_coarse(tainted(many - 1)));
        assert!(is_coarse(tainted(many)), "no rounding makes tainted nodes equal");
        assert!(is_coarse([plain(many - 1), tainted(1)].concat()), "the tainted one");

        let mut crowded = node(&[], None, 1_000);
        let taint = |number| json!({"key": format!("t{number}"), "effect": "NoSchedule"});
        crowded["spec"]["taints"] = (0..=MAX_TAINTS).map(taint).collect();
        assert!(is_coarse(vec![crowded]), "too many taints");
        let mut rich = node(&[], None, 1_000);
        for number in 0..MAX_RESOURCES {
            rich["status"]["allocatable"][format!("x/r{number}")] = "1".into();
        }
        assert!(is_coarse(vec![rich]), "too many resources");
    }

    #[test]
    fn report_of_many_flavors_is_within_the_bounds() {
        let nodes = free((0..500).map(|cpu| {
            let taint = format!("t{}", cpu % 40);
            node(&[], Some(&taint), 100 + cpu * 70)
        }));
        let flavors: Vec<_> = (0..100).map(|it| flavor(&format!("f{it}"), &json!({}))).collect();
        let mut capacity = v1::Capacity { rooms: rooms(&nodes, &flavors), ..Default::default() };
        assert_eq!(switchyard_proto::room::check(&mut capacity), 0);
        assert_eq!(capacity.rooms.len(), MAX_FLAVORS);
    }

    proptest! {
        /// Each reported bin stands for nodes that have at least its amounts: matched largest first.
        #[test]
        fn report_never_exceeds_what_nodes_have(
            cpus in proptest::collection::vec((0_i64..1 << 20, 0_i64..9), 0..200)
        ) {
            let free: Vec<Amounts> = cpus
                .iter()
                .map(|(cpu, gpu)| [("cpu".to_owned(), *cpu), ("x/gpu".to_owned(), *gpu)].into())
                .collect();
            let nodes: Vec<_> = free.iter().map(|it| (OwnTaints::new(), it.clone())).collect();
            let (bins, _) = bins(&nodes, MAX_BINS);
            prop_assert!(bins.len() <= MAX_BINS);
            prop_assert_eq!(bins.iter().map(|bin| bin.nodes as usize).sum::<usize>(), free.len());
            // Every pair of amounts is on as many nodes as reported, at least.
            for bin in &bins {
                let has = |free: &dyn Fn(&str) -> i64| {
                    free("cpu") >= bin.free["cpu"] && free("x/gpu") >= bin.free["x/gpu"]
                };
                let reported: u32 = bins
                    .iter()
                    .filter(|it| has(&|name| it.free[name]))
                    .map(|it| it.nodes)
                    .sum();
                let real = free.iter().filter(|it| has(&|name| it[name])).count();
                prop_assert!(reported as usize <= real, "{bin:?}: {reported} reported, {real} real");
            }
        }

        #[test]
        fn rounding_loses_less_than_its_bits(amount in 0_i64..i64::MAX, bits in 2_u32..9) {
            let rounded = round(amount, bits);
            prop_assert!(rounded <= amount);
            prop_assert!(i128::from(amount - rounded) << (bits - 1) <= i128::from(amount));
        }
    }
}
