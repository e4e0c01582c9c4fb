//! Namespaces with random LimitRanges, and RuntimeClasses, as the API server stores them.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{LimitRange, PodSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Api, api::PostParams};
use serde_json::Value;
use switchyard_e2e::Cluster;
use switchyard_jobs::pod_requests::{RequestDefaults, pod_requests};

use super::cache::CacheProbe;
use super::server::{Amounts, Server};
use super::templates;
use switchyard_e2e::random::Random;

pub(super) struct World {
    pub(super) namespaces: Vec<Namespace>,
    /// Overhead by class.
    overhead: BTreeMap<String, BTreeMap<String, Quantity>>,
}

pub(super) struct Namespace {
    pub(super) name: String,
    defaults: RequestDefaults,
    /// Its LimitRanges give a resource different defaults. The API server takes them in a random order.
    pub(super) is_ambiguous: bool,
    pub(super) limit_ranges: Vec<LimitRange>,
}

impl World {
    /// Returns when the API server has all of it in its caches.
    pub(super) async fn new(
        cluster: &Cluster,
        server: &Server<'_>,
        random: &mut Random,
        namespaces: usize,
    ) -> Self {
        let cache = CacheProbe::begin(cluster, server).await;
        let classes = cluster.apply(templates::runtime_classes()).await.unwrap();
        let class = |object| serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap();
        let with_overhead =
            |class: RuntimeClass| Some((class.metadata.name?, class.overhead?.pod_fixed?));
        let overhead = classes.into_iter().map(class).filter_map(with_overhead).collect();
        let names =
            try_join_all((0..namespaces).map(|_| cluster.namespace("requests"))).await.unwrap();
        let ranges: Vec<Vec<Value>> =
            names.iter().map(|name| templates::limit_ranges(random, name)).collect();
        let create =
            names.iter().zip(&ranges).map(|(name, ranges)| Namespace::new(cluster, name, ranges));
        let namespaces = futures::future::join_all(create).await;
        cache.wait().await;
        Self { namespaces, overhead }
    }

    /// The charge of a pod of this spec.
    pub(super) fn charge(&self, namespace: &Namespace, spec: &Value) -> Result<Amounts, String> {
        let spec: PodSpec =
            serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
        let mut defaults = namespace.defaults.clone();
        defaults.overhead =
            spec.runtime_class_name.as_ref().and_then(|class| self.overhead.get(class)).cloned();
        pod_requests(&spec, &defaults).map_err(|problem| problem.to_string())
    }
}

impl Namespace {
    async fn new(cluster: &Cluster, name: &str, ranges: &[Value]) -> Self {
        let api: Api<LimitRange> = Api::namespaced(cluster.admin.clone(), name);
        let mut stored = Vec::new();
        for range in ranges {
            let range = serde_json::from_value(range.clone()).unwrap();
            match api.create(&PostParams::default(), &range).await {
                Ok(range) => stored.push(range),
                // Some are not valid.
                Err(kube::Error::Api(status)) if status.code == 422 => {}
                Err(error) => panic!("{error}"),
            }
        }
        let defaults = RequestDefaults::of_limit_ranges(&stored);
        Self {
            name: name.to_owned(),
            defaults,
            is_ambiguous: is_ambiguous(&stored),
            limit_ranges: stored,
        }
    }
}

fn is_ambiguous(ranges: &[LimitRange]) -> bool {
    let items =
        || ranges.iter().filter_map(|range| range.spec.as_ref()).flat_map(|spec| &spec.limits);
    let differ = |one: &Option<BTreeMap<String, Quantity>>,
                  other: &Option<BTreeMap<String, Quantity>>| {
        one.iter()
            .flatten()
            .any(|(name, amount)| other.iter().flatten().any(|it| it.0 == name && it.1 != amount))
    };
    items().any(|one| {
        items().any(|other| {
            differ(&one.default, &other.default)
                || differ(&one.default_request, &other.default_request)
        })
    })
}
