//! Two MultiKueueClusters must not name one worker: each would take the other's jobs for orphans of its own. Pure.

use std::collections::BTreeMap;

use kube::config::Kubeconfig;

/// Whether it has not been said yet which cluster a MultiKueueCluster is, its age, and its name: the first one keeps the
/// worker.
pub(super) type Rank = (bool, i64, String);

/// Which API server each kubeconfig names, as far as they have been read.
#[derive(Debug, Default)]
pub(super) struct Twins {
    servers: BTreeMap<String, Option<String>>,
}

/// Whether a cluster may be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// No older one names the same worker.
    Free,
    /// The kubeconfig of an older one has not been read yet.
    Wait,
    /// This older one names the same worker.
    Taken(String),
}

impl Twins {
    /// What the kubeconfig of a cluster names; none if it cannot be used.
    pub(super) fn names(&mut self, cluster: &str, server: Option<String>) {
        self.servers.insert(cluster.to_owned(), server);
    }

    /// A cluster is gone, or named by another kubeconfig from now on.
    pub(super) fn forget(&mut self, cluster: &str) {
        self.servers.remove(cluster);
    }

    /// Whether `cluster` may be used, given all that have a kubeconfig.
    pub(super) fn claim(&self, cluster: &str, all: &[Rank]) -> Claim {
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

/// The API server that a kubeconfig's current context names, in one spelling.
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
    fn the_older_of_two_keeps_the_worker() {
        let all: Vec<Rank> =
            vec![(true, 1, "old".into()), (true, 2, "new".into()), (true, 2, "other".into())];
        let mut twins = Twins::default();
        twins.names("new", Some("w:443".into()));
        assert_eq!(twins.claim("new", &all), Claim::Wait, "the older one may name it, too");
        twins.names("old", Some("w:443".into()));
        assert_eq!(twins.claim("new", &all), Claim::Taken("old".into()));
        assert_eq!(twins.claim("old", &all), Claim::Free);
        let proven: Vec<Rank> = vec![(true, 1, "old".into()), (false, 2, "new".into())];
        assert_eq!(twins.claim("new", &proven), Claim::Free, "its jobs may be there");
        assert_eq!(twins.claim("old", &proven), Claim::Taken("new".into()));
        twins.names("old", None);
        assert_eq!(twins.claim("new", &all), Claim::Free, "one that cannot be read takes nothing");
        twins.names("other", Some("v:443".into()));
        assert_eq!(twins.claim("other", &all), Claim::Free);
        twins.forget("old");
        assert_eq!(twins.claim("other", &all), Claim::Wait);
    }

    #[test]
    fn a_server_is_known_in_any_spelling() {
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
