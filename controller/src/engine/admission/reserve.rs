//! Writes a reservation until it is in the API, or surely never will be.
//!
//! A request without an answer may still take effect. If its quota were given back, another
//! workload could get it, and the API would show both.

use std::{sync::Arc, time::Duration};

use kube::Api;
use switchyard_api::v1beta2::Workload;
use switchyard_platform::{api_call::with_deadline, store::Key, write::WriteError};
use tokio::time::Instant;

use super::{Admitter, Reserve, announce, build, replaced::end_replaced};
use crate::{context::patch_status, engine::convert::workload_key, workload};

/// A reservation with this many conflicts is given back. The next cycle decides again.
pub(super) const CONFLICTS: u32 = 4;
/// Requests without an answer. After these the workload is only read.
const MAX_UNANSWERED: u32 = 3;
/// The API server gives up on a request after 60 s.
const SETTLED_AFTER: Duration = Duration::from_secs(70);
/// First and longest pause before the workload is read after a write without an answer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Requests that may have taken effect, or may still.
struct Unanswered {
    /// The workload that they change.
    base: Arc<Workload>,
    requests: u32,
    last: Instant,
}

impl Admitter {
    #[tracing::instrument(name = "admission", skip_all, fields(workload = %key))]
    pub(super) async fn write_reservation(&self, key: &Key, reserve: &Reserve) {
        let refusal = match self.try_reserve(key, reserve).await {
            Ok((before, after)) => {
                announce(&self.ctx, &before, &after, &reserve.note);
                if let Some((old, uid)) = &reserve.replaces {
                    end_replaced(&self.ctx, old, uid, &after).await;
                }
                return;
            }
            Err(refusal) => refusal,
        };
        tracing::info!(workload = %key, reason = refusal, "reservation given back");
        self.refuse(workload_key(key), reserve.cycle, &refusal);
    }

    /// Returns the workload before and after the write.
    async fn try_reserve(
        &self,
        key: &Key,
        reserve: &Reserve,
    ) -> Result<(Arc<Workload>, Arc<Workload>), String> {
        let (mut conflicts, mut unanswered, mut pause) = (0, None::<Unanswered>, FIRST_PAUSE);
        loop {
            let current = self.current(key, &reserve.uid).ok_or("the workload is gone")?;
            if let Some(unanswered) = &unanswered {
                if workload::has_reservation(&current) {
                    return Ok((unanswered.base.clone(), current));
                }
                // A request only takes effect over the version that it names.
                if current.metadata.resource_version != unanswered.base.metadata.resource_version {
                    return Err("the workload changed while it was written".into());
                }
                if unanswered.requests >= MAX_UNANSWERED {
                    if unanswered.last.elapsed() >= SETTLED_AFTER {
                        return Err("the API server did not perform the write".into());
                    }
                    self.read_again(key, &mut pause).await?;
                    continue;
                }
            }
            if current.metadata.generation != reserve.generation {
                return Err("the workload changed while it was looked at".into());
            }
            if !self.ctx.is_admissible(&current) || current.metadata.deletion_timestamp.is_some() {
                return Err("the workload cannot be admitted any more".into());
            }
            let edit = self.ctx.edit_of_quota(&current);
            let edit = build::reservation_status(edit, reserve.admission.clone(), &reserve.checks);
            match patch_status(&self.ctx, &current, &edit.status, "admission").await {
                Ok(Some(after)) => return Ok((current, Arc::new(after))),
                Ok(None) => return Err("the workload has this reservation already".into()),
                Err(error @ (WriteError::Gone | WriteError::NotLeading)) => {
                    return Err(error.to_string());
                }
                Err(WriteError::Conflict) if unanswered.is_none() => {
                    conflicts += 1;
                    if conflicts == CONFLICTS {
                        return Err(WriteError::Conflict.to_string());
                    }
                    // The store is behind. The watch brings the newer version within milliseconds.
                    tokio::time::sleep(Duration::from_millis(5 << (conflicts - 1))).await;
                }
                // Once a request has no answer, the answer to another one does not settle it.
                Err(error) if unanswered.is_none() && error.is_definite() => {
                    return Err(error.to_string());
                }
                Err(error) => {
                    tracing::warn!(workload = %key, %error, "a reservation may be written or not");
                    let requests = unanswered.as_ref().map_or(0, |it| it.requests) + 1;
                    let base = unanswered.map_or(current, |it| it.base);
                    unanswered = Some(Unanswered { base, requests, last: Instant::now() });
                    self.read_again(key, &mut pause).await?;
                }
            }
        }
    }

    /// Reads the workload into the store. Returns when the API server has answered.
    async fn read_again(&self, key: &Key, pause: &mut Duration) -> Result<(), String> {
        let api: Api<Workload> = Api::namespaced(self.ctx.client.clone(), &key.namespace);
        loop {
            tokio::time::sleep(*pause).await;
            *pause = (*pause * 2).min(LAST_PAUSE);
            if !self.ctx.leading() {
                return Err(WriteError::NotLeading.to_string());
            }
            match with_deadline(api.get_opt(&key.name)).await {
                Ok(Some(fresh)) => {
                    self.ctx.stores.workloads.observe(fresh);
                    return Ok(());
                }
                Ok(None) => return Err("the workload is gone".into()),
                Err(error) => tracing::debug!(workload = %key, %error, "not read again"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use axum::http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use switchyard_api::v1beta2::Admission;
    use switchyard_config::Configuration;

    use super::*;
    use crate::{engine::inbox::Inbox, fixtures};

    /// Reads until a write without an answer counts as not performed.
    const READS: usize = 20;

    /// An answer to a request. None: the connection breaks.
    type Answer = Option<(u16, Value)>;

    fn stored(version: &str, is_reserved: bool) -> Workload {
        let mut stored = fixtures::workload("a");
        stored.metadata.resource_version = Some(version.into());
        if is_reserved {
            let condition = json!({
                "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            stored.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
        }
        stored
    }

    fn shows(version: &str, is_reserved: bool) -> Answer {
        Some((200, serde_json::to_value(stored(version, is_reserved)).unwrap()))
    }

    fn fails(code: u16) -> Answer {
        let reason = match code {
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            _ => "InternalError",
        };
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": ""});
        Some((code, status))
    }

    /// Writes a reservation against these answers to patches and reads, in order. Returns whether
    /// it was given back, and how many answers are left.
    async fn write(patches: Vec<Answer>, reads: Vec<Answer>) -> (bool, usize) {
        let answers = Arc::new(Mutex::new((patches, reads)));
        let left = answers.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let mut answers = answers.lock().unwrap();
            let (patches, reads) = &mut *answers;
            let of = if request.method() == Method::PATCH { patches } else { reads };
            let answer = if of.is_empty() { None } else { of.remove(0) };
            let answer = answer.map(|(code, body)| {
                let body = Body::from(body.to_string().into_bytes());
                Response::builder().status(code).body(body).unwrap()
            });
            std::future::ready(answer.ok_or_else(|| io::Error::other("connection reset")))
        });
        let client = kube::Client::new(server, "default");
        let ctx = Arc::new(fixtures::context(client, Configuration::default()));
        ctx.stores.workloads.insert(stored("1", false));
        let inbox = Arc::new(Inbox::default());
        let admitter = Admitter::new(ctx, inbox.clone(), None);
        let reserve = Reserve {
            uid: "uid-a".into(),
            cycle: 1,
            generation: Some(1),
            admission: Admission::default(),
            checks: Vec::new(),
            note: String::new(),
            replaces: None,
        };
        admitter.write_reservation(&Key::new("ns", "a"), &reserve).await;
        let (patches, reads) = &*left.lock().unwrap();
        (!inbox.take().refused.is_empty(), patches.len() + reads.len())
    }

    #[rstest::rstest]
    #[case::it_took_effect(vec![None], vec![shows("2", true)])]
    #[case::it_did_not(vec![None, shows("2", true)], vec![shows("1", false)])]
    #[case::it_took_effect_late(vec![None, fails(409)], vec![shows("1", false), shows("2", true)])]
    #[case::next_request_is_refused(vec![None, fails(429)], vec![shows("1", false), shows("2", true)])]
    #[case::server_is_away(vec![fails(504)], vec![None, fails(500), shows("2", true)])]
    #[tokio::test(start_paused = true)]
    async fn quota_of_unanswered_write_is_kept(
        #[case] patches: Vec<Answer>,
        #[case] reads: Vec<Answer>,
    ) {
        assert_eq!(write(patches, reads).await, (false, 0));
    }

    #[rstest::rstest]
    #[case::refused(vec![fails(403)], vec![])]
    #[case::conflicts(vec![fails(409); 4], vec![])]
    #[case::deleted_meanwhile(vec![None], vec![fails(404)])]
    #[case::took_effect_and_was_undone(vec![None], vec![shows("3", false)])]
    #[case::fails_for_ever(vec![fails(500); 3], vec![shows("1", false); READS])]
    #[tokio::test(start_paused = true)]
    async fn quota_without_a_reservation_is_given_back(
        #[case] patches: Vec<Answer>,
        #[case] reads: Vec<Answer>,
    ) {
        assert_eq!(write(patches, reads).await, (true, 0));
    }
}
