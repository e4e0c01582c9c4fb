//! Follows objects by a watch until the caller ends it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::outage::Outage;
use crate::request;

/// Seconds after which the API server ends a watch and kube starts the next one. It is below
/// [`crate::client::READ_TIME`], because nothing is sent about a quiet namespace.
const WATCH_SECONDS: u32 = 50;

/// Delays between requests after a lost connection, which double.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(8);

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
/// Errors of `on_change`, and errors that stay. `outage` takes every other error.
pub(crate) async fn follow<K, T>(
    api: &Api<K>,
    labels: Option<&str>,
    outage: &mut Outage,
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
            Err(error) => {
                if let Some(error) = request::of_watch(error) {
                    outage.pass::<()>(Err(error))?;
                    until_answered(api, outage).await?;
                }
                continue;
            }
        };
        // A list begins before it is requested.
        if !matches!(change, Change::Began) {
            outage.end();
        }
        if let ControlFlow::Break(reached) = on_change(change).await? {
            return Ok(reached);
        }
    }
}

/// Waits until the API server answers again. A watch that begins again does not show it, because the
/// API server sends nothing about a quiet namespace.
async fn until_answered<K>(api: &Api<K>, outage: &mut Outage) -> anyhow::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let one = ListParams::default().limit(1);
    let mut delay = FIRST_DELAY;
    loop {
        sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
        let answer = api.list_metadata(&one).await;
        let answer = answer.map_err(|error| crate::with_hint(&error, "watching"));
        if outage.pass(answer)?.is_some() {
            return Ok(());
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
    follow(api, labels, &mut Outage::default(), async |event: Change<K>| {
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

#[cfg(test)]
pub(crate) mod samples {
    use std::sync::Mutex;

    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    /// The answer to one request: a code and lines, or a lost connection.
    pub(crate) type Answer = Option<(u16, Vec<Value>)>;

    /// An API server that gives these answers in turn, and then never answers.
    pub(crate) fn client(answers: Vec<Answer>) -> Client {
        let answers = Mutex::new(answers.into_iter());
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let next = answers.lock().unwrap().next();
            async move {
                let (code, lines) = match next {
                    Some(Some(answer)) => answer,
                    Some(None) => {
                        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                        return Err(tower::BoxError::from(reset));
                    }
                    None => std::future::pending().await,
                };
                let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
                let body = Body::from(text.into_bytes());
                Ok(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    pub(crate) fn objects(items: &[Value]) -> Answer {
        let list = json!({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": items});
        Some((200, vec![list]))
    }

    pub(crate) fn status(code: u16) -> Value {
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": "no"})
    }

    pub(crate) fn failure(code: u16) -> Answer {
        Some((code, vec![status(code)]))
    }

    pub(crate) fn event(type_: &str, object: &Value) -> Answer {
        Some((200, vec![json!({"type": type_, "object": object})]))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use switchyard_api::v1beta2::MultiKueueCluster;
    use tokio::time::Instant;

    use super::samples::{Answer, client, event, failure, objects, status};
    use super::*;

    fn cluster(name: &str) -> Value {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
            "metadata": {"name": name, "resourceVersion": "7"}, "spec": {"clusterSource": {"agent": {}}},
        })
    }

    fn list(names: &[&str]) -> Answer {
        objects(&names.iter().map(|name| cluster(name)).collect::<Vec<_>>())
    }

    /// Follows until a cluster has this name, and returns the names that were seen.
    async fn names_until(
        answers: Vec<Answer>,
        last: &str,
        outage: &mut Outage,
    ) -> anyhow::Result<Vec<String>> {
        let api: Api<MultiKueueCluster> = Api::all(client(answers));
        let mut seen = Vec::new();
        follow(&api, None, outage, async |change| {
            if let Change::Applied(object) = change {
                seen.push(object.name_any());
            }
            let is_last = seen.last().is_some_and(|name| name == last);
            Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .await?;
        Ok(seen)
    }

    #[tokio::test(start_paused = true)]
    async fn watch_outlives_a_rolling_restart_of_the_api_server() {
        let answers = vec![
            None,
            failure(503),
            failure(429),
            list(&["east"]),
            list(&["east"]),
            None,
            list(&["east"]),
            event("MODIFIED", &cluster("west")),
            event("ERROR", &status(410)),
            list(&["north"]),
        ];
        let mut outage = Outage::default();
        let seen = names_until(answers, "north", &mut outage).await.unwrap();
        assert_eq!(seen, ["east", "west", "north"]);
        assert!(outage.into_error().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_ends_a_watch_at_once() {
        for code in [400, 401, 403, 404] {
            let began = Instant::now();
            for before in [vec![], vec![list(&["east"])]] {
                let answers = before.into_iter().chain([failure(code)]).collect();
                let found = names_until(answers, "west", &mut Outage::default()).await;
                let error = found.unwrap_err().to_string();
                assert!(error.starts_with("watching: no"), "{code}: {error}");
            }
            assert_eq!(began.elapsed(), Duration::ZERO, "{code}");
        }
    }

    /// The next event of a quiet watch may come after hours.
    #[tokio::test(start_paused = true)]
    async fn quiet_watch_that_begins_again_ends_the_outage() {
        let answers = vec![list(&["east"]), None, list(&["east"])];
        let mut outage = Outage::new(true);
        let quiet = names_until(answers, "west", &mut outage);
        let ended = tokio::time::timeout(Duration::from_secs(60), quiet).await;
        assert!(ended.is_err(), "the second watch is silent");
        assert!(outage.into_error().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn error_of_an_outage_outlives_the_next_attempt() {
        let mut outage = Outage::new(true);
        let lost = names_until(vec![None, None], "east", &mut outage);
        let ended = tokio::time::timeout(Duration::from_secs(60), lost).await;
        assert!(ended.is_err(), "the third request is not answered");
        let error = outage.into_error().unwrap().to_string();
        assert!(error.starts_with("watching: connection reset"), "{error}");
    }
}
