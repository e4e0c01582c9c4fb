//! Follows the authority in its Secret: takes up what changed, and takes the steps of a replacement when they are due.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use switchyard_controller::Context;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::audit::{self, Line, Operation, Outcome, Who};
use switchyard_hub_pki::{Authority, store};

/// How often it is read. Each step of a replacement lasts hours longer than any certificate.
const LOOK: Duration = Duration::from_secs(30);
/// An answer of the API server takes no longer.
const ANSWER: Duration = Duration::from_secs(20);

/// Who wrote the authority last.
async fn writer(secrets: &Api<Secret>) -> Who {
    let found = tokio::time::timeout(ANSWER, secrets.get_metadata(store::CA_SECRET)).await;
    let entries = found.ok().and_then(Result::ok).and_then(|found| found.metadata.managed_fields);
    audit::writer(&entries.unwrap_or_default(), &["f:data"])
}

/// Runs until `stop`. Every replica follows; only one that leads takes steps.
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
        match tokio::time::timeout(ANSWER, store::look(&secrets, ctx.leading(), ctx.clock.now()))
            .await
        {
            Ok(Ok(authority)) if !authority.same(&current.borrow()) => {
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
                Line {
                    operation: Operation::ReplaceAuthority,
                    who: writer(&secrets).await,
                    object: format!("Secret/{}/{}", ctx.namespace, store::CA_SECRET),
                    why,
                    result: Outcome::Accepted,
                }
                .write();
            }
            Ok(Ok(_)) => {}
            // What is known goes on: agents' trust hangs on it.
            Ok(Err(error)) => {
                tracing::warn!(error = format!("{error:#}"), "the hub's authority was not read")
            }
            Err(_) => tracing::warn!(within = ?ANSWER, "no answer about the hub's authority"),
        }
    }
}
