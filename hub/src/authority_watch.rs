//! Follows the CA in its Secret: uses a changed CA, and takes the steps of a CA rotation when due.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use switchyard_controller::Context;
use switchyard_hub_pki::{Authority, store};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::audit::{self, Actor, AuditOperation, AuditOutcome, AuditRecord};

/// How often the Secret is read. Each step of a rotation lasts hours longer than any certificate.
const LOOK: Duration = Duration::from_secs(30);
/// Deadline of one API call.
const ANSWER: Duration = Duration::from_secs(20);

/// The last writer of the CA.
async fn writer(secrets: &Api<Secret>) -> Actor {
    let found = tokio::time::timeout(ANSWER, secrets.get_metadata(store::CA_SECRET)).await;
    let entries = found.ok().and_then(Result::ok).and_then(|found| found.metadata.managed_fields);
    audit::writer(&entries.unwrap_or_default(), &["f:data"])
}

/// Runs until `stop`. Every replica follows the Secret; only the leader takes steps.
pub(crate) async fn follow(
    secrets: Api<Secret>,
    current: watch::Sender<Arc<Authority>>,
    ctx: Arc<Context>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        match tokio::time::timeout(ANSWER, store::load(&secrets, ctx.leading(), ctx.clock.now()))
            .await
        {
            Ok(Ok(authority)) if !authority.is_same(&current.borrow()) => {
                let trusted = authority.trusted().len();
                tracing::warn!(
                    ca_sha256 = authority.signer().pin(),
                    trusted,
                    next_step = ?authority.next_step().map(|at| at.to_string()),
                    "the hub's authority has changed"
                );
                let why = authority
                    .next_step()
                    .map_or("the last step".to_owned(), |at| format!("next step at {at}"));
                current.send_replace(Arc::new(authority));
                AuditRecord {
                    operation: AuditOperation::ReplaceAuthority,
                    who: writer(&secrets).await,
                    object: format!("Secret/{}/{}", ctx.namespace, store::CA_SECRET),
                    why,
                    result: AuditOutcome::Accepted,
                }
                .write();
            }
            Ok(Ok(_)) => {}
            // Keep the known CA: agents' trust depends on it.
            Ok(Err(error)) => {
                tracing::warn!(error = format!("{error:#}"), "the hub's authority was not read")
            }
            Err(_) => tracing::warn!(within = ?ANSWER, "no answer about the hub's authority"),
        }
    }
}
