//! What agents said of themselves in sessions that are over. Pure.
//!
//! An agent that cannot act on its cluster says so in its session, and does not dial while it is so. Its word has to be in
//! the status of its MultiKueueCluster before another process of the hub needs it; the session may end sooner.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// It cannot act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    /// The session in which it said so. Ids of later sessions are higher, also those of other processes.
    pub(super) session: u64,
    /// Since when.
    pub(super) since: Timestamp,
}

/// The words of all, by cluster: at most one for each MultiKueueCluster.
#[derive(Debug, Default)]
pub(super) struct Words {
    clusters: BTreeMap<String, Option<Word>>,
}

impl Words {
    /// What is known of a MultiKueueCluster; the outer none: it is gone. `session`: the one that stands, by its status.
    pub(super) fn know(&mut self, cluster: &str, session: Option<Option<u64>>) {
        let Some(session) = session else {
            self.clusters.remove(cluster);
            return;
        };
        let word = self.clusters.entry(cluster.to_owned()).or_default();
        // It was back, with another process.
        word.take_if(|word| session.is_some_and(|session| session > word.session));
    }

    /// Its session has ended, and this was its word. That of a MultiKueueCluster which is gone is nobody's business.
    pub(super) fn keep(&mut self, cluster: &str, said: Word) {
        if let Some(word) = self.clusters.get_mut(cluster) {
            *word = Some(said);
        }
    }

    /// It has a session again.
    pub(super) fn take_back(&mut self, cluster: &str) {
        if let Some(word) = self.clusters.get_mut(cluster) {
            *word = None;
        }
    }

    /// Since when it could not act when its session ended.
    pub(super) fn left_unable(&self, cluster: &str) -> Option<Timestamp> {
        self.clusters.get(cluster)?.map(|word| word.since)
    }

    /// All that could not.
    pub(super) fn all(&self) -> Vec<String> {
        self.clusters
            .iter()
            .filter(|(_, word)| word.is_some())
            .map(|(name, _)| name.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_kept_until_there_is_something_newer() {
        type Later = fn(&mut Words);
        let cases: [(&str, Later, bool); 6] = [
            ("nothing happens", |_| {}, true),
            (
                "the status is written, and names no session",
                |words| words.know("west", Some(None)),
                true,
            ),
            (
                "the status still names the session that has ended",
                |words| words.know("west", Some(Some(7))),
                true,
            ),
            (
                "another process had a session with it",
                |words| words.know("west", Some(Some(8))),
                false,
            ),
            ("it has a session again", |words| words.take_back("west"), false),
            (
                "its MultiKueueCluster is made anew",
                |words| {
                    words.know("west", None);
                    words.know("west", Some(None));
                },
                false,
            ),
        ];
        for (case, later, kept) in cases {
            let mut words = Words::default();
            words.know("west", Some(None));
            words.keep("west", Word { session: 7, since: Timestamp::UNIX_EPOCH });
            later(&mut words);
            assert_eq!(words.left_unable("west").is_some(), kept, "{case}");
        }
    }

    #[test]
    fn of_a_cluster_that_is_gone_nothing_is_kept() {
        let mut words = Words::default();
        words.know("west", Some(None));
        words.know("west", None);
        words.keep("west", Word { session: 7, since: Timestamp::UNIX_EPOCH });
        assert!(words.all().is_empty() && words.clusters.is_empty());
    }
}
