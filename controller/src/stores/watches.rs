//! Starts the watches that fill the stores.

use std::fmt::Debug;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Pod, PodTemplate};
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use serde::de::DeserializeOwned;
use switchyard_api::{
    autoscaling::ProvisioningRequest,
    devices::{DeviceClass, ResourceClaimTemplate},
    names,
};
use switchyard_config::Configuration;
use switchyard_jobs::{SuspendMode, kind_for};
use switchyard_platform::{
    object::Object,
    optional_crd::CrdBackoff,
    readable::{Readable, edit_readable},
    store::Store,
    watch::{feed, filter_event},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Stores, filters, topology_watch};
use crate::role::Role;

impl Stores {
    /// Starts the watches. They end at `shutdown` only. Errors are logged, retried with backoff,
    /// and visible in [`Stores::watches`].
    pub fn watch(
        &self,
        client: &Client,
        role: Role,
        config: &Configuration,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) {
        fn start<K>(
            store: &Store<K>,
            client: &Client,
            tasks: &mut JoinSet<anyhow::Result<()>>,
            shutdown: &CancellationToken,
        ) where
            K: Resource<DynamicType = ()>
                + Clone
                + DeserializeOwned
                + Debug
                + Send
                + Sync
                + 'static,
        {
            let kind = K::plural(&()).into_owned();
            let api = Api::<Readable<K>>::all(client.clone());
            let watch = watcher(api, watcher::Config::default()).default_backoff();
            tasks.spawn(feed(watch, kind, false, store.clone(), |_| (), shutdown.clone()));
        }
        start(&self.workloads, client, tasks, shutdown);
        start(&self.cluster_queues, client, tasks, shutdown);
        start(&self.local_queues, client, tasks, shutdown);
        start(&self.cohorts, client, tasks, shutdown);
        start(&self.topologies, client, tasks, shutdown);
        start(&self.resource_flavors, client, tasks, shutdown);
        start(&self.workload_priority_classes, client, tasks, shutdown);
        start(&self.admission_checks, client, tasks, shutdown);
        start(&self.provisioning_request_configs, client, tasks, shutdown);
        start(&self.namespaces, client, tasks, shutdown);
        start(&self.priority_classes, client, tasks, shutdown);
        start(&self.limit_ranges, client, tasks, shutdown);
        start(&self.runtime_classes, client, tasks, shutdown);
        if role == Role::Hub {
            start(&self.multi_kueue_clusters, client, tasks, shutdown);
            start(&self.multi_kueue_configs, client, tasks, shutdown);
        } else {
            self.multi_kueue_clusters.set_ready();
            self.multi_kueue_configs.set_ready();
        }
        self.watch_provisioning(client, tasks, shutdown);
        self.watch_devices(client, config, tasks, shutdown);
        self.watch_pods(client, config, tasks, shutdown);
        let (stores, on) = (self.clone(), self.reads_nodes);
        tasks.spawn(topology_watch::run(stores, client.clone(), on, shutdown.clone()));
        for jobs in self.jobs.iter().chain(&self.dependencies) {
            let api = Api::<Readable<Object>>::all_with(client.clone(), &jobs.resource);
            let resource = jobs.resource.clone();
            let typed = move |object: &mut Object| object.typed(&resource);
            let gated = kind_for(&jobs.resource.group, &jobs.resource.kind)
                .is_some_and(|it| it.suspend_mode() == SuspendMode::Gate);
            // Only queued pods, not all pods of the cluster.
            let config = if gated { managed() } else { watcher::Config::default() };
            let watch = watcher(api, config).backoff(CrdBackoff::default());
            let kind = jobs.resource.plural.clone();
            tasks.spawn(feed(watch, kind, true, jobs.store.clone(), typed, shutdown.clone()));
        }
    }

    /// Watches pods that are not jobs.
    fn watch_pods(
        &self,
        client: &Client,
        config: &Configuration,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) {
        if config.enabled("FailureRecoveryPolicy") {
            let pods = watcher(
                Api::<Readable<PartialObjectMeta<Pod>>>::all(client.clone()),
                watcher::Config::default(),
            )
            .default_backoff();
            let pods = pods.try_filter_map(|event| {
                let filter = |event| filter_event(event, filters::is_forcefully_deletable);
                std::future::ready(Ok(edit_readable(event, filter)))
            });
            tasks.spawn(feed(
                pods,
                "pods".to_owned(),
                false,
                self.ending_pods.clone(),
                |_| (),
                shutdown.clone(),
            ));
        } else {
            self.ending_pods.set_ready();
        }
        // Most clusters have few. `any_semantic` lets the API server answer from its cache instead
        // of reading all pods from etcd.
        let elastic = watcher::Config::default()
            .labels(&format!("{}=true", names::ELASTIC_POD))
            .any_semantic();
        let pods = watcher(Api::<Readable<Pod>>::all(client.clone()), elastic).default_backoff();
        tasks.spawn(feed(
            pods,
            "pods".to_owned(),
            false,
            self.elastic_pods.clone(),
            |_| (),
            shutdown.clone(),
        ));
    }

    fn watch_provisioning(
        &self,
        client: &Client,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) {
        let requests = watcher(Api::all(client.clone()), watcher::Config::default())
            .backoff(CrdBackoff::default());
        let (kind, store) =
            (ProvisioningRequest::plural(&()).into_owned(), self.provisioning_requests.clone());
        tasks.spawn(feed(requests, kind, true, store, |_| (), shutdown.clone()));
        let templates = watcher(
            Api::<Readable<PartialObjectMeta<PodTemplate>>>::all(client.clone()),
            managed(),
        )
        .default_backoff();
        let (kind, store) = (PodTemplate::plural(&()).into_owned(), self.pod_templates.clone());
        tasks.spawn(feed(templates, kind, false, store, |_| (), shutdown.clone()));
    }

    /// Watches devices only if they are charged, and as optional kinds: Kubernetes has them from
    /// 1.34 on.
    pub(super) fn watch_devices(
        &self,
        client: &Client,
        config: &Configuration,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) {
        let rules = config.device_rules();
        if !rules.charged {
            self.claim_templates.set_ready();
            self.device_classes.set_ready();
            return;
        }
        let templates = watcher(Api::all(client.clone()), watcher::Config::default())
            .backoff(CrdBackoff::default());
        let (kind, store) =
            (ResourceClaimTemplate::plural(&()).into_owned(), self.claim_templates.clone());
        tasks.spawn(feed(templates, kind, true, store, |_| (), shutdown.clone()));
        if !rules.extended_resources {
            self.device_classes.set_ready();
            return;
        }
        let classes = watcher(Api::all(client.clone()), watcher::Config::default())
            .backoff(CrdBackoff::default());
        let (kind, store) = (DeviceClass::plural(&()).into_owned(), self.device_classes.clone());
        tasks.spawn(feed(classes, kind, true, store, |_| (), shutdown.clone()));
    }
}

/// Selects objects with the label `managed`.
fn managed() -> watcher::Config {
    watcher::Config::default().labels(&format!("{}=true", names::MANAGED))
}
