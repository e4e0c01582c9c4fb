//! The memory of an agent that survives its process: the highest epoch, and the end of the hub's
//! lease.
//!
//! A Lease in the agent's namespace holds it. So a restarted agent without a hub still stops jobs
//! with a fence, and rejects a deposed leader. `holderIdentity` is the hub, `leaseTransitions` the
//! epoch, and the lease ends `leaseDurationSeconds` after `renewTime`. The memory may lag behind,
//! never lead: then jobs stop earlier than necessary.
//!
//! # Caveats
//!
//! - Between two processes, only the wall clock counts. If it is set forward, jobs stop too early.
//!   If it is set back, they run for at most one more lease.
//! - An epoch is stored just after the first message with it was applied. An agent that ends in
//!   between forgets it.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use switchyard_api::names;
use switchyard_platform::api_call::within;
use tokio::sync::watch;

/// The Lease, in the agent's own namespace.
pub const LEASE: &str = "switchyard-agent-hub";

/// The deadline of a request, which is then repeated.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// The content of the Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EpochAndLease {
    /// The highest epoch.
    pub(crate) epoch: u64,
    /// The end of the lease, if any job had a fence.
    pub(crate) until: Option<Timestamp>,
}

/// Reads and writes the Lease.
pub(crate) struct Memory {
    api: Api<Lease>,
    hub_id: String,
}

impl Memory {
    pub(crate) fn new(client: kube::Client, namespace: &str, hub_id: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), hub_id: hub_id.to_owned() }
    }

    /// Reads the memory. Waits for an unavailable API server.
    pub(crate) async fn recall(&self) -> EpochAndLease {
        let read = || async { within(ANSWER_DEADLINE, self.api.get_opt(LEASE)).await };
        let notify = |error: &kube::Error, wait: Duration| {
            tracing::warn!(%error, ?wait, lease = LEASE, "cannot be read, will try again");
        };
        let lease = read.retry(retries()).notify(notify).await;
        lease
            .ok()
            .flatten()
            .map(|lease| read_lease(&lease, &self.hub_id, Timestamp::now()))
            .unwrap_or_default()
    }

    /// Writes changes until the sender is dropped, and only while this process may write, so as not
    /// to overwrite another replica's memory. Newer values replace unwritten ones.
    pub(crate) async fn keep(
        self,
        mut news: watch::Receiver<EpochAndLease>,
        may_write: impl Fn() -> bool,
    ) {
        while news.changed().await.is_ok() {
            let mut failures = 0;
            loop {
                if !may_write() {
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
                let newest = *news.borrow_and_update();
                let Err(error) = self.write(newest).await else { break };
                failures += 1;
                tracing::warn!(%error, lease = LEASE, failures, "cannot be written, will try again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn write(&self, remembered: EpochAndLease) -> kube::Result<()> {
        let lease = to_lease(remembered, &self.hub_id, Timestamp::now());
        let params = PatchParams {
            field_manager: Some(names::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match within(ANSWER_DEADLINE, self.api.patch(LEASE, &params, &Patch::Merge(&lease))).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                within(ANSWER_DEADLINE, self.api.create(&PostParams::default(), &lease))
                    .await
                    .map(drop)
            }
            other => other.map(drop),
        }
    }
}

/// The delay before a write is repeated.
const RETRY: Duration = Duration::from_secs(1);

fn retries() -> ExponentialBuilder {
    let backoff = ExponentialBuilder::default().with_jitter().without_max_times();
    backoff.with_min_delay(Duration::from_millis(200)).with_max_delay(Duration::from_secs(5))
}

fn to_lease(remembered: EpochAndLease, hub_id: &str, now: Timestamp) -> Lease {
    // The Lease's duration is in whole seconds, at least one. The renewal time makes up for the
    // difference.
    let left = |until: Timestamp| until.duration_since(now).as_secs().clamp(1, i64::from(i32::MAX));
    let spec = LeaseSpec {
        holder_identity: Some(hub_id.to_owned()),
        lease_transitions: i32::try_from(remembered.epoch).ok(),
        lease_duration_seconds: remembered.until.and_then(|until| i32::try_from(left(until)).ok()),
        renew_time: remembered
            .until
            .and_then(|until| Some(MicroTime(until.checked_sub(seconds(left(until))).ok()?))),
        ..LeaseSpec::default()
    };
    Lease {
        metadata: ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() },
        spec: Some(spec),
    }
}

fn read_lease(lease: &Lease, hub_id: &str, now: Timestamp) -> EpochAndLease {
    let Some(spec) =
        lease.spec.as_ref().filter(|spec| spec.holder_identity.as_deref() == Some(hub_id))
    else {
        return EpochAndLease::default();
    };
    let until = spec.renew_time.as_ref().zip(spec.lease_duration_seconds).and_then(
        |(renewed, duration)| {
            // A renewal in the future means that the clock was set back.
            renewed.0.min(now).checked_add(seconds(duration.into())).ok()
        },
    );
    EpochAndLease {
        epoch: spec.lease_transitions.and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or(0),
        until,
    }
}

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: &str) -> Timestamp {
        format!("2026-11-21T10:00:{second}Z").parse().unwrap()
    }

    #[rstest::rstest]
    #[case::an_epoch_alone(None)]
    #[case::a_lease(Some("29.75"))]
    #[case::one_that_has_lapsed(Some("03.5"))]
    fn memory_round_trips_through_lease(#[case] until: Option<&str>) {
        let remembered = EpochAndLease { epoch: 7, until: until.map(at) };
        let lease = to_lease(remembered, "hub", at("05"));
        assert_eq!(read_lease(&lease, "hub", at("20")), remembered);
        assert_eq!(read_lease(&lease, "another", at("20")), EpochAndLease::default());
    }

    #[test]
    fn clock_set_back_grants_at_most_one_lease() {
        let lease = to_lease(EpochAndLease { epoch: 1, until: Some(at("50")) }, "hub", at("40"));
        assert_eq!(read_lease(&lease, "hub", at("00")).until, Some(at("10")));
    }
}
