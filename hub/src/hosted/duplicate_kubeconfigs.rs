//! Keeps two MultiKueueClusters from naming one worker: each would take the other's jobs for
//! orphans. Pure.

use std::collections::BTreeMap;

use kube::config::Kubeconfig;

/// Orders MultiKueueClusters; the least keeps the worker. False if its status has a cluster uid,
/// then creation time in seconds, then name.
pub(super) type ClaimRank = (bool, i64, String);

/// The API server in each kubeconfig read so far. None in place of a server: an unusable
/// kubeconfig.
#[derive(Debug, Default)]
pub(super) struct DuplicateKubeconfigs {
    servers: BTreeMap<String, Option<String>>,
}

/// Whether a MultiKueueCluster may use its worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// No MultiKueueCluster that ranks before it names the same worker.
    Free,
    /// The kubeconfig of a MultiKueueCluster that ranks before it has not been read.
    Wait,
    /// The MultiKueueCluster of this name ranks before it and names the same worker.
    Taken(String),
}

impl DuplicateKubeconfigs {
    /// Records the API server in a kubeconfig; None if it is unusable.
    pub(super) fn record(&mut self, cluster: &str, server: Option<String>) {
        self.servers.insert(cluster.to_owned(), server);
    }

    /// Forgets a MultiKueueCluster that is gone or has a new kubeconfig reference.
    pub(super) fn forget(&mut self, cluster: &str) {
        self.servers.remove(cluster);
    }

    /// Whether `cluster` may use its worker. `all` are the MultiKueueClusters with a kubeconfig.
    pub(super) fn claim(&self, cluster: &str, all: &[ClaimRank]) -> Claim {
        let Some(Some(server)) = self.servers.get(cluster) else { return Claim::Wait };
        let mine = all.iter().find(|(_, _, name)| name == cluster);
        let older = all.iter().filter(|rank| mine.is_some_and(|mine| *rank < mine));
        let mut claim = Claim::Free;
        for (_, _, name) in older {
            match self.servers.get(name) {
                Some(Some(other)) if other == server => return Claim::Taken(name.clone()),
                Some(_) => {}
                None => claim = Claim::Wait,
            }
        }
        claim
    }
}

/// The API server of the current context as host, port and path, in lower case.
pub(super) fn server(config: &Kubeconfig) -> Option<String> {
    let current = config.current_context.as_deref().unwrap_or_default();
    let context = config
        .contexts
        .iter()
        .find(|context| context.name == current)
        .or(config.contexts.first())?;
    let cluster = &context.context.as_ref()?.cluster;
    let named = config.clusters.iter().find(|named| named.name == *cluster)?;
    let uri: http::Uri = named.cluster.as_ref()?.server.as_deref()?.to_lowercase().parse().ok()?;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    Some(format!("{}:{port}{}", uri.host()?, uri.path().trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_of_two_duplicates_keeps_the_worker() {
        let all: Vec<ClaimRank> =
            vec![(true, 1, "old".into()), (true, 2, "new".into()), (true, 2, "other".into())];
        let mut duplicates = DuplicateKubeconfigs::default();
        duplicates.record("new", Some("w:443".into()));
        assert_eq!(duplicates.claim("new", &all), Claim::Wait, "the older one may name it, too");
        duplicates.record("old", Some("w:443".into()));
        assert_eq!(duplicates.claim("new", &all), Claim::Taken("old".into()));
        assert_eq!(duplicates.claim("old", &all), Claim::Free);
        let proven: Vec<ClaimRank> = vec![(true, 1, "old".into()), (false, 2, "new".into())];
        assert_eq!(duplicates.claim("new", &proven), Claim::Free, "its jobs may be there");
        assert_eq!(duplicates.claim("old", &proven), Claim::Taken("new".into()));
        duplicates.record("old", None);
        assert_eq!(
            duplicates.claim("new", &all),
            Claim::Free,
            "one that cannot be read takes nothing"
        );
        duplicates.record("other", Some("v:443".into()));
        assert_eq!(duplicates.claim("other", &all), Claim::Free);
        duplicates.forget("old");
        assert_eq!(duplicates.claim("other", &all), Claim::Wait);
    }

    #[test]
    fn api_server_is_compared_in_any_spelling() {
        let config = |url: &str| {
            let yaml = format!(
                "current-context: c\ncontexts:\n- name: c\n  context: {{cluster: w, user: u}}\nclusters:\n- name: w\n  \
                 cluster: {{server: \"{url}\"}}\nusers: []\n"
            );
            server(&Kubeconfig::from_yaml(&yaml).unwrap())
        };
        assert_eq!(config("https://API.example.com/"), Some("api.example.com:443".into()));
        assert_eq!(config("https://api.example.com:443"), config("https://API.example.com/"));
        assert_ne!(
            config("https://api.example.com/k8s/a"),
            config("https://api.example.com/k8s/b")
        );
    }
}
