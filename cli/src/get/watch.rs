//! Following a list.

use std::collections::HashMap;
use std::pin::pin;

use futures::TryStreamExt as _;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;

/// The line that was printed last for each object, by uid.
pub(super) type Lines = HashMap<String, String>;

/// Calls `on_change` for each object with these labels, and again when it changes, until that fails. After an
/// interruption the watch starts again, later each time.
///
/// # Errors
/// Errors of `on_change`.
pub(super) async fn follow<K>(
    api: &Api<K>,
    labels: Option<&str>,
    mut on_change: impl AsyncFnMut(K) -> anyhow::Result<()>,
) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().page_size(500);
    let config = match labels {
        Some(labels) => config.labels(labels),
        None => config,
    };
    let events = watcher(api.clone(), config).default_backoff().applied_objects();
    let mut events = pin!(events);
    loop {
        match events.try_next().await {
            Ok(Some(object)) => on_change(object).await?,
            Ok(None) => return Ok(()),
            Err(error) => eprintln!("the watch was interrupted: {error}"),
        }
    }
}
