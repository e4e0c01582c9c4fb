//! Follows objects by a watch until the caller ends it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::pin::pin;

use futures::TryStreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;

/// Seconds after which the API server ends a watch and kube starts the next one. It is below
/// [`crate::READ_TIME`], because nothing is sent about a quiet namespace.
const WATCH_SECONDS: u32 = 50;

/// One event of a watch.
pub(crate) enum Change<K> {
    /// The present object: first each one that exists, then each that changes.
    Applied(K),
    /// The last state of a deleted object.
    Deleted(K),
    /// A list begins, at the start or after an interruption. All existing objects follow.
    Began,
    /// The list is complete.
    Complete,
}

/// Calls `on_change` for each object with these labels and for each change, until it returns
/// `Break`. After an interruption the watch starts again, with growing delays.
///
/// # Errors
/// Errors of `on_change`, and refusals by the API server. `interrupted` gets every other error.
pub(crate) async fn follow<K, T>(
    api: &Api<K>,
    labels: Option<&str>,
    mut interrupted: impl FnMut(&watcher::Error),
    mut on_change: impl AsyncFnMut(Change<K>) -> anyhow::Result<ControlFlow<T>>,
) -> anyhow::Result<T>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().page_size(500).timeout(WATCH_SECONDS);
    let config = match labels {
        Some(labels) => config.labels(labels),
        None => config,
    };
    let mut events = pin!(watcher(api.clone(), config).default_backoff());
    loop {
        let change = match events.try_next().await {
            Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                Change::Applied(object)
            }
            Ok(Some(watcher::Event::Delete(object))) => Change::Deleted(object),
            Ok(Some(watcher::Event::Init)) => Change::Began,
            Ok(Some(watcher::Event::InitDone)) => Change::Complete,
            Ok(None) => anyhow::bail!("the watch ended"),
            Err(
                watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error),
            ) if is_refusal(&error) => return Err(crate::with_hint(&error, "watching")),
            Err(error) => {
                interrupted(&error);
                continue;
            }
        };
        if let ControlFlow::Break(reached) = on_change(change).await? {
            return Ok(reached);
        }
    }
}

/// How an object becomes a row of a list, and which rows the list has.
pub(crate) struct Rows<Read, IsWanted, Line> {
    /// The row of an object.
    pub(crate) read: Read,
    pub(crate) is_wanted: IsWanted,
    /// The fields whose change prints a row again.
    pub(crate) line: Line,
}

/// Calls `print` with each row that changed or was deleted (`true`), until it breaks. `listed`
/// are the objects that the reader has seen. `prepare` is called with each object before it is
/// read, for what else its row depends on.
///
/// # Errors
/// As [`follow`], and errors of `prepare` and `print`.
pub(crate) async fn follow_rows<K, R>(
    api: &Api<K>,
    labels: Option<&str>,
    listed: &[K],
    rows: Rows<impl Fn(&K) -> R, impl Fn(&K, &R) -> bool, impl Fn(&R) -> String>,
    mut prepare: impl AsyncFnMut(&K) -> anyhow::Result<()>,
    mut print: impl FnMut(R, bool) -> anyhow::Result<ControlFlow<()>>,
) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let Rows { read, is_wanted, line } = rows;
    // The last line of each object on the screen, by its uid.
    let mut shown: HashMap<String, String> = listed
        .iter()
        .map(|object| (object, read(object)))
        .filter(|(object, row)| is_wanted(object, row))
        .map(|(object, row)| (object.uid().unwrap_or_default(), line(&row)))
        .collect();
    let interrupted = |error: &_| eprintln!("the watch was interrupted: {error}");
    follow(api, labels, interrupted, async |event: Change<K>| {
        let (object, is_deleted) = match event {
            Change::Applied(object) => (object, false),
            Change::Deleted(object) => (object, true),
            Change::Began | Change::Complete => return Ok(ControlFlow::Continue(())),
        };
        if !is_deleted {
            prepare(&object).await?;
        }
        let uid = object.uid().unwrap_or_default();
        let row = read(&object);
        let is_news = if !is_deleted && is_wanted(&object, &row) {
            let now = line(&row);
            shown.insert(uid, now.clone()) != Some(now)
        } else {
            shown.remove(&uid).is_some()
        };
        if is_news { print(row, is_deleted) } else { Ok(ControlFlow::Continue(())) }
    })
    .await
}

/// Whether a repetition would be refused too.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404))
}
