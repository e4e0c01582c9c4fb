//! A user with the rights that `switchyard check --pre` asks for, and no others, installs each mode.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use serde_json::{Value, json};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, fixture};

use super::{AGENT, HUB, Helm, NAMESPACE, allowed_namespaces, chart};

const SOON: Duration = Duration::from_secs(60);

/// The lines `install-rights` of `switchyard check --pre`, as outcome and message.
async fn install_rights(kubeconfig: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let path = kubeconfig.to_str().context("path")?;
    let words = ["switchyard", "--kubeconfig", path, "check", "--pre", "-o", "json"];
    let namespace = ["--namespace", NAMESPACE];
    let args = switchyard::Args::try_parse_from(words.iter().chain(&namespace))?;
    let mut out = Vec::new();
    switchyard::run(args, &mut out).await?;
    let report: Value = serde_json::from_slice(&out)?;
    let lines = report["sections"][0]["lines"].as_array().context("lines")?;
    let lines = lines.iter().filter(|line| line["check"] == "install-rights");
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    Ok(lines.map(|line| (text(line, "outcome"), text(line, "message"))).collect())
}

/// The rules for rights as a message lists them, by namespace: `VERB, VERB RESOURCE.GROUP NAME in NAMESPACE; ...`
fn rules(message: &str) -> BTreeMap<String, Vec<Value>> {
    let mut rules: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let (_, list) = message.split_once(": ").unwrap();
    for right in list.split("; ") {
        let (right, namespace) = right.split_once(" in ").unwrap_or((right, ""));
        let words: Vec<&str> = right.split(' ').collect();
        let (verbs, rest): (Vec<&str>, Vec<&str>) = {
            let last = words.iter().position(|word| !word.ends_with(',')).unwrap();
            (words[..=last].to_vec(), words[last + 1..].to_vec())
        };
        let verbs: Vec<&str> = verbs.iter().map(|verb| verb.trim_end_matches(',')).collect();
        let (resource, group) = rest[0].split_once('.').unwrap_or((rest[0], ""));
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        if let Some(name) = rest.get(1) {
            rule["resourceNames"] = json!([name]);
        }
        rules.entry(namespace.to_owned()).or_default().push(rule);
    }
    rules
}

/// Grants the rules to the account, in their namespaces.
async fn grant(cluster: &Cluster, number: usize, rules: BTreeMap<String, Vec<Value>>) {
    let api = "rbac.authorization.k8s.io";
    let version = format!("{api}/v1");
    for (namespace, rules) in rules {
        let (role, binding) = match namespace.as_str() {
            "" => ("ClusterRole", "ClusterRoleBinding"),
            _ => ("Role", "RoleBinding"),
        };
        let mut metadata = json!({"name": format!("installer-{number}")});
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        let role =
            json!({"apiVersion": version, "kind": role, "metadata": metadata, "rules": rules});
        let reference = json!({"apiGroup": api, "kind": role["kind"], "name": metadata["name"]});
        let subject = json!({"kind": "ServiceAccount", "namespace": "default", "name": "default"});
        let binding = json!({
            "apiVersion": version, "kind": binding, "metadata": metadata, "roleRef": reference, "subjects": [subject],
        });
        cluster.apply([role, binding]).await.unwrap();
    }
}

async fn user(cluster: &Cluster) -> PathBuf {
    let (_, kubeconfig) = cluster.service_account("default", "default").await.unwrap();
    let path = cluster.state_dir().join("installer.kubeconfig");
    std::fs::write(&path, kubeconfig).unwrap();
    path
}

#[test]
fn rights_of_the_check_suffice_to_install_each_mode() {
    fixture::run(async {
        let environment = Environment::builder("installer")
            .cluster(ClusterSpec::new("one"))
            .start()
            .await
            .unwrap();
        let cluster = environment.cluster("one");
        allowed_namespaces(cluster).await;
        // Rights in a namespace can be given once it exists.
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        cluster.apply([namespace]).await.unwrap();
        let path = user(cluster).await;
        let mut said = install_rights(&path).await.unwrap();
        assert_eq!(said[0].0, "failure", "{said:?}");
        // Grants become known one by one, and each may uncover the next thing that the user lacks.
        let begun = Instant::now();
        let mut round = 0;
        while said.iter().any(|(outcome, _)| outcome != "ok") {
            assert!(begun.elapsed() < 3 * SOON, "still missing after {round} grants: {said:?}");
            for (_, message) in said.iter().filter(|(outcome, _)| outcome != "ok") {
                grant(cluster, round, rules(message)).await;
            }
            let before = said;
            said = eventually(SOON, "the roles to be known", async || {
                let now = install_rights(&path).await?;
                ensure!(now != before, "{now:?}");
                Ok(now)
            })
            .await
            .unwrap();
            round += 1;
        }
        assert_eq!(said, [("ok".to_owned(), "you have the rights to install".to_owned())]);

        let administrator = Helm::new(Some(cluster), NAMESPACE);
        let helm = Helm::new(Some(cluster), NAMESPACE).with_kubeconfig(path);
        let chart = chart();
        let visible = ["--set=visibility.enabled=true"];
        for values in [&visible[..], &HUB, &AGENT[..4]] {
            helm.ok(&[&["install", "ours", &chart], values].concat());
            let log = "--set=controllerManager.manager.log=debug";
            helm.ok(&["upgrade", "ours", &chart, "--reset-then-reuse-values", log]);
            administrator.ok(&["uninstall", "ours"]);
        }
    });
}
