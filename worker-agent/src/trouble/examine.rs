//! Reads the inputs of an examination: a job's pods, and the cluster's warning events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use switchyard_api::names;
use switchyard_jobs::pod_selector;
use switchyard_ledger::Target;
use switchyard_platform::log_limit::LogLimit;
use switchyard_proto::trouble;
use switchyard_proto::v1::JobTrouble;
use tokio::time::{Instant, sleep, timeout};

use super::pods::{Finding, of_pod};
use super::unready_jobs::{Examined, JobToExamine};
use super::warnings::{Warning, Warnings};

/// Pods per list request.
const PAGE: u32 = 100;
/// The most list requests. If no label selects a job's pods, the pods of all jobs in the namespace
/// are listed.
const PAGES: usize = 5;
/// Younger troubles may pass at once and are not reported.
const STAYS: SignedDuration = SignedDuration::from_secs(2);
/// The most child objects whose owner is checked.
const CHILDREN: usize = 4;

/// The most pages of events read at the start, to learn of earlier ones.
const EVENT_PAGES: usize = 20;
/// Events per page.
const EVENT_PAGE: u32 = 500;
/// Delays of the event watch: before each request, after an error, and when it is forbidden.
const PAUSE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(5);
/// The deadline of all pages of events.
const READ: Duration = Duration::from_secs(120);
/// The deadline of an event watch. The API server ends it after 290 s.
const WATCH: Duration = Duration::from_secs(330);
const NOT_ALLOWED: Duration = Duration::from_secs(600);

/// The field selector, so that the API server sends only warnings.
const WARNINGS: &str = "type=Warning";

/// Examines jobs, one at a time.
pub(super) struct Examiner {
    client: Client,
    hub_id: String,
    warnings: Arc<Mutex<Warnings>>,
    log: LogLimit,
}

impl Examiner {
    pub(super) fn new(client: Client, hub_id: String, warnings: Arc<Mutex<Warnings>>) -> Self {
        Self { client, hub_id, warnings, log: LogLimit::default() }
    }

    /// Logs a failed examination, at a bounded rate.
    pub(super) fn log_failure(&mut self, error: &kube::Error) {
        if let Some(left_out) = self.log.admit(Instant::now()) {
            tracing::warn!(%error, left_out, "a job could not be examined: the hub does not hear why it does not start");
        }
    }

    pub(super) async fn examine(&self, job: &JobToExamine) -> Result<Examined, kube::Error> {
        let (mut pods, others, is_whole) = match job.pods.may_exist {
            true => self.pods_by_phase(job).await?,
            false => (Vec::new(), Vec::new(), true),
        };
        let knows_pods = self.selects_exactly(job) || !pods.is_empty() || !others.is_empty();
        let none_ready = is_whole && !job.pods.has_succeeded && !others.iter().any(is_ready);
        let made_by: BTreeSet<String> = pods.iter().chain(&others).filter_map(Pod::uid).collect();
        if pods.iter().all(|pod| of_pod(pod).is_none()) {
            pods.extend(others);
        }
        let made = pods
            .iter()
            .filter_map(|pod| pod.metadata.creation_timestamp.as_ref())
            .map(|at| at.0)
            .max();
        let mut warnings = self.warnings_of(&job.target.namespace, &job.target.uid);
        for uid in self.children(job, made_by).await? {
            warnings.extend(self.warnings_of(&job.target.namespace, &uid));
        }
        // A pod created after the warning shows that creation works again.
        warnings.retain(|warning| warning.last.max(warning.finding.since) >= made);
        let mut found: Vec<Finding> = warnings.into_iter().map(|warning| warning.finding).collect();
        found.extend(pods.iter().filter_map(of_pod));
        found.extend(pods.iter().flat_map(|pod| self.of_pods_events(pod)));
        Ok(summary(found, none_ready, knows_pods, Timestamp::now()))
    }

    /// Whether a label selects exactly the job's pods.
    fn selects_exactly(&self, job: &JobToExamine) -> bool {
        is_marked(job.kind) || pod_selector(job.kind, "", "").is_exact
    }

    fn warnings_of(&self, namespace: &str, uid: &str) -> Vec<Warning> {
        self.warnings.lock().of(namespace, uid)
    }

    /// Warnings about a pod that add to its status.
    fn of_pods_events(&self, pod: &Pod) -> Vec<Finding> {
        let (namespace, uid) = (pod.namespace().unwrap_or_default(), pod.uid().unwrap_or_default());
        let own = [trouble::VOLUME, trouble::CONTAINER_CONFIG, trouble::OTHER];
        let name = pod.name_any();
        let named = |it: Warning| Finding {
            message: format!("pod {name}: {}", it.finding.message),
            ..it.finding
        };
        let warnings = self.warnings_of(&namespace, &uid).into_iter();
        warnings.filter(|it| own.contains(&it.finding.reason)).map(named).collect()
    }

    /// The job's pending pods, its other pods that have not failed, and whether these others are
    /// all.
    async fn pods_by_phase(
        &self,
        job: &JobToExamine,
    ) -> Result<(Vec<Pod>, Vec<Pod>, bool), kube::Error> {
        let (pending, _) = self.pods(job, "status.phase=Pending").await?;
        let (others, is_whole) =
            self.pods(job, "status.phase!=Pending,status.phase!=Failed").await?;
        Ok((pending, others, is_whole))
    }

    /// The job's pods that the field selector selects, and whether these are all.
    async fn pods(
        &self,
        job: &JobToExamine,
        fields: &str,
    ) -> Result<(Vec<Pod>, bool), kube::Error> {
        let kind = job.kind;
        let marked = is_marked(kind);
        let selector = if marked {
            let hub = format!("{}={}", names::HUB_ID, self.hub_id);
            if job.labels.is_empty() { hub } else { format!("{hub},{}", job.labels) }
        } else {
            pod_selector(kind, &job.target.name, &job.target.uid).labels
        };
        let is_exact = !marked && pod_selector(kind, "", "").is_exact;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &job.target.namespace);
        let mut params = ListParams::default().labels(&selector).fields(fields).limit(PAGE);
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let page = api.list(&params).await?;
            found.extend(page.items.into_iter().filter(|pod| is_exact || is_of(pod, job, marked)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) if found.is_empty() => params = params.continue_token(&token),
                token => return Ok((found, token.is_none())),
            }
        }
        Ok((found, false))
    }

    /// The uids of objects with warnings between a job and its pods: Jobs, and a LeaderWorkerSet's
    /// StatefulSets. The job or one of its pods owns them.
    async fn children(
        &self,
        job: &JobToExamine,
        mut owners: BTreeSet<String>,
    ) -> Result<Vec<String>, kube::Error> {
        let resource = match job.kind {
            "Job" | "Pod" | "StatefulSet" => return Ok(Vec::new()),
            "LeaderWorkerSet" => ApiResource::erase::<StatefulSet>(&()),
            _ => ApiResource::erase::<Job>(&()),
        };
        owners.insert(job.target.uid.clone());
        let Target { namespace, name, .. } = &job.target;
        let mut named = self.warnings.lock().named(namespace, &resource.kind, name);
        named.truncate(CHILDREN);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let mut children = Vec::new();
        for (uid, name) in named {
            let Some(child) = api.get_metadata_opt(&name).await? else { continue };
            let owned = child.owner_references().iter().any(|owner| owners.contains(&owner.uid));
            if owned && child.metadata.uid.as_ref() == Some(&uid) {
                children.push(uid);
            }
        }
        Ok(children)
    }
}

/// The pods of these kinds carry the agent's marks themselves.
fn is_marked(kind: &str) -> bool {
    matches!(kind, "Pod" | "StatefulSet" | "LeaderWorkerSet")
}

/// Whether a pod is ready, or has succeeded.
fn is_ready(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let ready =
        |it: &k8s_openapi::api::core::v1::PodCondition| it.type_ == "Ready" && it.status == "True";
    status.phase.as_deref() == Some("Succeeded") || status.conditions.iter().flatten().any(ready)
}

/// Whether a pod belongs to the job.
fn is_of(pod: &Pod, job: &JobToExamine, marked: bool) -> bool {
    let is = |key: &str, value: &str| pod.annotations().get(key).is_some_and(|it| it == value);
    if marked {
        return is(names::WORKLOAD_UID, &job.workload_uid)
            && is(names::ATTEMPT, &job.attempt.to_string());
    }
    let owned = pod.owner_references().iter().any(|owner| owner.uid == job.target.uid);
    owned || (!job.workload.is_empty() && is(names::WORKLOAD, &job.workload))
}

/// Summarizes by reason: count, first time, and the newest message. `none_ready`: none of the pods
/// is ready. `knows_pods`: if there are pods, they were found; else a trouble shows that they are
/// missing.
fn summary(found: Vec<Finding>, none_ready: bool, knows_pods: bool, now: Timestamp) -> Examined {
    let (mut young, mut by_reason) =
        (false, BTreeMap::<&'static str, (Finding, Option<Timestamp>)>::new());
    for finding in found {
        let age = finding.since.map(|since| now.duration_since(since));
        // A time in the future comes from another clock.
        if age.is_some_and(|age| !age.is_negative() && age < STAYS) {
            young = true;
            continue;
        }
        let since = finding.since;
        let Some((known, newest)) = by_reason.get_mut(finding.reason) else {
            by_reason.insert(finding.reason, (finding, since));
            continue;
        };
        known.count = known.count.saturating_add(finding.count);
        if since > *newest {
            (known.message, *newest) = (finding.message, since);
        }
        known.since = known.since.into_iter().chain(since).min();
    }
    // Beside a specific reason, `Other` is left out.
    if by_reason.len() > 1 {
        by_reason.remove(trouble::OTHER);
    }
    let on_wire = |finding: Finding| JobTrouble {
        reason: finding.reason.to_owned(),
        message: finding.message,
        count: finding.count,
        since: finding.since.map(|at| prost_types::Timestamp { seconds: at.as_second(), nanos: 0 }),
    };
    let mut troubles: Vec<JobTrouble> =
        by_reason.into_values().map(|(finding, _)| on_wire(finding)).collect();
    trouble::sanitize(&mut troubles);
    let creates_none = || {
        let kinds = [trouble::FAILED_CREATE, trouble::QUOTA_EXCEEDED];
        troubles.iter().any(|it| kinds.contains(&it.reason.as_str()))
    };
    let no_ready_pod = none_ready && (knows_pods || creates_none());
    Examined::Found { troubles, young, no_ready_pod }
}

/// Follows warning events, for ever.
pub(super) async fn follow_warnings(client: Client, warnings: Arc<Mutex<Warnings>>) {
    let api: Api<Event> = Api::all(client);
    let (mut version, mut pages, mut said) = (None::<String>, EVENT_PAGES, false);
    loop {
        sleep(PAUSE).await;
        let result = match &version {
            None => {
                timeout(READ, read_newest(&api, &warnings, pages)).await.map(|read| read.map(Some))
            }
            Some(from) => timeout(WATCH, watch(&api, &warnings, from)).await,
        };
        // The connection died silently.
        let Ok(result) = result else {
            version = None;
            continue;
        };
        // Events that the watch missed are not read again: a persisting trouble repeats its event.
        pages = 1;
        match result {
            Ok(reached) => version = reached,
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                if !said {
                    let why = &status.message;
                    tracing::warn!(
                        why,
                        "events may not be read: the hub hears of fewer causes why jobs do not start"
                    );
                }
                said = true;
                sleep(NOT_ALLOWED).await;
            }
            Err(error) => {
                tracing::debug!(%error, "watch of events failed, trying again");
                version = None;
                sleep(AGAIN).await;
            }
        }
    }
}

/// Reads the first pages. Returns the version from which to watch.
async fn read_newest(
    api: &Api<Event>,
    warnings: &Mutex<Warnings>,
    pages: usize,
) -> Result<String, kube::Error> {
    let mut params = ListParams::default().fields(WARNINGS).limit(EVENT_PAGE);
    let mut version = String::new();
    for _ in 0..pages {
        let page = api.list(&params).await?;
        version = page.metadata.resource_version.unwrap_or_default();
        {
            let mut warnings = warnings.lock();
            page.items.iter().for_each(|event| warnings.note(event));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    Ok(version)
}

/// Watches until the API server ends it. Returns the version reached; none if that is too old by
/// now.
async fn watch(
    api: &Api<Event>,
    warnings: &Mutex<Warnings>,
    from: &str,
) -> Result<Option<String>, kube::Error> {
    let params = WatchParams::default().fields(WARNINGS);
    let mut events = api.watch(&params, from).await?.boxed();
    let mut reached = from.to_owned();
    while let Some(event) = events.next().await {
        match event {
            Ok(WatchEvent::Added(event) | WatchEvent::Modified(event)) => {
                reached = event.resource_version().unwrap_or(reached);
                warnings.lock().note(&event);
            }
            Ok(WatchEvent::Deleted(event)) => reached = event.resource_version().unwrap_or(reached),
            Ok(WatchEvent::Bookmark(bookmark)) => reached = bookmark.metadata.resource_version,
            Ok(WatchEvent::Error(_)) => return Ok(None),
            // An unreadable event is skipped.
            Err(kube::Error::SerdeError(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(reached))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(reason: &'static str, message: &str, since: i64) -> Finding {
        Finding {
            reason,
            message: message.to_owned(),
            count: 1,
            since: Timestamp::from_second(since).ok(),
        }
    }

    fn reported(found: Vec<Finding>) -> (Vec<String>, bool) {
        let Examined::Found { troubles, young, .. } =
            summary(found, false, true, Timestamp::from_second(100).unwrap())
        else {
            return (Vec::new(), false);
        };
        let since = |it: &JobTrouble| it.since.map_or(0, |at| at.seconds);
        let one = |it: &JobTrouble| {
            format!("{} x{} since {}: {}", it.reason, it.count, since(it), it.message)
        };
        (troubles.iter().map(one).collect(), young)
    }

    #[test]
    fn pods_of_same_trouble_merge_with_newest_message() {
        let found = vec![
            finding(trouble::UNSCHEDULABLE, "pod a", 50),
            finding(trouble::UNSCHEDULABLE, "pod c", 90),
            finding(trouble::UNSCHEDULABLE, "pod b", 60),
            finding(trouble::IMAGE_PULL, "pod d", 70),
            finding(trouble::OTHER, "noise", 10),
        ];
        let expected =
            ["Unschedulable x3 since 50: pod c", "ImagePull x1 since 70: pod d"].map(str::to_owned);
        assert_eq!(reported(found), (expected.into(), false));
        assert_eq!(
            reported(vec![finding(trouble::OTHER, "noise", 10)]).0,
            ["Other x1 since 10: noise"]
        );
    }

    #[test]
    fn missing_pods_count_only_if_they_would_be_found() {
        let seen = |trouble: bool, none_ready, knows_pods| {
            let found: Vec<Finding> =
                trouble.then(|| finding(trouble::FAILED_CREATE, "no", 10)).into_iter().collect();
            let now = Timestamp::from_second(100).unwrap();
            matches!(
                summary(found, none_ready, knows_pods, now),
                Examined::Found { no_ready_pod: true, .. }
            )
        };
        assert!(seen(false, true, true) && seen(true, true, false));
        assert!(!seen(false, true, false), "its pods may have other labels");
        assert!(!seen(true, false, true), "one is ready");
    }

    #[test]
    fn trouble_is_reported_once_it_lasts() {
        assert_eq!(
            reported(vec![finding(trouble::UNSCHEDULABLE, "pod a", 99)]),
            (Vec::new(), true)
        );
        assert_eq!(reported(vec![finding(trouble::UNSCHEDULABLE, "pod a", 98)]).0.len(), 1);
        assert_eq!(
            reported(vec![finding(trouble::UNSCHEDULABLE, "pod a", 500)]).0.len(),
            1,
            "of a clock that is ahead"
        );
    }
}
