//! Reason and message of the condition `WorkerTrouble`. Pure.

use jiff::Timestamp;
use switchyard_api::conditions::reasons::worker_trouble as reasons;
use switchyard_proto::trouble;
use switchyard_proto::v1::JobTrouble;

/// The hub's contact with a cluster, in wall-clock time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatcher_task) enum Connection {
    /// Its last report is fresh.
    Heard,
    /// It is silent.
    Silent { since: Timestamp, given_up: Option<Timestamp> },
    /// Its MultiKueueCluster was deleted.
    Removed { given_up: Option<Timestamp> },
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
) -> Option<TroubleDescription> {
    let known = || troubles.iter().map(one).collect::<Vec<_>>().join("; ");
    match connection {
        Connection::Heard => {
            let first = troubles.first()?;
            Some(TroubleDescription {
                reason: trouble::known_reason(&first.reason),
                message: format!("on \"{cluster}\": {}", known()),
            })
        }
        Connection::Silent { since, given_up } => {
            let then = match given_up {
                Some(at) => format!("it is given up there at {at}"),
                None => {
                    "it stays there until the cluster is back (onDisconnect is Hold), or is declared lost".to_owned()
                }
            };
            let last = if troubles.is_empty() {
                String::new()
            } else {
                format!("; last known: {}", known())
            };
            let message = format!(
                "nothing was heard of \"{cluster}\" since {since}: what is shown of the job is as of then; {then}{last}"
            );
            Some(TroubleDescription { reason: reasons::CLUSTER_UNREACHABLE, message })
        }
        Connection::Removed { given_up } => {
            let then = match given_up {
                Some(at) => format!("the hub gives it up there at {at} and queues it again"),
                None => "the hub does not give it up there as things are".to_owned(),
            };
            let message = format!(
                "MultiKueueCluster \"{cluster}\" was deleted: the job may run on there, and nothing is heard of it; {then}. \
                 To keep the job, create the MultiKueueCluster again; to end it, delete it here and on the cluster"
            );
            Some(TroubleDescription { reason: reasons::CLUSTER_REMOVED, message })
        }
    }
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
    #[case::silence(
        Connection::Silent { since: at(90), given_up: None }, &["Volume"],
        "ClusterUnreachable|nothing was heard of \"west\" since 1970-01-01T00:01:30Z: what is shown of the job is as of then; it \
         stays there until the cluster is back (onDisconnect is Hold), or is declared lost; last known: Volume (count 3, since \
         1970-01-01T00:01:00Z): m"
    )]
    #[case::removal(
        Connection::Removed { given_up: Some(at(120)) }, &["Volume"],
        "ClusterRemoved|MultiKueueCluster \"west\" was deleted: the job may run on there, and nothing is heard of it; the hub gives \
         it up there at 1970-01-01T00:02:00Z and queues it again. To keep the job, create the MultiKueueCluster again; to end \
         it, delete it here and on the cluster"
    )]
    fn description_has_reason_and_message(
        #[case] connection: Connection,
        #[case] reasons: &[&str],
        #[case] expected: &str,
    ) {
        let said = describe("west", &connection, &troubles(reasons));
        let said = said.map(|it| format!("{}|{}", it.reason, it.message)).unwrap_or_default();
        assert_eq!(said, expected);
    }
}
