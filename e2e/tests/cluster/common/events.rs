//! Events, as a cluster keeps them.

use anyhow::Context as _;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, Client};
use switchyard_e2e::wait;

use crate::bed::WAIT;

/// Events about objects of this name, of any kind and namespace.
pub(crate) async fn about(client: &Client, object: &str) -> anyhow::Result<Vec<Event>> {
    let api: Api<Event> = Api::all(client.clone());
    let about =
        |event: &Event| event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(object);
    Ok(api.list(&Default::default()).await?.items.into_iter().filter(about).collect())
}

/// Waits for one of this reason whose note contains this, and gives it.
pub(crate) async fn told(client: &Client, object: &str, reason: &str, note: &str) -> Event {
    let says = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event.note.as_ref().is_some_and(|said| said.contains(note))
    };
    let look = async || {
        let all = about(client, object).await?;
        let seen: Vec<_> =
            all.iter().map(|event| (event.reason.clone(), event.note.clone())).collect();
        all.into_iter().find(says).with_context(|| format!("{seen:?}"))
    };
    wait::eventually(WAIT, format!("event {reason} of {object}: {note:?}"), look).await.unwrap()
}
