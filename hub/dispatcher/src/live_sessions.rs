//! The newest session of each cluster. Messages of older sessions do not count.

use std::collections::BTreeMap;

use super::{DispatchEvent, Name};

#[derive(Debug, Default)]
pub struct LiveSessions {
    live: BTreeMap<Name, u64>,
}

impl LiveSessions {
    /// A session began. Returns the events for the dispatcher: none if a newer session exists.
    pub fn open(&mut self, cluster: &Name, session_id: u64) -> Vec<DispatchEvent> {
        if self.live.get(cluster).is_some_and(|live| *live >= session_id) {
            return Vec::new();
        }
        let before = self.live.insert(cluster.clone(), session_id);
        let down = before.map(|_| DispatchEvent::SessionClosed { name: cluster.clone() });
        down.into_iter().chain([DispatchEvent::SessionOpened { name: cluster.clone() }]).collect()
    }

    /// A session ended. Returns the event for the dispatcher: none if it was not the newest.
    pub fn close(&mut self, cluster: &Name, session_id: u64) -> Option<DispatchEvent> {
        if !self.is_live(cluster, session_id) {
            return None;
        }
        self.live.remove(cluster);
        Some(DispatchEvent::SessionClosed { name: cluster.clone() })
    }

    /// Whether this is the newest session of the cluster.
    pub fn is_live(&self, cluster: &str, session_id: u64) -> bool {
        self.live.get(cluster) == Some(&session_id)
    }

    /// The connected clusters.
    pub fn clusters(&self) -> impl Iterator<Item = &Name> {
        self.live.keys()
    }

    pub fn has_session(&self, cluster: &str) -> bool {
        self.live.contains_key(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newest_session_counts() {
        let (mut sessions, west) = (LiveSessions::default(), Name::from("west"));
        let lines = |events: Vec<DispatchEvent>| {
            events.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(lines(sessions.open(&west, 7)), r#"SessionOpened { name: "west" }"#);
        assert_eq!(lines(sessions.open(&west, 6)), "", "an older one comes late");
        assert_eq!(
            lines(sessions.open(&west, 8)),
            r#"SessionClosed { name: "west" } SessionOpened { name: "west" }"#
        );
        assert!(sessions.close(&west, 7).is_none(), "it has not counted any more");
        assert!(sessions.has_session("west") && sessions.is_live("west", 8));
        assert!(sessions.close(&west, 8).is_some() && !sessions.has_session("west"));
    }
}
