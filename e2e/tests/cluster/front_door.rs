//! The first commands of an administrator: `switchyard check` of whole and of broken fleets, and `switchyard cluster add`.

mod address;
mod pods;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{ClusterQueue, MultiKueueCluster};
use switchyard_e2e::fleet::{Fleet, HUB, NAMESPACE};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, fixture, paths, queues};

use crate::common::shell::Shell;

const SOON: Duration = Duration::from_secs(90);

/// Runs the command line on a cluster, and returns its verdict and what it printed.
async fn switchyard(
    kubeconfig: &Path,
    words: &[&str],
) -> anyhow::Result<(switchyard::ExitStatus, String)> {
    let command = ["switchyard", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let args = switchyard::Args::try_parse_from(command.iter().chain(words))?;
    let mut out = Vec::new();
    let verdict = switchyard::run(args, &mut out).await?;
    Ok((verdict, String::from_utf8(out)?))
}

/// The lines of `switchyard check -o json` that are not ok, as `outcome check: message`.
async fn faults(cluster: &Cluster, words: &[&str]) -> anyhow::Result<Vec<String>> {
    let (verdict, text) =
        switchyard(cluster.kubeconfig(), &[&["check", "-o", "json"], words].concat()).await?;
    let report: Value = serde_json::from_str(&text)?;
    let lines = report["sections"]
        .as_array()
        .context("sections")?
        .iter()
        .flat_map(|it| it["lines"].as_array().unwrap());
    let faults: Vec<String> = lines
        .filter(|line| line["outcome"] != "ok")
        .map(|line| {
            assert!(
                line["mend"].is_string()
                    && line["explain"].as_str().unwrap().starts_with("switchyard check --explain "),
                "{line}"
            );
            let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", word("outcome"), word("check"), word("message"))
        })
        .collect();
    let failed = faults.iter().any(|line| line.starts_with("failure"));
    assert_eq!(failed, verdict == switchyard::ExitStatus::Faulty, "{faults:?}");
    Ok(faults)
}

/// Waits for a line that begins so.
async fn finds(cluster: &Cluster, words: &[&str], expected: &str) {
    eventually(SOON, format!("a line {expected:?}"), async || {
        let lines = faults(cluster, words).await?;
        ensure!(lines.iter().any(|line| line.starts_with(expected)), "{lines:#?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// A hub and a worker with an agent, connected.
async fn fleet(name: &str) -> Fleet {
    let fleet = Fleet::builder(name)
        .agent(ClusterSpec::new("east"))
        .agent_webhooks()
        .start()
        .await
        .unwrap();
    fleet.hub().apply([queues::agent_cluster("east")]).await.unwrap();
    fleet.connect().await.unwrap();
    fleet
}

#[test]
fn check_finds_what_is_broken_in_a_fleet() {
    fixture::run(async {
        let fleet = fleet("checked").await;
        let hub = fleet.hub();
        let team = fleet
            .tenant("team")
            .hub(&[("cpu", "4")])
            .worker("east", &[("cpu", "4")])
            .make()
            .await
            .unwrap();
        let worker = format!("east={}", fleet.worker("east").kubeconfig().display());

        // Whole. Tests run the programs without Deployments, and configure them by files.
        let expected = ["warning deployment", "warning kinds"];
        eventually(SOON, "a fleet without a failure", async || {
            let lines = faults(hub, &["--worker", &worker]).await?;
            let others: Vec<&String> = lines
                .iter()
                .filter(|it| !expected.iter().any(|known| it.starts_with(known)))
                .collect();
            ensure!(others.is_empty(), "{others:#?}");
            Ok(())
        })
        .await
        .unwrap();
        let (_, text) = switchyard(hub.kubeconfig(), &["check"]).await.unwrap();
        assert!(
            text.contains("ok       rights: switchyard-hub has the rights of its roles"),
            "{text}"
        );
        assert!(
            text.contains("ok       webhooks-reachable: a Job with a queue is suspended"),
            "{text}"
        );
        assert!(text.contains("ok       agents-door: the hub answers at https://"), "{text}");
        assert!(
            text.contains("ok       flavors: workers have the flavors and resources"),
            "{text}"
        );

        let explained = ["check", "--explain", "queues"];
        let (_, text) = switchyard(Path::new("/nonexistent"), &explained).await.unwrap();
        assert!(text.starts_with("queues\n\nA LocalQueue that sends jobs"), "{text}");
        serves_v1beta1(fleet.worker("east"), team.name()).await;

        // A queue and a namespace that the worker does not have.
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lonely"}});
        hub.apply([namespace, queues::local_queue("lonely", "main", team.name())]).await.unwrap();
        finds(hub, &[], "failure queues: LocalQueue lonely/main is not on east, the only workers")
            .await;
        finds(hub, &["--worker", &worker], "failure namespaces: east lacks namespace lonely").await;

        // A cluster that does not exist.
        finds(
            hub,
            &["--cluster", "nowhere"],
            "failure clusters: there is no MultiKueueCluster \"nowhere\"",
        )
        .await;

        // Something else answers where agents dial.
        let secrets: Api<Secret> = Api::namespaced(hub.admin.clone(), NAMESPACE);
        let other = json!({"stringData": {"hub-address": hub.url()}});
        secrets
            .patch("switchyard-hub-ca", &PatchParams::default(), &Patch::Merge(other))
            .await
            .unwrap();
        finds(
            hub,
            &[],
            &format!("failure agents-door: what answers at {} is not the hub", hub.url()),
        )
        .await;

        // The agent is gone, and then the hub.
        fleet.kill("east");
        finds(hub, &[], "failure clusters: east is not connected").await;
        fleet.kill(HUB);
        finds(hub, &[], "failure leader: no replica leads").await;
        finds(hub, &[], "warning freshness: no hub leads").await;
        finds(hub, &[], "failure webhooks-reachable").await;
    });
}

/// A worker with an agent takes a manifest of Kueue's v0.9 era, and shows it in both versions.
async fn serves_v1beta1(worker: &Cluster, flavor: &str) {
    let resources = json!([{"name": "cpu", "nominalQuota": "1"}]);
    let group =
        json!({"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": resources}]});
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "old"},
        "spec": {"cohort": "all", "flavorFungibility": {"whenCanBorrow": "Borrow"}, "resourceGroups": [group]},
    });
    // The API server may not yet call the webhooks that convert it.
    let apply = async || worker.apply([object.clone()]).await;
    eventually(SOON, "a manifest of v1beta1 to be accepted", apply).await.unwrap();
    let queues: Api<ClusterQueue> = Api::all(worker.admin.clone());
    let queue = queues.get("old").await.unwrap();
    assert_eq!(queue.spec.cohort_name.as_deref(), Some("all"));
    let fungibility = serde_json::to_value(&queue.spec.flavor_fungibility).unwrap();
    assert_eq!(fungibility["whenCanBorrow"], "MayStopSearch", "the name in v1beta2");
    let older = worker.dynamic("kueue.x-k8s.io/v1beta1", "ClusterQueue", "").await.unwrap();
    let shown = async || Ok(older.get("old").await?.data);
    let older = eventually(SOON, "the object in v1beta1", shown).await.unwrap();
    assert_eq!(older["spec"]["cohort"], "all");
    assert_eq!(older["spec"]["flavorFungibility"]["whenCanBorrow"], "Borrow");
    queues.delete("old", &DeleteParams::default()).await.unwrap();
}

#[test]
fn check_finds_what_is_broken_in_a_cluster() {
    fixture::run(async {
        let environment =
            Environment::builder("broken").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let only = |lines: Vec<String>, check: &str| -> Vec<String> {
            lines
                .into_iter()
                .filter(|line| line.split(' ').nth(1) == Some(&format!("{check}:")))
                .collect()
        };
        let pre = faults(cluster, &["--pre"]).await.unwrap();
        assert!(pre.is_empty(), "{pre:?}");
        finds(
            cluster,
            &[],
            "failure deployment: Switchyard is not installed in namespace switchyard-system",
        )
        .await;

        cluster.install().await.unwrap();
        // A program that ran here once.
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
        });
        cluster.apply([lease]).await.unwrap();
        let lines = faults(cluster, &[]).await.unwrap();
        for expected in [
            "failure leader: no replica leads: gone",
            "failure webhooks: the webhook configurations are empty",
        ] {
            assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}: {lines:#?}");
        }
        assert_eq!(only(lines, "crds"), [""; 0]);

        let dynamic =
            async |version: &str, kind: &str| cluster.dynamic(version, kind, "").await.unwrap();
        let bindings = dynamic("rbac.authorization.k8s.io/v1", "ClusterRoleBinding").await;
        bindings.delete("switchyard", &DeleteParams::default()).await.unwrap();
        finds(cluster, &[], "failure rights: switchyard may not: get namespaces").await;

        let crds = dynamic("apiextensions.k8s.io/v1", "CustomResourceDefinition").await;
        let field = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/agent";
        let older = serde_json::from_value(json!([{"op": "remove", "path": field}])).unwrap();
        let older = Patch::Json::<()>(older);
        crds.patch("multikueueclusters.kueue.x-k8s.io", &PatchParams::default(), &older)
            .await
            .unwrap();
        crds.delete("topologies.kueue.x-k8s.io", &DeleteParams::default()).await.unwrap();
        finds(cluster, &[], "failure crds: topologies.kueue.x-k8s.io is missing").await;
        finds(
            cluster,
            &[],
            "failure crds: multikueueclusters.kueue.x-k8s.io is of another version: it lacks .status.agent",
        )
        .await;

        // A caller without rights reads which rights the checks need.
        let (_, kubeconfig) = cluster.service_account("default", "default").await.unwrap();
        let path = cluster.state_dir().join("nobody.kubeconfig");
        std::fs::write(&path, kubeconfig).unwrap();
        let (verdict, text) = switchyard(&path, &["check", "--pre"]).await.unwrap();
        assert_eq!(verdict, switchyard::ExitStatus::Faulty);
        assert!(text.contains("FAILURE  install-rights: you may not: create namespaces"), "{text}");

        // The API server refuses roles with rights that their creator lacks.
        let resources = [
            "namespaces",
            "customresourcedefinitions",
            "clusterroles",
            "clusterrolebindings",
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
            "secrets",
            "serviceaccounts",
            "services",
            "configmaps",
            "deployments",
            "roles",
            "rolebindings",
            "networkpolicies",
            "poddisruptionbudgets",
        ];
        let creates = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "creates"},
            "rules": [{"apiGroups": ["*"], "resources": resources, "verbs": ["create"]}],
        });
        let bound = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "creates"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "creates"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
        });
        cluster.apply([creates, bound]).await.unwrap();
        let wanted = "FAILURE  install-rights: you may not: escalate, list, get, patch clusterroles.rbac.authorization.k8s.io; ";
        eventually(SOON, "the role to be known", async || {
            let (verdict, text) = switchyard(&path, &["check", "--pre"]).await?;
            ensure!(verdict == switchyard::ExitStatus::Faulty && text.contains(wanted), "{text}");
            for part in [
                "bind clusterroles.rbac.authorization.k8s.io switchyard-controller",
                "get, patch deployments.apps in switchyard-system",
                "validatingadmissionpolicies.admissionregistration.k8s.io",
            ] {
                ensure!(text.contains(part), "no {part} in {text}");
            }
            Ok(())
        })
        .await
        .unwrap();
    });
}

/// The token in the commands that `switchyard cluster add` prints.
fn token_of(printed: &str) -> (String, String) {
    let value = |key: &str| {
        let line =
            printed.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {key} in\n{printed}")).trim_matches('"').to_owned()
    };
    (value("token"), value("hub-ca-sha256"))
}

#[test]
fn an_agent_takes_a_new_token_without_a_restart() {
    fixture::run(async {
        let fleet = Fleet::builder("again").agent(ClusterSpec::new("east")).start().await.unwrap();
        let hub = fleet.hub();
        let add =
            async || switchyard(hub.kubeconfig(), &["cluster", "add", "east"]).await.unwrap().1;
        let printed = add().await;
        assert!(printed.contains("helm upgrade --install switchyard-agent"), "{printed}");
        let (token, pin) = token_of(&printed);
        // As a Secret is mounted.
        let mounted = fleet.worker("east").state_dir().join("join");
        std::fs::create_dir_all(&mounted).unwrap();
        let mount = |token: &str, pin: &str| {
            std::fs::write(mounted.join("hub-ca-sha256"), pin).unwrap();
            std::fs::write(mounted.join("token"), token).unwrap();
        };
        mount(&token, &pin);
        let first =
            switchyard::join_token::JoinToken { token, ..fleet.join_token("east").await.unwrap() };
        let flags = ["--join-directory", mounted.to_str().unwrap()];
        fleet.start_agent_with("east", &first, &flags).await.unwrap();
        fleet.connected("east").await.unwrap();

        // Deleted and created again, it is another cluster for the hub.
        let clusters: Api<MultiKueueCluster> = Api::all(hub.admin.clone());
        clusters.delete("east", &DeleteParams::default()).await.unwrap();
        eventually(SOON, "the MultiKueueCluster to be gone", async || {
            ensure!(clusters.get_opt("east").await?.is_none(), "it is there");
            Ok(())
        })
        .await
        .unwrap();
        let (token, pin) = token_of(&add().await);
        let (verdict, _) =
            switchyard(hub.kubeconfig(), &["check", "--cluster", "east"]).await.unwrap();
        assert_eq!(verdict, switchyard::ExitStatus::Faulty, "its certificate is refused");
        mount(&token, &pin);
        fleet.connected("east").await.unwrap();
    });
}

/// A kubeconfig with the contexts of the hub and of a worker, as users have them, and the name of
/// the latter.
fn both_contexts(fleet: &Fleet, worker: &str) -> (PathBuf, String) {
    let read = |cluster: &Cluster| -> Value {
        serde_saphyr::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap()
    };
    let mut both = read(fleet.hub());
    let mut worker = read(fleet.worker(worker));
    let context = worker["current-context"].as_str().unwrap().to_owned();
    for list in ["clusters", "users", "contexts"] {
        let more = worker[list].as_array_mut().unwrap().split_off(0);
        both[list].as_array_mut().unwrap().extend(more);
    }
    let path = fleet.hub().state_dir().join("both.kubeconfig");
    std::fs::write(&path, both.to_string()).unwrap();
    (path, context)
}

#[test]
fn printed_commands_install_an_agent_and_keep_its_values() {
    fixture::run(async {
        let fleet = Fleet::builder("printed").start().await.unwrap();
        let west = ClusterSpec::new("west");
        let environment = Environment::builder("pasted").cluster(west).start().await.unwrap();
        let west = environment.cluster("west");
        let shell = Shell::new(&[west]).await;
        let printed = async || {
            let words =
                ["--hub-address=https://hub.example:7443", "--chart=deploy/charts/switchyard"];
            let add = [&["cluster", "add", "west", "-o", "json"], &words[..]].concat();
            let (_, text) = switchyard(fleet.hub().kubeconfig(), &add).await.unwrap();
            let added: Value = serde_json::from_str(&text).unwrap();
            added["commands"].as_str().unwrap().to_owned()
        };
        shell.run(&printed().await);
        let deployment = "kubectl -n switchyard-system get deployment switchyard-agent -o yaml";
        assert!(shell.run(deployment).contains("secretName: switchyard-agent-join"));

        // A narrower agent stays narrow when it is enrolled again.
        let narrow = "helm upgrade switchyard-agent deploy/charts/switchyard -n switchyard-system \
                      --reset-then-reuse-values --set 'agent.allowNamespaces={default}'";
        shell.run(narrow);
        let token = "kubectl -n switchyard-system get secret switchyard-agent-join -o jsonpath='{.data.token}'";
        let first = shell.run(token);
        shell.run(&printed().await);
        assert_ne!(shell.run(token), first);
        assert!(shell.run(deployment).contains("--allow-namespaces=default"));
    });
}

#[test]
fn a_worker_without_an_agent_is_added_from_its_context() {
    fixture::run(async {
        let worker = ClusterSpec::new("west").controller("serviceaccount-token-controller");
        let fleet = Fleet::builder("added").bare(worker).start().await.unwrap();
        fleet.start_single("west").await.unwrap();

        let (path, context) = both_contexts(&fleet, "west");
        let both: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let add = |flags: &[&str]| {
            let mut command = Command::new(paths::binary("switchyard").unwrap());
            let output = command
                .env("KUBECONFIG", &path)
                .args(["cluster", "add", "west"])
                .args(flags)
                .output()
                .unwrap();
            let printed = [output.stdout, output.stderr]
                .map(|text| String::from_utf8(text).unwrap())
                .concat();
            (output.status.success(), printed)
        };
        let (done, printed) = add(&["--from-context", &context]);
        assert!(done && printed.contains("west is connected."), "{printed}");
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let source = clusters.get("west").await.unwrap().spec.cluster_source;
        assert_eq!(source.kube_config.unwrap().location, "west-kubeconfig");

        // Repeated, nothing changes. Rotated, the hub has the new token before the old one goes; another
        // way to reach it is not taken by mistake.
        let first = (secret(&fleet).await, tokens(&fleet).await);
        let (done, printed) = add(&["--from-context", &context]);
        assert!(done && printed.contains("west is connected."), "{printed}");
        assert_eq!((secret(&fleet).await, tokens(&fleet).await), first);
        let unreachable =
            ["--from-context", &context, "--rotate", "--server", "https://127.0.0.1:1"];
        let (done, printed) = add(&unreachable);
        assert!(!done && printed.contains("asking the worker"), "{printed}");
        assert_eq!((secret(&fleet).await, tokens(&fleet).await), first, "nothing is lost");
        let session =
            async || clusters.get("west").await.unwrap().status.unwrap().agent.unwrap().session_id;
        let before = session().await;
        token_of_another_hub(&fleet).await;
        let (done, printed) = add(&["--from-context", &context, "--rotate"]);
        assert!(done && printed.contains("west is connected."), "{printed}");
        assert_ne!(session().await, before, "the connection is that of the new token");
        let second = (secret(&fleet).await, tokens(&fleet).await);
        assert_ne!(second.0, first.0);
        assert_eq!((first.1.len(), second.1.len()), (1, 1), "{:?} {:?}", first.1, second.1);
        assert_ne!(first.1, second.1, "the old token is gone");
        let secrets: Api<Secret> = Api::namespaced(fleet.worker("west").admin.clone(), NAMESPACE);
        assert!(secrets.get_opt(OTHER_HUB).await.unwrap().is_some(), "that of another hub stays");
        let (done, printed) = add(&[]);
        assert!(!done && printed.contains("is reached in another way"), "{printed}");

        // A credential that the worker refuses changes nothing.
        let before = secret(&fleet).await;
        let mut bad = both.clone();
        for user in bad["users"].as_array_mut().unwrap() {
            user["user"] = json!({"token": "refused"});
        }
        bad["current-context"] = json!(context);
        let file = fleet.hub().state_dir().join("bad.kubeconfig");
        std::fs::write(&file, bad.to_string()).unwrap();
        let (done, printed) = add(&["--with-kubeconfig", file.to_str().unwrap()]);
        assert!(!done && printed.contains("the worker refuses its credential"), "{printed}");
        assert_eq!(secret(&fleet).await, before);

        // A kubeconfig from elsewhere replaces it, and adds the cluster again after its deletion.
        let token = |kubeconfig: &Value| kubeconfig["users"][0]["user"]["token"].clone();
        let west = fleet.worker("west");
        let (_, made) = west.service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        let file = fleet.hub().state_dir().join("made.kubeconfig");
        std::fs::write(&file, &made).unwrap();
        let made: Value = serde_saphyr::from_str(&made).unwrap();
        let by_file = ["--with-kubeconfig", file.to_str().unwrap()];
        let before = session().await;
        let (done, printed) = add(&by_file);
        assert!(done && printed.contains("west is connected."), "{printed}");
        assert_ne!(session().await, before, "the connection is that of the file");
        assert_eq!(token(&secret(&fleet).await), token(&made));

        clusters.delete("west", &DeleteParams::default()).await.unwrap();
        eventually(SOON, "the MultiKueueCluster to be gone", async || {
            ensure!(clusters.get_opt("west").await?.is_none(), "it is there");
            Ok(())
        })
        .await
        .unwrap();
        let secrets: Api<Secret> = Api::namespaced(fleet.hub().admin.clone(), NAMESPACE);
        secrets.delete("west-kubeconfig", &DeleteParams::default()).await.unwrap();
        let (done, printed) = add(&by_file);
        assert!(done && printed.contains("west is connected."), "{printed}");
        assert_eq!(token(&secret(&fleet).await), token(&made));
    });
}

/// A Secret with a token of another hub.
const OTHER_HUB: &str = "other-hub";

/// Another hub has a token of the same account.
async fn token_of_another_hub(fleet: &Fleet) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": OTHER_HUB, "namespace": NAMESPACE, "labels": {"switchyard.dev/hub-id": "other"},
            "annotations": {"kubernetes.io/service-account.name": "switchyard-remote-hub"},
        },
    });
    fleet.worker("west").apply([secret]).await.unwrap();
}

/// The Secrets on `west` with tokens of the hub's account.
async fn tokens(fleet: &Fleet) -> Vec<String> {
    let secrets: Api<Secret> = Api::namespaced(fleet.worker("west").admin.clone(), NAMESPACE);
    let params = ListParams::default().fields("type=kubernetes.io/service-account-token");
    let all = secrets.list(&params).await.unwrap().items;
    all.iter().map(Secret::name_any).filter(|name| name.contains("remote-hub")).collect()
}

/// The kubeconfig of `west` that the hub keeps.
async fn secret(fleet: &Fleet) -> Value {
    let secrets: Api<Secret> = Api::namespaced(fleet.hub().admin.clone(), NAMESPACE);
    let data = secrets.get("west-kubeconfig").await.unwrap().data.unwrap();
    serde_saphyr::from_str(std::str::from_utf8(&data["kubeconfig"].0).unwrap()).unwrap()
}
