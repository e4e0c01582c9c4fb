//! Examples and properties of placement.

mod encoding;
mod kept_counts;
mod laws;
mod outlook;
mod placing;

use std::collections::{BTreeMap, BTreeSet};

use super::place::Placement;
use super::{Assumed, Forest, PlacementOptions, PlacementRequest, Placer, PodFilter};
use crate::{
    Amount, CapacityLeaf, HOSTNAME_LABEL, Name, ResourceFlavor, SliceLayer, Topology,
    TopologyRequest,
};

pub(super) const BLOCK: &str = "block";
pub(super) const RACK: &str = "rack";

/// A leaf of cpu, gpu and many pods: `b1/r1/x1:2` or, with gpus, `b1/r1/x1:2,4`.
pub(super) fn leaf(text: &str, levels: &[&str]) -> CapacityLeaf {
    let (path, amounts) = text.split_once(':').expect("a path and amounts");
    let mut amounts = amounts.split(',').map(|amount| amount.parse().expect("a number"));
    let mut labels: BTreeMap<String, String> = levels
        .iter()
        .zip(path.split('/'))
        .map(|(level, value)| ((*level).to_owned(), value.to_owned()))
        .collect();
    labels.insert("pool".to_owned(), "a".to_owned());
    let amount = |amount: Option<i64>| Amount::new(amount.unwrap_or(0));
    let capacity = [
        ("cpu", amount(amounts.next())),
        ("gpu", amount(amounts.next())),
        ("pods", Amount::new(100)),
    ];
    CapacityLeaf {
        name: path.replace('/', "-").into(),
        labels,
        taints: Vec::new(),
        capacity: capacity.into_iter().map(|(name, amount)| (name.into(), amount)).collect(),
    }
}

/// The flavor `f` with these leaves.
pub(super) fn forest(levels: &[&str], leaves: &str) -> Forest {
    let mut forest = Forest::new(true);
    forest.put_topology(Topology {
        name: "default".into(),
        levels: levels.iter().map(|level| (*level).into()).collect(),
    });
    forest.put_flavor(&flavor("f", "a"));
    for text in leaves.split_whitespace() {
        forest.put_leaf(leaf(text, levels));
    }
    forest
}

pub(super) fn flavor(name: &str, pool: &str) -> ResourceFlavor {
    ResourceFlavor {
        name: name.into(),
        node_labels: BTreeMap::from([("pool".to_owned(), pool.to_owned())]),
        node_taints: Vec::new(),
        tolerations: Vec::new(),
        topology_name: Some("default".into()),
    }
}

pub(super) fn requests(cpu: i64, gpu: i64) -> BTreeMap<Name, Amount> {
    let all = [("cpu", cpu), ("gpu", gpu)];
    all.into_iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|(name, amount)| (name.into(), Amount::new(amount)))
        .collect()
}

/// `required LEVEL`, `preferred LEVEL` or `unconstrained`, then slice layers as `LEVEL=SIZE`, then
/// `group`.
pub(super) fn request(text: &str) -> TopologyRequest {
    let mut request = TopologyRequest::default();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "required" => request.required = words.next().map(Name::from),
            "preferred" => request.preferred = words.next().map(Name::from),
            "unconstrained" => request.unconstrained = Some(true),
            "group" => request.group = Some("group".into()),
            layer => {
                let (topology, size) = layer.split_once('=').expect("a layer");
                let size = size.parse().expect("a size");
                request.slice_layers.push(SliceLayer { topology: topology.into(), size });
            }
        }
    }
    request
}

/// The rendered placement: `x1*2 x3`, or the failure.
pub(super) fn written(placement: &Placement) -> String {
    if let Some((_, failure)) = &placement.failure {
        return failure.to_string();
    }
    let pod_set = |assignment: &Option<crate::TopologyAssignment>| {
        let domains = assignment.iter().flat_map(|assignment| &assignment.domains);
        let texts: Vec<_> =
            domains.map(|domain| format!("{}*{}", domain.values.join("/"), domain.count)).collect();
        texts.join(" ")
    };
    placement.assignments.iter().map(pod_set).collect::<Vec<_>>().join("; ")
}

pub(super) fn place(
    forest: &Forest,
    requests_of_pod_sets: &[PlacementRequest<'_>],
    options: PlacementOptions,
) -> Placement {
    let tree = forest.tree("f").expect("the flavor has a tree");
    Placer { tree, resources: &forest.resources, options }.place(
        requests_of_pod_sets,
        None,
        &mut Assumed::new(),
    )
}

pub(super) fn ask<'a>(
    name: &'a Name,
    count: i32,
    request: &'a TopologyRequest,
    requests: &'a BTreeMap<Name, Amount>,
) -> PlacementRequest<'a> {
    PlacementRequest {
        name,
        count,
        request: Some(request),
        implied: false,
        requests,
        filter: PodFilter::default(),
        bad_update: None,
        previous: None,
        own: None,
        peer: None,
    }
}

pub(super) fn flavors(names: &[Name]) -> BTreeSet<&Name> {
    names.iter().collect()
}

pub(super) const HOSTS: [&str; 3] = [BLOCK, RACK, HOSTNAME_LABEL];
