//! Topology placement in an explanation: a search that found no place, and the domains of a running
//! workload.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use switchyard_api::v1beta2::TopologyAssignment;
use switchyard_controller::engine::convert::nodes::excluded_nodes;
use switchyard_controller::stores::Stores;
use switchyard_scheduler::{BestDomain, Name, PlacementOutlook, Strictness};

use crate::output::counted;
use crate::table;

/// Nodes named for each reason.
const EXAMPLES: usize = 3;
/// Domains of a running pod set that are printed; JSON has all.
const SHOWN: usize = 20;

/// A search for a place that found none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementView {
    pub pod_set: String,
    pub flavor: String,
    pub topology: String,
    /// Label key of the requested level.
    pub level: String,
    /// `Required`, `Preferred` or `Unconstrained`.
    #[serde(serialize_with = "strictness_name")]
    pub strictness: Strictness,
    pub pods: i32,
    /// Slices of pods, each in one domain of a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<SliceView>,
    /// Pods that fit in all domains together.
    pub fits: i32,
    /// The best domain of each level, highest level first.
    pub best: Vec<BestDomainView>,
    /// Nodes that count for the topology.
    pub nodes: usize,
    /// Nodes that take no pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceView {
    pub level: String,
    pub size: i32,
}

/// The domain of one level that takes the most pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BestDomainView {
    pub level: String,
    /// Label values, highest level first.
    pub domain: Vec<String>,
    pub fits: i32,
    /// Pods that do not fit.
    pub missing: i32,
}

/// Nodes that take no pod for one reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOutView {
    pub reason: String,
    pub nodes: usize,
    /// The first few, by name.
    pub examples: Vec<String>,
}

/// Pods by topology domain.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainsView {
    /// Label keys of the values.
    pub levels: Vec<String>,
    pub domains: Vec<PodsInDomainView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodsInDomainView {
    pub values: Vec<String>,
    pub pods: i32,
}

impl PlacementView {
    pub(super) fn new(outlook: &PlacementOutlook, stores: &Stores) -> Self {
        let obstructed = outlook.obstructed.iter().map(|it| LeftOutView {
            reason: it.obstacle.message(),
            nodes: it.leaves,
            examples: it.examples.iter().map(Name::to_string).collect(),
        });
        let best = |best: &BestDomain| BestDomainView {
            level: best.level.to_string(),
            domain: best.values.iter().map(Name::to_string).collect(),
            fits: best.fits.min(outlook.pods),
            missing: outlook.pods.saturating_sub(best.fits).max(0),
        };
        Self {
            pod_set: outlook.pod_set.to_string(),
            flavor: outlook.flavor.to_string(),
            topology: outlook.topology.to_string(),
            level: outlook.level.to_string(),
            strictness: outlook.strictness,
            pods: outlook.pods,
            slice: outlook
                .slice
                .as_ref()
                .map(|slice| SliceView { level: slice.topology.to_string(), size: slice.size }),
            fits: outlook.fits,
            best: outlook.best.iter().map(best).collect(),
            nodes: outlook.leaves,
            left_out: obstructed.chain(uncounted(stores, &outlook.flavor)).collect(),
        }
    }

    /// The change that gives the pods a place.
    pub(super) fn change(&self) -> String {
        let wanted = self.best.iter().find(|best| best.level == self.level);
        match wanted {
            Some(best) if self.strictness == Strictness::Required => format!(
                "one domain of {} takes {}; {} takes {}",
                self.level,
                pods(self.pods),
                best.domain.join("/"),
                best.fits
            ),
            _ => format!(
                "the nodes of flavor {} take {}; all together take {}",
                self.flavor,
                pods(self.pods),
                self.fits
            ),
        }
    }

    pub(super) fn text(&self) -> String {
        let wish = match self.strictness {
            Strictness::Required => format!("in one domain of {}", self.level),
            Strictness::Preferred => format!("in as few domains of {} as possible", self.level),
            Strictness::Unconstrained => "anywhere".to_owned(),
        };
        let slices = self.slice.as_ref().map_or_else(String::new, |slice| {
            format!(", in slices of {} in one domain of {}", slice.size, slice.level)
        });
        let mut out = format!(
            "\nPod set {} finds no place in topology {} (flavor {}): {} {wish}{slices}\n",
            self.pod_set,
            self.topology,
            self.flavor,
            pods(self.pods)
        );
        let row = |best: &BestDomainView| {
            [
                best.level.clone(),
                best.domain.join("/"),
                best.fits.to_string(),
                best.missing.to_string(),
            ]
        };
        let rows: Vec<_> = self.best.iter().map(row).collect();
        if !rows.is_empty() {
            out.push_str(&table::render(["LEVEL", "BEST DOMAIN", "FITS", "LACKS"], &rows));
        }
        out.push_str(&match self.nodes {
            0 => "No node counts for it".to_owned(),
            nodes => format!("{} fit on all {nodes} nodes together", pods(self.fits)),
        });
        out.push_str(if self.left_out.is_empty() { "\n" } else { "; these take no pod:\n" });
        for left_out in &self.left_out {
            let LeftOutView { reason, nodes, examples } = left_out;
            let more = if *nodes > examples.len() { ", ..." } else { "" };
            out.push_str(&format!("  {nodes}: {reason} ({}{more})\n", examples.join(", ")));
        }
        out
    }
}

fn strictness_name<S: Serializer>(it: &Strictness, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(it.name())
}

fn pods(count: i32) -> String {
    counted(usize::try_from(count).unwrap_or(0), "pod")
}

/// Nodes of the flavor that are no leaves of its topology.
fn uncounted(stores: &Stores, flavor: &str) -> Vec<LeftOutView> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, exclusion) in excluded_nodes(stores, flavor) {
        by_reason.entry(exclusion.to_string()).or_default().push(node);
    }
    let view = |(reason, mut examples): (String, Vec<String>)| {
        let nodes = examples.len();
        examples.truncate(EXAMPLES);
        LeftOutView { reason, nodes, examples }
    };
    by_reason.into_iter().map(view).collect()
}

impl DomainsView {
    pub(super) fn new(assignment: &TopologyAssignment) -> Self {
        let domains = assignment
            .domains()
            .map(|domain| PodsInDomainView { values: domain.values, pods: domain.count });
        Self { levels: assignment.levels.clone(), domains: domains.collect() }
    }

    pub(super) fn text(&self, pod_set: &str) -> String {
        let rows: Vec<_> = self
            .domains
            .iter()
            .take(SHOWN)
            .map(|domain| [domain.values.join("/"), domain.pods.to_string()])
            .collect();
        let levels = self.levels.join("/");
        let mut out = format!("\nPlaces of pod set {pod_set}, by {levels}:\n");
        out.push_str(&table::render(["DOMAIN", "PODS"], &rows));
        if let Some(more) = self.domains.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            out.push_str(&format!("and {}\n", counted(more, "more domain")));
        }
        out
    }
}
