//! Makes a kubeconfig from a ClusterProfile (multicluster.x-k8s.io, KEP-4322 and KEP-5339). Pure.
//!
//! The profile says where the cluster is. The hub's configuration names the command that prints
//! credentials for the profile's access provider. Messages are Kueue's.

use serde_json::{Map, Value, json};
use switchyard_config::AccessProvider;

/// The name of context, cluster and user in the kubeconfig.
const NAME: &str = "profile";
/// Fields taken from a profile's cluster, as in Kueue. Others are ignored: a profile can neither
/// switch off TLS verification nor name a file of the hub.
const TAKEN: [&str; 5] =
    ["server", "certificate-authority-data", "tls-server-name", "proxy-url", "extensions"];

/// The kubeconfig as JSON, for the first configured provider in the profile.
/// `status.accessProviders` goes before the older `status.credentialProviders`.
///
/// # Errors
/// Why there is none, in Kueue's words.
pub(super) fn kubeconfig(
    name: &str,
    profile: &Value,
    providers: &[AccessProvider],
) -> Result<Vec<u8>, String> {
    if providers.is_empty() {
        return Err("no access provider configured".to_owned());
    }
    let (provider, cluster) = providers
        .iter()
        .find_map(|provider| Some((provider, accessor(profile, &provider.name)?)))
        .ok_or_else(|| {
            format!("no matching cluster accessor found for cluster profile \"{name}\"")
        })?;
    let mut exec =
        serde_json::to_value(&provider.exec_config).map_err(|error| error.to_string())?;
    let taken = |key: &str| Some((key.to_owned(), cluster.get(key)?.clone()));
    let cluster: Map<String, Value> = TAKEN.into_iter().filter_map(taken).collect();
    // The hub has no terminal for a prompt.
    exec["interactiveMode"] = "Never".into();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": NAME,
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"exec": exec}}],
    });
    Ok(config.to_string().into_bytes())
}

/// The cluster as a provider reaches it.
fn accessor<'a>(profile: &'a Value, provider: &str) -> Option<&'a Value> {
    let lists = ["/status/accessProviders", "/status/credentialProviders"];
    let all = lists.iter().filter_map(|list| profile.pointer(list)?.as_array()).flatten();
    let mut of_that_name = all.filter(|one| one["name"] == provider);
    of_that_name.next().map(|one| &one["cluster"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str) -> AccessProvider {
        serde_json::from_value(json!({"name": name, "execConfig": {
            "command": "/plugins/login", "apiVersion": "client.authentication.k8s.io/v1",
            "interactiveMode": "IfAvailable", "provideClusterInfo": true, "env": [{"name": "A", "value": "b"}],
        }}))
        .unwrap()
    }

    fn profile(list: &str) -> Value {
        let extension = json!({"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "east"}});
        let cluster = json!({"server": "https://east:6443", "certificate-authority-data": "YQ==", "extensions": [extension]});
        json!({"status": {list: [{"name": "other", "cluster": {}}, {"name": "cloud", "cluster": cluster}]}})
    }

    #[test]
    fn profile_gives_the_cluster_and_config_the_command() {
        for list in ["accessProviders", "credentialProviders"] {
            let bytes =
                kubeconfig("east", &profile(list), &[provider("absent"), provider("cloud")])
                    .unwrap();
            let config = switchyard_hub_pki::kubeconfig::parse(
                &bytes,
                switchyard_hub_pki::kubeconfig::ExecPlugins::Allowed,
            )
            .unwrap();
            let exec = config.auth_infos[0].auth_info.clone().unwrap().exec.unwrap();
            assert_eq!(
                (exec.command.as_deref(), exec.provide_cluster_info),
                (Some("/plugins/login"), true)
            );
            assert_eq!(exec.env.unwrap()[0]["value"], "b");
            let cluster = config.clusters[0].cluster.clone().unwrap();
            assert_eq!(cluster.server.as_deref(), Some("https://east:6443"));
            assert_eq!(cluster.extensions.unwrap()[0].extension["clusterName"], "east");
        }
    }

    #[test]
    fn profile_cannot_weaken_tls_verification() {
        let cluster = json!({
            "server": "https://east:6443", "certificate-authority": "/etc/ca", "insecure-skip-tls-verify": true,
        });
        let profile =
            json!({"status": {"accessProviders": [{"name": "cloud", "cluster": cluster}]}});
        let bytes = kubeconfig("east", &profile, &[provider("cloud")]).unwrap();
        let config: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(config["clusters"][0]["cluster"], json!({"server": "https://east:6443"}));
    }

    #[test]
    fn profile_without_access_has_kueues_message() {
        for (providers, message) in [
            (vec![], "no access provider configured"),
            (
                vec![provider("b")],
                "no matching cluster accessor found for cluster profile \"east\"",
            ),
        ] {
            assert_eq!(
                kubeconfig("east", &profile("accessProviders"), &providers).unwrap_err(),
                message
            );
        }
    }
}
