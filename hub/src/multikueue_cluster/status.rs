//! `status.agent` of a MultiKueueCluster. Pure.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use switchyard_api::quantity::format_amount;
use switchyard_api::v1beta2::{AgentCapacity, AgentStatus, OrphanedWorkload};
use switchyard_dispatcher::OrphanView;
use switchyard_proto::v1::{Capacity, NodeBin};

use crate::hosted::HOSTED_SOFTWARE;
use crate::server::LiveSession;

/// The CRD's limit of capacity rows.
const ROWS: usize = 256;

/// `status.agent` for a live session, or for an agent that has left.
pub fn agent_status(
    live: Option<&LiveSession>,
    left_unable: Option<jiff::Timestamp>,
    last: Option<&AgentStatus>,
    capacity: Option<&Capacity>,
) -> Option<AgentStatus> {
    match live {
        Some(live) => Some(connected(live, capacity)),
        None => disconnected(last, left_unable),
    }
}

/// `status.agent` for a live session.
pub(super) fn connected(live: &LiveSession, capacity: Option<&Capacity>) -> AgentStatus {
    AgentStatus {
        connected_since: second(live.since),
        unable_since: live.unable.and_then(second),
        software: Some(live.software.clone()),
        version: Some(live.version.to_string()),
        session_id: Some(live.session_id.to_string()),
        cluster_uid: live.worker.clone(),
        capacity: capacity.map(rows).unwrap_or_default(),
    }
}

/// `status.agent` after the session: that there was an agent, where it ran, and whether it could
/// write. `left_unable` is set if it reported that in its last session and the status does not show
/// it yet.
fn disconnected(
    last: Option<&AgentStatus>,
    left_unable: Option<jiff::Timestamp>,
) -> Option<AgentStatus> {
    let unable_since = left_unable.and_then(second);
    let Some(last) = last else {
        return unable_since
            .is_some()
            .then(|| AgentStatus { unable_since, ..AgentStatus::default() });
    };
    let hosted = last.software.as_deref() == Some(HOSTED_SOFTWARE);
    let (software, version) =
        if hosted { (None, None) } else { (last.software.clone(), last.version.clone()) };
    let (cluster_uid, unable_since) =
        (last.cluster_uid.clone(), unable_since.or_else(|| last.unable_since.clone()));
    Some(AgentStatus { software, version, cluster_uid, unable_since, ..AgentStatus::default() })
}

/// The API stores whole seconds.
fn second(at: jiff::Timestamp) -> Option<Time> {
    jiff::Timestamp::from_second(at.as_second()).ok().map(Time)
}

/// `status.agent` of a kubeconfig worker without a session: only the cluster's uid.
pub(super) fn place(last: &AgentStatus) -> Option<AgentStatus> {
    let cluster_uid = last.cluster_uid.clone();
    cluster_uid.is_some().then(|| AgentStatus { cluster_uid, ..AgentStatus::default() })
}

/// The status entry of an orphan.
pub(super) fn orphan(view: &OrphanView) -> OrphanedWorkload {
    let since = jiff::Timestamp::from_second(view.since.div_euclid(1000))
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    OrphanedWorkload {
        workload_uid: view.uid.chars().take(64).collect(),
        namespace: view.namespace.chars().take(64).collect(),
        name: view.name.chars().take(253).collect(),
        attempt: i64::try_from(view.attempt).unwrap_or(i64::MAX),
        state: format!("{:?}", view.state),
        since: Time(since),
        note: view.note.as_ref().map(|note| note.chars().take(512).collect()),
    }
}

/// Whether two statuses differ in more than capacity, which changes all the time.
pub(super) fn differ_beyond_capacity(a: Option<&AgentStatus>, b: Option<&AgentStatus>) -> bool {
    let bare = |status: Option<&AgentStatus>| {
        status.map(|status| AgentStatus { capacity: Vec::new(), ..status.clone() })
    };
    bare(a) != bare(b)
}

/// Cuts a text of an agent to the CRD's limit. Without that, the status could not be written.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn rows(capacity: &Capacity) -> Vec<AgentCapacity> {
    let rows = capacity.queues.iter().flat_map(|queue| {
        queue.flavors.iter().map(|flavor| {
            let amount = |amount: i64| Quantity(format_amount(&flavor.resource, amount));
            let on_nodes = on_nodes(capacity, &flavor.flavor, &flavor.resource);
            AgentCapacity {
                local_queue: cut(&format!("{}/{}", queue.namespace, queue.local_queue), 317),
                cluster_queue: cut(&queue.cluster_queue, 253),
                flavor: cut(&flavor.flavor, 253),
                resource: cut(&flavor.resource, 317),
                nominal: amount(flavor.nominal),
                used: amount(flavor.used),
                available: amount(flavor.available.max(0)),
                free_on_nodes: on_nodes.map(|(all, _)| amount(all)),
                free_on_one_node: on_nodes.map(|(_, most)| amount(most)),
            }
        })
    });
    rows.take(ROWS).collect()
}

/// Free on all nodes of a flavor together, and on the node with most. None if that is unknown, or
/// known only as a lower bound.
fn on_nodes(capacity: &Capacity, flavor: &str, resource: &str) -> Option<(i64, i64)> {
    let room = capacity.rooms.iter().find(|room| room.flavor == flavor && !room.coarse)?;
    // A resource that no node offers is not one of nodes, such as the output of a transformation.
    let offers = |bin: &NodeBin| bin.free.contains_key(resource);
    if !room.bins.is_empty() && !room.bins.iter().any(offers) {
        return None;
    }
    let free = |bin: &NodeBin| bin.free.get(resource).copied().unwrap_or(0).max(0);
    let all = |bin: &NodeBin| free(bin).saturating_mul(i64::from(bin.nodes));
    let sum = room.bins.iter().map(all).fold(0_i64, i64::saturating_add);
    Some((sum, room.bins.iter().map(free).max().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchyard_proto::v1::{FlavorCapacity, FlavorRoom, QueueCapacity};

    #[test]
    fn unable_since_stays_in_status_until_agent_is_back() {
        let live = |unable: Option<&str>| LiveSession {
            session_id: 1,
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            software: "switchyard-agent".into(),
            version: 1,
            address: String::new(),
            worker: None,
            unable: unable.map(|at| at.parse().unwrap()),
            proves: false,
            skew: None,
        };
        let said = |status: &AgentStatus| status.unable_since.as_ref().map(|at| at.0.to_string());
        let unable = connected(&live(Some("2026-01-01T00:01:00.5Z")), None);
        assert_eq!(said(&unable).as_deref(), Some("2026-01-01T00:01:00Z"));
        assert!(
            differ_beyond_capacity(Some(&connected(&live(None), None)), Some(&unable)),
            "written at once"
        );
        let gone = disconnected(Some(&unable), None).unwrap();
        assert_eq!((said(&gone), gone.connected_since.is_none()), (said(&unable), true));
        assert_eq!(said(&connected(&live(None), None)), None);
        let able = connected(&live(None), None);
        let since = "2026-01-01T00:01:00.5Z".parse().ok();
        for (case, last) in [("it had a status", Some(&able)), ("it left before it had any", None)]
        {
            let gone = disconnected(last, since).unwrap();
            assert_eq!(said(&gone), said(&unable), "left before it was written: {case}");
        }
        assert_eq!(disconnected(None, None), None);
    }

    #[test]
    fn free_on_nodes_is_absent_unless_known() {
        let bin = |nodes, cpu| NodeBin {
            nodes,
            free: [("cpu".to_owned(), cpu)].into(),
            ..NodeBin::default()
        };
        let room = |flavor: &str, bins: Vec<NodeBin>, coarse| FlavorRoom {
            flavor: flavor.into(),
            bins,
            coarse,
            ..FlavorRoom::default()
        };
        let rooms = vec![
            room("exact", vec![bin(2, 4), bin(1, 6)], false),
            room("coarse", vec![bin(2, 4)], true),
            room("closed", Vec::new(), false),
        ];
        let capacity = Capacity { rooms, ..Capacity::default() };
        let cases =
            [("exact", Some((14, 6))), ("coarse", None), ("closed", Some((0, 0))), ("x", None)];
        for (flavor, expected) in cases {
            assert_eq!(on_nodes(&capacity, flavor, "cpu"), expected, "{flavor}");
        }
        for (flavor, expected) in [("exact", None), ("closed", Some((0, 0)))] {
            assert_eq!(on_nodes(&capacity, flavor, "x/credits"), expected, "{flavor}: of no node");
        }
    }

    #[test]
    fn capacity_is_written_as_quantities_and_bounded() {
        let flavor = FlavorCapacity {
            flavor: "default".into(),
            resource: "cpu".into(),
            nominal: 4000,
            used: 1500,
            available: -10,
            ..FlavorCapacity::default()
        };
        let queue = QueueCapacity {
            namespace: "ns".into(),
            local_queue: "lq".into(),
            cluster_queue: "cq".into(),
            flavors: vec![flavor; 300],
            ..QueueCapacity::default()
        };
        let rows = rows(&Capacity { queues: vec![queue], ..Capacity::default() });
        assert_eq!(rows.len(), ROWS);
        let said = format!(
            "{} {} {} {}",
            rows[0].local_queue, rows[0].nominal.0, rows[0].used.0, rows[0].available.0
        );
        assert_eq!(said, "ns/lq 4 1500m 0");
    }
}
