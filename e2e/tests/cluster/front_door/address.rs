//! An agent whose hub moves to another address.

use anyhow::ensure;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fleet::{Fleet, NAMESPACE};
use switchyard_e2e::forward::Forward;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, fixture};

use super::{SOON, both_contexts, switchyard};

#[test]
fn an_agent_follows_the_hub_to_another_address() {
    fixture::run(async {
        let fleet = Fleet::builder("moved").agent(ClusterSpec::new("east")).start().await.unwrap();
        let worker = fleet.worker("east");
        let (kubeconfig, context) = both_contexts(&fleet, "east");
        let mounted = worker.state_dir().join("join");
        std::fs::create_dir_all(&mounted).unwrap();
        let secrets: Api<Secret> = Api::namespaced(worker.admin.clone(), NAMESPACE);
        let add = async |address: &str| {
            let flags = ["--worker-context", &context, "--hub-address", address];
            let command = [&["cluster", "add", "east"], &flags[..]].concat();
            switchyard(&kubeconfig, &command).await.unwrap();
            // The kubelet's part.
            for (key, value) in secrets.get("switchyard-agent-join").await.unwrap().data.unwrap() {
                std::fs::write(mounted.join(key), value.0).unwrap();
            }
        };
        let hub = fleet.address().rsplit_once(':').unwrap().1.parse().unwrap();
        let door = async || {
            let door = Forward::local(&[hub]).await.unwrap();
            let address = format!("https://127.0.0.1:{}", door.port());
            (door, address)
        };

        // An agent that could not enrol yet.
        let nowhere = "https://127.0.0.1:1";
        add(nowhere).await;
        let given = switchyard::join_token::JoinToken {
            hub_address: nowhere.to_owned(),
            ..fleet.join_token("east").await.unwrap()
        };
        let flags = ["--join-directory", mounted.to_str().unwrap()];
        fleet.start_agent_with("east", &given, &flags).await.unwrap();
        let pid = || fleet.with("east", |process| process.pid()).unwrap();
        let started = pid();
        eventually(SOON, "a first try", async || {
            let log = fleet.with("east", |process| process.log())?;
            ensure!(log.contains("no identity yet, will try again"), "{log}");
            Ok(())
        })
        .await
        .unwrap();
        let (first, address) = door().await;
        add(&address).await;
        fleet.connected("east").await.unwrap();

        // The hub moves.
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let session = async || {
            let status = clusters.get("east").await.unwrap().status.unwrap();
            status.agent.unwrap().session_id
        };
        let before = session().await;
        let (second, address) = door().await;
        add(&address).await;
        assert_eq!(session().await, before, "an agent keeps the session that it has");
        drop(first);
        eventually(SOON, "a session by the second address", async || {
            ensure!(session().await != before, "the first session");
            fleet.connected("east").await
        })
        .await
        .unwrap();
        assert_eq!(pid(), started, "no restart");
        let (_, text) = switchyard(worker.kubeconfig(), &["check"]).await.unwrap();
        let line = format!("ok       hub-reachable: the hub answers at {address}");
        assert!(text.contains(&line), "{text}");
        drop(second);
    });
}
