//! Reason and message of the condition `WorkerTrouble`. Pure.

use jiff::Timestamp;
use switchyard_api::conditions::reasons::worker_trouble as reasons;
use switchyard_dispatcher::LossPolicy;
use switchyard_proto::trouble;
use switchyard_proto::v1::JobTrouble;

/// The hub's contact with a cluster, in wall-clock time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatcher_task) enum Connection {
    /// Its last report is fresh.
    Heard,
    /// It is disconnected.
    Silent(Loss),
    /// It is connected, and its agent does not reach its own API server.
    NotReady(Loss),
    /// Its MultiKueueCluster was deleted.
    Removed(Loss),
}

/// [`switchyard_dispatcher::LostContact`] in wall-clock time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatcher_task) struct Loss {
    pub(in crate::dispatcher_task) since: Timestamp,
    pub(in crate::dispatcher_task) given_up: Option<Timestamp>,
    pub(in crate::dispatcher_task) policy: LossPolicy,
    pub(in crate::dispatcher_task) is_fence_unsure: bool,
    pub(in crate::dispatcher_task) is_declared_lost: bool,
}

/// [`switchyard_dispatcher::Stuck`] in wall-clock time: a job without a ready pod, with `onStuck`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatcher_task) struct StuckJob {
    pub(in crate::dispatcher_task) since: Timestamp,
    /// The next move and the most allowed.
    pub(in crate::dispatcher_task) next_move: u32,
    pub(in crate::dispatcher_task) times: u32,
    pub(in crate::dispatcher_task) next: StuckNext,
    /// It has lasted so long that it is a problem by itself.
    pub(in crate::dispatcher_task) is_long: bool,
}

/// The hub's next step for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatcher_task) enum StuckNext {
    WithdrawAt(Timestamp),
    NoOtherCluster,
    NoMovesLeft,
}

/// Reason and message of the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatcher_task) struct TroubleDescription {
    /// From a closed set.
    pub(in crate::dispatcher_task) reason: &'static str,
    pub(in crate::dispatcher_task) message: String,
}

/// The condition of a job on a cluster. None without trouble.
pub(in crate::dispatcher_task) fn describe(
    cluster: &str,
    connection: &Connection,
    troubles: &[JobTrouble],
    stuck: Option<&StuckJob>,
) -> Option<TroubleDescription> {
    match connection {
        Connection::Heard => {
            let outlook = stuck.filter(|it| it.is_long || !troubles.is_empty()).map(outlook);
            let (reason, what) = match troubles.first() {
                Some(first) => (trouble::known_reason(&first.reason), all(troubles)),
                None => (reasons::NO_READY_POD, String::new()),
            };
            let said: Vec<String> =
                [what].into_iter().filter(|it| !it.is_empty()).chain(outlook).collect();
            (!said.is_empty()).then(|| TroubleDescription {
                reason,
                message: format!("on \"{cluster}\": {}", said.join("; ")),
            })
        }
        Connection::Silent(loss) => Some(TroubleDescription {
            reason: reasons::CLUSTER_UNREACHABLE,
            message: format!(
                "nothing was heard of \"{cluster}\" since {}: {AS_OF_THEN}; {}{}",
                loss.since,
                while_silent(loss),
                last_known(troubles)
            ),
        }),
        Connection::NotReady(loss) => Some(TroubleDescription {
            reason: reasons::AGENT_UNABLE,
            message: format!(
                "\"{cluster}\" is connected, but since {} its agent does not reach its own API server: {AS_OF_THEN}; {}{}",
                loss.since,
                while_not_ready(loss),
                last_known(troubles)
            ),
        }),
        Connection::Removed(loss) => {
            let then = match loss.given_up {
                Some(at) => format!(
                    "whatever its policy ({}), the hub gives it up there at {at} and queues it again",
                    policy(loss.policy)
                ),
                None => {
                    "the hub does not give it up there as long as its agent is connected".to_owned()
                }
            };
            let message = format!(
                "MultiKueueCluster \"{cluster}\" was deleted: the job may run on there, and {AS_OF_THEN} ({}); {then}. \
                 To keep the job, create the MultiKueueCluster again; to end it, delete it here and on the cluster",
                loss.since
            );
            Some(TroubleDescription { reason: reasons::CLUSTER_REMOVED, message })
        }
    }
}

/// State that is not fresh is not shown as if it were.
const AS_OF_THEN: &str = "what is shown of the job is as of then";

/// The policy in force, by the name under which the user finds it.
fn policy(policy: LossPolicy) -> &'static str {
    match policy {
        LossPolicy::Hold => "onDisconnect is Hold",
        LossPolicy::Fence { .. } => "onDisconnect is Fence",
        LossPolicy::Duplicate { .. } => "onDisconnect is Duplicate",
        LossPolicy::GiveUp => "no onDisconnect is set, so multiKueue.workerLostTimeout counts",
    }
}

/// The consequence of `onStuck` for a job without a ready pod.
fn outlook(stuck: &StuckJob) -> String {
    let StuckJob { since, next_move, times, next, .. } = stuck;
    let then = match next {
        StuckNext::WithdrawAt(at) => {
            format!("onStuck moves it to another cluster at {at} (move {next_move} of {times})")
        }
        StuckNext::NoOtherCluster => {
            "it stays, as no other cluster may take it (onStuck)".to_owned()
        }
        StuckNext::NoMovesLeft => format!("it stays, as onStuck has moved it {times} times"),
    };
    format!("no pod is ready since {since}; {then}")
}

/// The outlook of a job on a disconnected cluster.
fn while_silent(loss: &Loss) -> String {
    const STAYS: &str = "it stays there until the cluster is back, or is declared lost";
    let name = policy(loss.policy);
    match (loss.given_up, loss.policy) {
        (Some(at), _) if loss.is_declared_lost => {
            format!(
                "the cluster is declared lost: the hub gives the job up there at {at} and queues it again"
            )
        }
        (Some(at), LossPolicy::Fence { .. }) => {
            format!("{name}: its agent stops the job there, and the hub queues it again at {at}")
        }
        (Some(at), _) => format!(
            "{name}: the hub queues it again at {at}, and it may run twice until the cluster is back"
        ),
        (None, _) if loss.is_fence_unsure => format!(
            "{name}, but its agent has not confirmed the fence, or could not act when it was last heard: {STAYS}"
        ),
        (None, _) => format!("{name}: {STAYS}"),
    }
}

/// The outlook of a job whose agent is connected and cannot act.
fn while_not_ready(loss: &Loss) -> String {
    let name = policy(loss.policy);
    match loss.given_up {
        Some(at) => format!(
            "{name}: the hub queues it again at {at}, and it may run twice until the agent can act again"
        ),
        None => format!(
            "it may run on there and is not sent elsewhere until the agent reaches it: {name}, and an agent that cannot act \
             cannot stop it"
        ),
    }
}

fn last_known(troubles: &[JobTrouble]) -> String {
    if troubles.is_empty() { String::new() } else { format!("; last known: {}", all(troubles)) }
}

fn all(troubles: &[JobTrouble]) -> String {
    troubles.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn one(of: &JobTrouble) -> String {
    let since = of.since.and_then(|at| Timestamp::from_second(at.seconds).ok());
    let facts = match (of.count, since) {
        (0 | 1, None) => String::new(),
        (0 | 1, Some(since)) => format!(" (since {since})"),
        (count, None) => format!(" (count {count})"),
        (count, Some(since)) => format!(" (count {count}, since {since})"),
    };
    format!("{}{facts}: {}", trouble::known_reason(&of.reason), of.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn loss(policy: LossPolicy, given_up: Option<i64>) -> Loss {
        Loss {
            since: at(90),
            given_up: given_up.map(at),
            policy,
            is_fence_unsure: false,
            is_declared_lost: false,
        }
    }

    fn troubles(reasons: &[&str]) -> Vec<JobTrouble> {
        let since = Some(prost_types::Timestamp { seconds: 60, nanos: 0 });
        let one = |reason: &&str| JobTrouble {
            reason: (*reason).into(),
            message: "m".into(),
            count: 3,
            since,
        };
        reasons.iter().map(one).collect()
    }

    #[rstest::rstest]
    #[case::nothing(Connection::Heard, &[], "")]
    #[case::two_troubles(
        Connection::Heard, &["Unschedulable", "Volume"],
        "Unschedulable|on \"west\": Unschedulable (count 3, since 1970-01-01T00:01:00Z): m; \
         Volume (count 3, since 1970-01-01T00:01:00Z): m"
    )]
    #[case::a_made_up_reason(
        Connection::Heard, &["Evil"], "Other|on \"west\": Other (count 3, since 1970-01-01T00:01:00Z): m"
    )]
    #[case::held_cluster_is_silent(
        Connection::Silent(loss(LossPolicy::Hold, None)), &["Volume"],
        "ClusterUnreachable|nothing was heard of \"west\" since 1970-01-01T00:01:30Z: what is shown of the job is as of then; \
         onDisconnect is Hold: it stays there until the cluster is back, or is declared lost; last known: Volume (count 3, since \
         1970-01-01T00:01:00Z): m"
    )]
    #[case::fenced_cluster_is_silent(
        Connection::Silent(loss(LossPolicy::Fence { after: 0 }, Some(120))), &[],
        "ClusterUnreachable|nothing was heard of \"west\" since 1970-01-01T00:01:30Z: what is shown of the job is as of then; \
         onDisconnect is Fence: its agent stops the job there, and the hub queues it again at 1970-01-01T00:02:00Z"
    )]
    #[case::fence_is_not_confirmed(
        Connection::Silent(Loss { is_fence_unsure: true, ..loss(LossPolicy::Fence { after: 0 }, None) }), &[],
        "ClusterUnreachable|nothing was heard of \"west\" since 1970-01-01T00:01:30Z: what is shown of the job is as of then; \
         onDisconnect is Fence, but its agent has not confirmed the fence, or could not act when it was last heard: it stays \
         there until the cluster is back, or is declared lost"
    )]
    #[case::duplicated_job_is_on_a_silent_cluster(
        Connection::Silent(loss(LossPolicy::Duplicate { after: 0 }, Some(120))), &[],
        "ClusterUnreachable|nothing was heard of \"west\" since 1970-01-01T00:01:30Z: what is shown of the job is as of then; \
         onDisconnect is Duplicate: the hub queues it again at 1970-01-01T00:02:00Z, and it may run twice until the cluster is \
         back"
    )]
    #[case::silent_cluster_is_declared_lost(
        Connection::Silent(Loss { is_declared_lost: true, ..loss(LossPolicy::Hold, Some(90)) }), &[],
        "ClusterUnreachable|nothing was heard of \"west\" since 1970-01-01T00:01:30Z: what is shown of the job is as of then; \
         the cluster is declared lost: the hub gives the job up there at 1970-01-01T00:01:30Z and queues it again"
    )]
    #[case::agent_of_a_fenced_job_cannot_act(
        Connection::NotReady(loss(LossPolicy::Fence { after: 0 }, None)), &["Volume"],
        "AgentUnable|\"west\" is connected, but since 1970-01-01T00:01:30Z its agent does not reach its own API server: what is \
         shown of the job is as of then; it may run on there and is not sent elsewhere until the agent reaches it: onDisconnect \
         is Fence, and an agent that cannot act cannot stop it; last known: Volume (count 3, since 1970-01-01T00:01:00Z): m"
    )]
    #[case::agent_of_a_duplicated_job_cannot_act(
        Connection::NotReady(loss(LossPolicy::Duplicate { after: 0 }, Some(120))), &[],
        "AgentUnable|\"west\" is connected, but since 1970-01-01T00:01:30Z its agent does not reach its own API server: what is \
         shown of the job is as of then; onDisconnect is Duplicate: the hub queues it again at 1970-01-01T00:02:00Z, and it may \
         run twice until the agent can act again"
    )]
    #[case::removal(
        Connection::Removed(loss(LossPolicy::Hold, Some(120))), &["Volume"],
        "ClusterRemoved|MultiKueueCluster \"west\" was deleted: the job may run on there, and what is shown of the job is as of \
         then (1970-01-01T00:01:30Z); whatever its policy (onDisconnect is Hold), the hub gives it up there at \
         1970-01-01T00:02:00Z and queues it again. To keep the job, create the MultiKueueCluster again; to end it, delete it \
         here and on the cluster"
    )]
    fn description_has_reason_and_message(
        #[case] connection: Connection,
        #[case] reasons: &[&str],
        #[case] expected: &str,
    ) {
        let said = describe("west", &connection, &troubles(reasons), None);
        let said = said.map(|it| format!("{}|{}", it.reason, it.message)).unwrap_or_default();
        assert_eq!(said, expected);
    }

    #[rstest::rstest]
    #[case::starting_job(false, StuckNext::WithdrawAt(at(120)), &[], "")]
    #[case::move_is_planned(
        true, StuckNext::WithdrawAt(at(120)), &[],
        "NoReadyPod|on \"west\": no pod is ready since 1970-01-01T00:01:30Z; onStuck moves it to another cluster at \
         1970-01-01T00:02:00Z (move 2 of 3)"
    )]
    #[case::with_a_trouble(
        false, StuckNext::NoOtherCluster, &["Volume"],
        "Volume|on \"west\": Volume (count 3, since 1970-01-01T00:01:00Z): m; no pod is ready since 1970-01-01T00:01:30Z; it \
         stays, as no other cluster may take it (onStuck)"
    )]
    #[case::without_moves(
        true, StuckNext::NoMovesLeft, &[],
        "NoReadyPod|on \"west\": no pod is ready since 1970-01-01T00:01:30Z; it stays, as onStuck has moved it 3 times"
    )]
    fn job_without_ready_pod_shows_its_outlook(
        #[case] is_long: bool,
        #[case] next: StuckNext,
        #[case] reasons: &[&str],
        #[case] expected: &str,
    ) {
        let stuck = StuckJob { since: at(90), next_move: 2, times: 3, next, is_long };
        let said = describe("west", &Connection::Heard, &troubles(reasons), Some(&stuck));
        let said = said.map(|it| format!("{}|{}", it.reason, it.message)).unwrap_or_default();
        assert_eq!(said, expected);
    }
}
