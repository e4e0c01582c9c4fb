//! When each alert fires, and when it does not. A sample a minute.

use super::alerts::{Case, Labels};

const CQ: Labels = &[("cluster_queue", "cq"), ("job", "hub")];
const EAST: Labels = &[("cluster", "east"), ("job", "hub")];
const HUB: Labels = &[("job", "hub")];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = replicas();
    cases.extend(queues());
    cases.extend(times());
    cases.extend(clusters());
    cases.extend(writes());
    cases.extend(audits());
    cases
}

fn replicas() -> Vec<Case> {
    let (first, second) =
        (r#"up{job="switchyard-hub",instance="a"}"#, r#"up{job="switchyard-hub",instance="b"}"#);
    let queue = |instance: &str, role: &str| {
        let replica = format!(r#"instance="{instance}",replica_role="{role}""#);
        format!(
            r#"kueue_cluster_queue_status{{job="hub",cluster_queue="cq",status="active",{replica}}}"#
        )
    };
    vec![
        Case::new("SwitchyardAbsent", "nobody answers")
            .series(first, "1x4 0x20")
            .after(12)
            .fires(&[], "No Switchyard answers"),
        Case::new("SwitchyardAbsent", "nobody is scraped")
            .series(r#"up{job="node"}"#, "1x20")
            .after(12)
            .fires(&[], "No Switchyard answers"),
        Case::new("SwitchyardAbsent", "one of two answers")
            .series(first, "0x20")
            .series(second, "1x20")
            .after(12),
        Case::new("SwitchyardDown", "one of two does not answer")
            .series(first, "1x20")
            .series(second, "1x4 0x20")
            .after(12)
            .fires(
                &[("instance", "b"), ("job", "switchyard-hub")],
                "b of switchyard-hub does not answer",
            ),
        Case::new("SwitchyardDown", "a restart takes three minutes")
            .series(first, "1x4 0x3 1x20")
            .after(8),
        Case::new("SwitchyardDown", "somebody else does not answer")
            .series(r#"up{job="node"}"#, "0x20")
            .after(12),
        Case::new("SwitchyardNoLeader", "two replicas follow")
            .series(&queue("a", "follower"), "1x20")
            .series(&queue("b", "leader"), "1x4 stale")
            .series(&queue("b", "follower"), "_x5 1x20")
            .after(7)
            .fires(HUB, "No replica of hub leads"),
        Case::new("SwitchyardNoLeader", "the other replica takes over")
            .series(&queue("a", "leader"), "1x4 stale")
            .series(&queue("b", "follower"), "1x4 stale")
            .series(&queue("b", "leader"), "_x5 1x20")
            .after(9),
    ]
}

fn queues() -> Vec<Case> {
    let pending = |status: &str, instance: &str, role: &str| {
        format!(
            r#"kueue_pending_workloads{{job="hub",cluster_queue="cq",status="{status}",instance="{instance}",replica_role="{role}"}}"#
        )
    };
    let quota = |metric: &str| {
        format!(
            r#"kueue_cluster_queue_{metric}{{job="hub",cohort="all",cluster_queue="cq",flavor="f",resource="cpu"}}"#
        )
    };
    let status = |status: &str| {
        format!(r#"kueue_cluster_queue_status{{job="hub",cluster_queue="cq",status="{status}"}}"#)
    };
    let evicted = |reason: &str| {
        format!(
            r#"kueue_evicted_workloads_total{{job="hub",cluster_queue="cq",reason="{reason}",priority_class="low"}}"#
        )
    };
    let admitted =
        r#"kueue_admitted_workloads_total{job="hub",cluster_queue="cq",priority_class="low"}"#;
    vec![
        Case::new("SwitchyardPending", "101 wait, parked or not")
            .series(&pending("active", "a", "leader"), "61x20")
            .series(&pending("inadmissible", "a", "leader"), "40x20")
            .after(15)
            .fires(CQ, "101 workloads wait in ClusterQueue cq"),
        Case::new("SwitchyardPending", "two replicas show the same 60")
            .series(&pending("active", "a", "leader"), "60x20")
            .series(&pending("active", "b", "follower"), "60x20")
            .after(15),
        Case::new("SwitchyardPending", "a burst is gone after five minutes")
            .series(&pending("active", "a", "leader"), "500x5 0x20")
            .after(7),
        Case::new("SwitchyardQueueFull", "19 of 20 cores are used")
            .series(&quota("resource_usage"), "19x30")
            .series(&quota("nominal_quota"), "20x30")
            .after(20)
            .fires(
                &[
                    ("cluster_queue", "cq"),
                    ("cohort", "all"),
                    ("flavor", "f"),
                    ("job", "hub"),
                    ("resource", "cpu"),
                ],
                "ClusterQueue cq uses 95% of its cpu in f",
            ),
        Case::new("SwitchyardQueueFull", "18 of 20 cores are used")
            .series(&quota("resource_usage"), "18x30")
            .series(&quota("nominal_quota"), "20x30")
            .after(20),
        Case::new("SwitchyardQueueFull", "a queue without quota of its own borrows")
            .series(&quota("resource_usage"), "19x30")
            .series(&quota("nominal_quota"), "0x30")
            .after(20),
        Case::new("SwitchyardQueueInactive", "a flavor is missing")
            .series(&status("pending"), "0x4 1x30")
            .series(&status("active"), "1x4 0x30")
            .after(25)
            .fires(
                &[("cluster_queue", "cq"), ("job", "hub"), ("status", "pending")],
                "ClusterQueue cq is not active",
            ),
        Case::new("SwitchyardQueueInactive", "it is active")
            .series(&status("pending"), "0x30")
            .after(25),
        Case::new("SwitchyardEvictions", "two of three are evicted, for two reasons")
            .series(&evicted("Preempted"), "0+1x60")
            .series(&evicted("PodsReadyTimeout"), "0+1x60")
            .series(admitted, "0+3x60")
            .after(50)
            .fires(CQ, "ClusterQueue cq evicts more than half of what it admits"),
        Case::new("SwitchyardEvictions", "one of three is evicted")
            .series(&evicted("Preempted"), "0+1x60")
            .series(admitted, "0+3x60")
            .after(50),
        Case::new("SwitchyardEvictions", "few are evicted, and fewer admitted")
            .series(&evicted("Preempted"), "0x30 5x30")
            .series(admitted, "0x60")
            .after(50),
    ]
}

/// A histogram with these counts a minute up to these bounds.
fn histogram(mut case: Case, metric: &str, labels: &str, buckets: &[(&str, u32)]) -> Case {
    for (bound, count) in buckets {
        case = case.series(
            &format!(r#"{metric}_bucket{{{labels},le="{bound}"}}"#),
            &format!("0+{count}x60"),
        );
    }
    case
}

fn times() -> Vec<Case> {
    let wait = |case, buckets| {
        let labels = r#"job="hub",cluster_queue="cq",priority_class="low",instance="a",replica_role="leader""#;
        histogram(case, "kueue_admission_wait_time_seconds", labels, buckets).after(20)
    };
    let cycle = |case, buckets| {
        let labels = r#"job="hub",result="success",instance="a",replica_role="leader""#;
        histogram(case, "kueue_admission_attempt_duration_seconds", labels, buckets).after(30)
    };
    vec![
        wait(
            Case::new("SwitchyardAdmissionSlow", "two of a hundred wait ten seconds"),
            &[("1.0", 98), ("5.0", 98), ("10.0", 100), ("+Inf", 100)],
        )
        .fires(CQ, "Admission takes 7.5s in ClusterQueue cq"),
        wait(
            Case::new("SwitchyardAdmissionSlow", "all are admitted within a second"),
            &[("1.0", 100), ("5.0", 100), ("10.0", 100), ("+Inf", 100)],
        ),
        wait(
            Case::new("SwitchyardAdmissionSlow", "nothing was admitted"),
            &[("1.0", 0), ("5.0", 0), ("10.0", 0), ("+Inf", 0)],
        ),
        cycle(
            Case::new("SwitchyardCycleSlow", "half of the cycles take two seconds"),
            &[("0.1", 50), ("1.0", 50), ("2.5", 100), ("+Inf", 100)],
        )
        .fires(HUB, "Scheduling cycles of hub take 2.47s"),
        cycle(
            Case::new("SwitchyardCycleSlow", "cycles take a tenth of a second"),
            &[("0.1", 100), ("1.0", 100), ("2.5", 100), ("+Inf", 100)],
        ),
    ]
}

fn clusters() -> Vec<Case> {
    let connected = r#"switchyard_cluster_connected{job="hub",cluster="east",instance="a"}"#;
    let able = r#"switchyard_cluster_able{job="hub",cluster="east",instance="a"}"#;
    let orphans = r#"switchyard_cluster_orphans{job="hub",cluster="east",instance="a"}"#;
    let breaker = r#"switchyard_breaker_open{job="hub",instance="a"}"#;
    let session =
        |instance| format!(r#"switchyard_agent_session_up{{job="agent",instance="{instance}"}}"#);
    let given_up = |reason: &str| {
        format!(
            r#"switchyard_workloads_taken_back_total{{job="hub",cluster="east",instance="a",reason="{reason}"}}"#
        )
    };
    vec![
        Case::new("SwitchyardClusterLost", "there has been no session for six minutes")
            .series(connected, "1x4 0x20")
            .after(11)
            .fires(EAST, "The hub has no session with cluster east"),
        Case::new("SwitchyardClusterLost", "the session came back")
            .series(connected, "1x4 0x3 1x20")
            .after(11),
        Case::new("SwitchyardClusterUnable", "its API server has been away for three minutes")
            .series(able, "1x4 0x20")
            .after(8)
            .fires(EAST, "The agent of cluster east does not reach its own API server"),
        Case::new("SwitchyardClusterUnable", "its API server was restarted")
            .series(able, "1x4 0x1 1x20")
            .after(8),
        Case::new("SwitchyardClusterUnable", "it is not connected, and could act when it was")
            .series(able, "1x4 stale")
            .after(8),
        Case::new("SwitchyardClusterFlapping", "it came and went eight times")
            .series(connected, "1 0 1 0 1 0 1 0 1x60")
            .after(40)
            .fires(EAST, "The session with cluster east came and went 8 times in an hour"),
        Case::new("SwitchyardClusterFlapping", "it came and went once")
            .series(connected, "1 0 1x60")
            .after(40),
        Case::new("SwitchyardAgentAlone", "no replica of the agent has a session")
            .series(&session("a"), "1x4 0x20")
            .series(&session("b"), "0x20")
            .after(11)
            .fires(&[("job", "agent")], "agent has no session with the hub"),
        Case::new("SwitchyardAgentAlone", "the other replica of the agent has a session")
            .series(&session("a"), "1x4 0x20")
            .series(&session("b"), "0x4 1x20")
            .after(11),
        Case::new("SwitchyardBreakerOpen", "it has opened")
            .series(breaker, "0x4 1x20")
            .after(6)
            .fires(HUB, "The circuit breaker is open"),
        Case::new("SwitchyardBreakerOpen", "it was closed again")
            .series(breaker, "0x4 1x4 0x20")
            .after(12),
        Case::new("SwitchyardOrphans", "three were found")
            .series(orphans, "0x4 3x20")
            .after(8)
            .fires(EAST, "3 workloads of this hub on cluster east are not known to it"),
        Case::new("SwitchyardOrphans", "those that were found are gone")
            .series(orphans, "3x4 0x20")
            .after(8),
        Case::new("SwitchyardWorkGivenUp", "four attempts were given up")
            .series(&given_up("ClusterLost"), "0x30 4x30")
            .after(40)
            .fires(
                &[("cluster", "east"), ("job", "hub"), ("reason", "ClusterLost")],
                "4 attempts on lost cluster east were given up",
            ),
        Case::new("SwitchyardWorkGivenUp", "the first four were given up")
            .series(&given_up("ClusterLost"), "_x30 4x30")
            .after(40)
            .fires(
                &[("cluster", "east"), ("job", "hub"), ("reason", "ClusterLost")],
                "4 attempts on lost cluster east were given up",
            ),
        Case::new("SwitchyardWorkGivenUp", "people moved four")
            .series(&given_up("Moved"), "0x30 4x30")
            .after(40),
        Case::new("SwitchyardWorkGivenUp", "it was long ago")
            .series(&given_up("ClusterLost"), "0x4 4x90")
            .after(60),
    ]
}

fn writes() -> Vec<Case> {
    let write = |result: &str| {
        format!(
            r#"switchyard_api_writes_total{{job="hub",instance="a",what="workload",result="{result}"}}"#
        )
    };
    let dropped = r#"switchyard_events_dropped_total{job="hub",instance="a"}"#;
    vec![
        Case::new("SwitchyardWritesFail", "one of five fails")
            .series(&write("ok"), "0+40x60")
            .series(&write("failed"), "0+10x60")
            .after(30)
            .fires(HUB, "20% of the writes of hub fail"),
        Case::new("SwitchyardWritesFail", "one of fifty has a conflict")
            .series(&write("ok"), "0+49x60")
            .series(&write("failed"), "0+1x60")
            .after(30),
        Case::new("SwitchyardEventsDropped", "some were dropped")
            .series(dropped, "0x10 5x30")
            .after(15)
            .fires(HUB, "hub did not write 5 Events"),
        Case::new("SwitchyardEventsDropped", "none was dropped").series(dropped, "0x40").after(15),
    ]
}

fn audits() -> Vec<Case> {
    let found = |kind: &str| {
        format!(r#"switchyard_audit_findings{{job="hub",kind="{kind}",instance="a"}}"#)
    };
    let name = "SwitchyardAuditFindings";
    vec![
        Case::new(name, "pods run above their charge")
            .series(&found("RunsAboveCharge"), "0x4 2x30")
            .after(25)
            .fires(
                &[("job", "hub"), ("kind", "RunsAboveCharge")],
                "The audit of hub has 2 of RunsAboveCharge",
            ),
        Case::new(name, "a pod ended late")
            .series(&found("RunsAboveCharge"), "0x4 1x5 0x30")
            .after(25),
        Case::new(name, "a quota was lowered")
            .series(&found("ChargedAboveQuota"), "1x40")
            .after(35),
    ]
}
