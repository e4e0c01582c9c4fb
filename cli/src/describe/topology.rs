//! The topologies of a queue's flavors: free and used capacity by domain.

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use switchyard_api::v1beta2::{ClusterQueue, ResourceFlavor};
use switchyard_controller::engine::load;
use switchyard_controller::stores::Stores;
use switchyard_scheduler::{DomainView, Name, TopologyView};

use crate::explain::AssumedConfig;
use crate::output::counted;
use crate::table;

/// Domains that are printed. If there are more, the lowest levels are left out; JSON has all.
const SHOWN: usize = 60;

/// The topology of one flavor.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlavorTopology {
    flavor: String,
    topology: String,
    /// Label keys, highest level first.
    levels: Vec<String>,
    /// Each domain before its children.
    domains: Vec<Domain>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Domain {
    /// Index of the level.
    level: usize,
    /// Label values, highest level first.
    values: Vec<String>,
    resources: Vec<Amounts>,
}

/// Kubernetes quantities.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Amounts {
    resource: String,
    free: String,
    allocatable: String,
    /// Used by workloads that the topology placed.
    workloads: String,
    /// Used by other pods.
    others: String,
}

impl FlavorTopology {
    pub(super) fn new(flavor: &str, view: &TopologyView) -> Self {
        Self {
            flavor: flavor.to_owned(),
            topology: view.topology.to_string(),
            levels: view.levels.iter().map(Name::to_string).collect(),
            domains: view.domains.iter().map(Domain::new).collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let at = |level: usize| self.domains.iter().filter(move |domain| domain.level <= level);
        let deepest = (0..self.levels.len())
            .take_while(|level| *level == 0 || at(*level).count() <= SHOWN)
            .last()
            .unwrap_or_default();
        let mut out = format!(
            "\nTopology {} of flavor {}, by {}:\n",
            self.topology,
            self.flavor,
            self.levels.join(" / ")
        );
        let rows: Vec<_> = at(deepest).take(SHOWN).flat_map(Domain::rows).collect();
        let headings = ["DOMAIN", "RESOURCE", "FREE", "ALLOCATABLE", "WORKLOADS", "OTHER PODS"];
        out.push_str(&table::render(headings, &rows));
        let left = self.domains.len() - at(deepest).take(SHOWN).count();
        if left > 0 {
            out.push_str(&format!("and {}; -o json has all\n", counted(left, "more domain")));
        }
        out
    }
}

impl Domain {
    fn new(domain: &DomainView) -> Self {
        let amounts = domain.amounts.iter().map(|(resource, amounts)| Amounts {
            resource: resource.to_string(),
            free: amounts.free.format(resource),
            allocatable: amounts.allocatable.format(resource),
            workloads: amounts.workloads.format(resource),
            others: amounts.others.format(resource),
        });
        Self {
            level: domain.level,
            values: domain.values.iter().map(Name::to_string).collect(),
            resources: amounts.collect(),
        }
    }

    /// One row for each resource, the first with the domain's name.
    fn rows(&self) -> Vec<[String; 6]> {
        let indent = "  ".repeat(self.level);
        let name = format!("{indent}{}", self.values.last().map_or("", String::as_str));
        let row = |(at, amounts): (usize, &Amounts)| {
            [
                if at == 0 { name.clone() } else { String::new() },
                amounts.resource.clone(),
                amounts.free.clone(),
                amounts.allocatable.clone(),
                amounts.workloads.clone(),
                amounts.others.clone(),
            ]
        };
        self.resources.iter().enumerate().map(row).collect()
    }
}

/// The topologies of the queue's flavors. Reads nothing more where no flavor has one.
///
/// # Errors
/// When the objects that placement depends on cannot be listed.
pub(super) async fn read(
    client: &Client,
    queue: &ClusterQueue,
) -> anyhow::Result<Vec<FlavorTopology>> {
    let flavors: Api<ResourceFlavor> = Api::all(client.clone());
    let flavors = flavors.list(&ListParams::default()).await?;
    let own = |name: &str| {
        let mut quotas = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
        quotas.any(|quota| quota.name == name)
    };
    let placed: Vec<String> = flavors
        .items
        .iter()
        .filter(|flavor| flavor.spec.topology_name.is_some() && own(&flavor.name_any()))
        .map(ResourceFlavor::name_any)
        .collect();
    if placed.is_empty() {
        return Ok(Vec::new());
    }
    let stores = Stores::default();
    load::read_lists(client, &stores).await?;
    let settings = AssumedConfig::of(None, &stores);
    let engine = load::build_engine(&stores, &settings.config, Timestamp::now());
    let view = |flavor: &String| Some(FlavorTopology::new(flavor, &engine.topology(flavor)?));
    Ok(placed.iter().filter_map(view).collect())
}
