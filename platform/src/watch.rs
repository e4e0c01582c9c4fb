//! Feeds a [`Store`] from a watch, and logs when the watch breaks and recovers.

use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use kube::{
    Resource,
    runtime::watcher::{self, Event},
};
use tokio_util::sync::CancellationToken;

use crate::{
    errors::with_root_cause,
    optional_crd::is_unknown_kind,
    readable::Readable,
    store::{Feed, Store},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchState {
    /// The kind's plural name.
    pub kind: String,
    /// Whether the first list was read.
    pub ready: bool,
    /// Time since the watch broke. `None` while it runs.
    pub broken_for: Option<Duration>,
}

/// Filters a watch event: an object that is not `wanted` is treated as deleted.
pub fn filter_event<K>(event: Event<K>, wanted: impl Fn(&K) -> bool) -> Option<Event<K>> {
    match event {
        Event::Apply(object) if !wanted(&object) => Some(Event::Delete(object)),
        Event::InitApply(object) if !wanted(&object) => None,
        event => Some(event),
    }
}

/// Keeps a store in step with the server until `shutdown`. A kind that is `optional` counts as
/// empty until the server serves it. An object that cannot be read is skipped, and the store keeps
/// its last readable state.
pub async fn feed<K>(
    watch: impl Stream<Item = watcher::Result<Event<Readable<K>>>> + Send,
    kind: String,
    optional: bool,
    store: Store<K>,
    modify: impl Fn(&mut K) + Send + 'static,
    shutdown: CancellationToken,
) -> anyhow::Result<()>
where
    K: Resource + Send + Sync + 'static,
{
    let events = watch.map_ok(|event| {
        event.modify(|object| {
            if let Readable::Object(object) = object {
                modify(object);
            }
        })
    });
    tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        result = follow(events, &kind, Feed::new(store), |error| optional && is_unknown_kind(error)) => result,
    }
}

/// A watch that recovers sends nothing until an object changes, but a failure is reported within
/// this time. It covers kube's longest delay between attempts (30 s plus the same again as jitter)
/// and a connection timeout. So a broken watch that is silent for this long works again.
const QUIET: Duration = Duration::from_secs(95);

async fn follow<K, E>(
    events: impl Stream<Item = Result<Event<Readable<K>>, E>>,
    kind: &str,
    mut feed: Feed<K>,
    is_absent: impl Fn(&E) -> bool,
) -> anyhow::Result<()>
where
    K: Resource + 'static,
    E: std::error::Error + 'static,
{
    let mut events = std::pin::pin!(events);
    let (mut broken, mut absent) = (false, false);
    loop {
        let next = if broken {
            tokio::time::timeout(QUIET, events.next()).await
        } else {
            Ok(events.next().await)
        };
        let recovered = match next {
            Ok(Some(Ok(event))) => {
                if absent && matches!(event, Event::InitDone) {
                    absent = false;
                    tracing::info!(kind, "the kind is there now");
                }
                feed.apply_readable(kind, event)
            }
            Ok(Some(Err(error))) if is_absent(&error) => {
                if !absent {
                    absent = true;
                    tracing::info!(
                        kind,
                        "the cluster does not know this kind, waiting for its CRD"
                    );
                }
                feed.absent()
            }
            Ok(Some(Err(error))) => {
                let error = with_root_cause(&error);
                broken = true;
                // Each kind retries every few seconds, so only the first failure and the recovery
                // are logged as warnings.
                if feed.failed() {
                    tracing::warn!(kind, error, "watch failed, retrying");
                } else {
                    tracing::debug!(kind, error, "watch failed again");
                }
                false
            }
            Ok(None) => anyhow::bail!("the watch of {kind} ended"),
            Err(_) => feed.recovered(),
        };
        if recovered {
            broken = false;
            tracing::info!(kind, "watch goes on");
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    /// After a network fault the watch resumes where it was, and a kind without changes sends
    /// nothing.
    #[tokio::test(start_paused = true)]
    async fn silent_watch_counts_as_recovered_after_a_while() {
        let store: Store<ConfigMap> = Store::default();
        let error = || Err(std::io::Error::other("connection refused"));
        let said = stream::iter([Ok(Event::Init), Ok(Event::InitDone), error(), error()])
            .chain(stream::pending());
        let watch = follow(said, "configmaps", Feed::new(store.clone()), |_| false);
        let mut watch = std::pin::pin!(watch);
        assert!(tokio::time::timeout(QUIET / 2, watch.as_mut()).await.is_err());
        assert_eq!((store.is_ready(), store.broken_for()), (true, Some(QUIET / 2)));
        assert!(tokio::time::timeout(QUIET, watch).await.is_err());
        assert_eq!(store.broken_for(), None);
    }

    #[test]
    fn filtered_object_is_absent_or_deleted() {
        let object = |name: &str| {
            let mut object = ConfigMap::default();
            object.metadata.name = Some(name.to_owned());
            object
        };
        let wanted = |object: &ConfigMap| object.metadata.name.as_deref() == Some("a");
        assert!(matches!(filter_event(Event::Apply(object("a")), wanted), Some(Event::Apply(_))));
        assert!(matches!(filter_event(Event::Apply(object("b")), wanted), Some(Event::Delete(_))));
        assert!(matches!(
            filter_event(Event::InitApply(object("a")), wanted),
            Some(Event::InitApply(_))
        ));
        assert!(filter_event(Event::InitApply(object("b")), wanted).is_none());
        assert!(matches!(filter_event(Event::Delete(object("b")), wanted), Some(Event::Delete(_))));
    }
}
