//! A worker cluster is one MultiKueueCluster's, however it is reached; and that one may come to reach it in another way
//! while jobs run there.
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_api::conditions;
use switchyard_api::v1beta2::{ClusterQueue, MultiKueueCluster};
use switchyard_e2e::fleet::{Fleet, NAMESPACE, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);

/// The pods of a tenant on the worker, by uid.
async fn pods(fleet: &Fleet, tenant: &Tenant<'_>) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    pods.into_iter().filter_map(|pod| pod.metadata.uid).collect()
}

/// Waits until the cluster's own agent is connected, not the hub's with a kubeconfig.
async fn agent_connected(fleet: &Fleet) {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    eventually(SOON, "west's agent to connect", async || {
        let agent =
            clusters.get("west").await?.status.and_then(|status| status.agent).unwrap_or_default();
        let software = agent.software.unwrap_or_default();
        ensure!(
            agent.connected_since.is_some() && !software.contains("hosted"),
            "connected is {software:?}"
        );
        Ok(())
    })
    .await
    .unwrap();
    fleet.connected("west").await.unwrap();
}

/// Waits until the hub reports, or no longer reports, that a queue's fence is unavailable.
async fn no_fence(fleet: &Fleet, tenant: &Tenant<'_>, expected: bool) {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    eventually(SOON, format!("FenceUnavailable to be {expected}"), async || {
        let status = clusters.get("west").await?.status.unwrap_or_default();
        let said = conditions::find(&status.conditions, conditions::FENCE_UNAVAILABLE);
        let named = |message: &str| message.contains(&format!("ClusterQueue {} does not hold here", tenant.name()));
        ensure!(said.is_some_and(|it| (it.status == "True", named(&it.message)) == (expected, expected)), "{said:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Removes the registrations of single mode, as an uninstallation does.
async fn uninstall(fleet: &Fleet) {
    let admin = &fleet.worker("west").admin;
    let (mutating, validating): (
        Api<MutatingWebhookConfiguration>,
        Api<ValidatingWebhookConfiguration>,
    ) = (Api::all(admin.clone()), Api::all(admin.clone()));
    mutating.delete("switchyard", &DeleteParams::default()).await.unwrap();
    validating.delete("switchyard", &DeleteParams::default()).await.unwrap();
    // An agent's installation brings them again.
    fleet.worker("west").install().await.unwrap();
}

#[test]
fn second_way_to_cluster_is_refused_and_agent_may_replace_first() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("twins").bare(west).start().await.unwrap();
        fleet.start_single("west").await.unwrap();
        let (_, kubeconfig) =
            fleet.worker("west").service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        let register = async |name: &str, kubeconfig: &str| {
            let secret = queues::kubeconfig_secret(NAMESPACE, name, kubeconfig);
            fleet.hub().apply([secret, queues::kubeconfig_cluster(name, name)]).await.unwrap();
        };
        register("west", &kubeconfig).await;
        fleet.connected("west").await.unwrap();
        let tenant = fleet
            .tenant("twins")
            .hub(&[("cpu", "4")])
            .worker("west", &[("cpu", "4")])
            .make()
            .await
            .unwrap();
        tenant.submit(tenant.job("long").run_forever()).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        let running = pods(&fleet, &tenant).await;

        // With a kubeconfig, a fence of a queue is unavailable, and the cluster reports it as long as a queue asks for one.
        let queues: Api<ClusterQueue> = Api::all(fleet.hub().admin.clone());
        for (rule, expected) in
            [(json!({"policy": "Fence", "after": "5m"}), true), (Value::Null, false)]
        {
            let rule = Patch::Merge(json!({"spec": {"onDisconnect": rule}}));
            queues.patch(tenant.name(), &PatchParams::default(), &rule).await.unwrap();
            no_fence(&fleet, &tenant, expected).await;
        }

        // The same cluster at another address.
        let elsewhere = kubeconfig.replace("127.0.0.1", "localhost");
        assert_ne!(elsewhere, kubeconfig);
        register("twin", &elsewhere).await;
        let refused = async || {
            fleet
                .says(
                    "twin",
                    "DuplicateCluster",
                    "MultiKueueCluster \"west\" leads to the same cluster",
                )
                .await
                .unwrap();
        };
        refused().await;

        // Reached by an agent from now on, under its name; no other one has it in between.
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let agent =
            Patch::Merge(json!({"spec": {"clusterSource": {"kubeConfig": null, "agent": {}}}}));
        clusters.patch("west", &PatchParams::default(), &agent).await.unwrap();
        fleet.kill("west");
        uninstall(&fleet).await;
        let token = fleet.join_token("west").await.unwrap();
        fleet.start_agent("west", &token).await.unwrap();
        agent_connected(&fleet).await;
        refused().await;

        tenant.submit(tenant.job("short").run_for(Duration::from_millis(200))).await.unwrap();
        job::complete(&fleet.hub().admin, tenant.name(), "short", SOON).await.unwrap();
        assert!(
            pods(&fleet, &tenant).await.contains(&running[0]),
            "what ran before runs on, in the same pod"
        );
        eventually(SOON, "no orphans on west", async || {
            let orphans = clusters.get("west").await?.status.unwrap_or_default().orphans;
            ensure!(orphans.is_empty(), "{orphans:?}");
            Ok(())
        })
        .await
        .unwrap();
        tenant.hub_jobs().delete("long", &DeleteParams::background()).await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();

        // The other one may have it when the first one is no more.
        clusters.delete("west", &DeleteParams::default()).await.unwrap();
        fleet.connected("twin").await.unwrap();
    });
}
