//! Metric labels from labels or annotations of objects: `metrics.customLabels`, behind Kueue's gate
//! `CustomMetricLabels`.
//!
//! A series is about a ClusterQueue, a LocalQueue or a Cohort. It gets the labels that this object
//! has at the scrape, added to the rendered page. Labels of Workloads split only the gauge of
//! admitted workloads, which counts by them.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use kube::api::ObjectMeta;
use switchyard_api::variants;
use switchyard_config::{Configuration, CustomLabel, SourceKind};

use crate::{
    stores::Stores,
    workload::{admitted_by, is_admitted, is_finished},
};

/// The object that a series is about.
#[derive(Debug, PartialEq, Eq)]
enum SeriesSubject {
    ClusterQueue(String),
    LocalQueue { namespace: String, name: String },
    Cohort(String),
}

/// Names and values.
pub(crate) type Labels = Vec<(String, String)>;

/// The labels that the configuration defines.
pub(crate) struct CustomLabels {
    cluster_queue: Vec<CustomLabel>,
    local_queue: Vec<CustomLabel>,
    cohort: Vec<CustomLabel>,
    workload: Vec<CustomLabel>,
    stores: Arc<Stores>,
}

impl CustomLabels {
    /// `None` if the configuration defines no labels.
    pub(crate) fn new(config: &Configuration, stores: &Arc<Stores>) -> Option<Self> {
        let of = |kind| config.custom_labels(kind).cloned().collect::<Vec<_>>();
        let custom = Self {
            cluster_queue: of(SourceKind::ClusterQueue),
            local_queue: of(SourceKind::LocalQueue),
            cohort: of(SourceKind::Cohort),
            workload: of(SourceKind::Workload),
            stores: stores.clone(),
        };
        let lists = [&custom.cluster_queue, &custom.local_queue, &custom.cohort, &custom.workload];
        lists.iter().any(|list| !list.is_empty()).then_some(custom)
    }

    /// Adds the labels to the series of a rendered page.
    pub(crate) fn add_to(&self, page: &str) -> String {
        labelled(page, |subject| match subject {
            SeriesSubject::ClusterQueue(name) => {
                let queue = self.stores.cluster_queues.get("", name);
                values(&self.cluster_queue, queue.as_ref().map(|queue| &queue.metadata))
            }
            SeriesSubject::LocalQueue { namespace, name } => {
                let queue = self.stores.local_queues.get(namespace, name);
                values(&self.local_queue, queue.as_ref().map(|queue| &queue.metadata))
            }
            SeriesSubject::Cohort(name) => {
                let cohort = self.stores.cohorts.get("", name);
                values(&self.cohort, cohort.as_ref().map(|cohort| &cohort.metadata))
            }
        })
    }

    /// Admitted workloads by ClusterQueue and labels. `None` if no label is for workloads.
    pub(crate) fn admitted(&self) -> Option<BTreeMap<String, BTreeMap<Labels, usize>>> {
        if self.workload.is_empty() {
            return None;
        }
        let mut counts: BTreeMap<String, BTreeMap<Labels, usize>> = BTreeMap::new();
        for workload in
            self.stores.workloads.filter(|workload| is_admitted(workload) && !is_finished(workload))
        {
            // A workload with variants counts once.
            if let Some(queue) =
                admitted_by(&workload).filter(|_| variants::parent_of(&workload).is_none())
            {
                let labels = values(&self.workload, Some(&workload.metadata));
                *counts.entry(queue.to_owned()).or_default().entry(labels).or_default() += 1;
            }
        }
        Some(counts)
    }
}

/// An object's labels. As in Kueue, a missing object has all of them, empty.
fn values(labels: &[CustomLabel], object: Option<&ObjectMeta>) -> Labels {
    let value = |label: &CustomLabel| {
        object.map_or("", |it| label.value(&it.labels, &it.annotations)).to_owned()
    };
    labels.iter().map(|label| (label.metric_name(), value(label))).collect()
}

/// Appends labels to each series of a page.
fn labelled(page: &str, of: impl Fn(&SeriesSubject) -> Labels) -> String {
    let mut out = String::with_capacity(page.len());
    for line in page.split_inclusive('\n') {
        let series = (!line.starts_with('#')).then(|| parse(line)).flatten();
        let Some((subject, end)) =
            series.and_then(|(name, labels, end)| Some((subject(name, &labels)?, end)))
        else {
            out.push_str(line);
            continue;
        };
        out.push_str(&line[..end]);
        for (name, value) in of(&subject) {
            // Writing into a String cannot fail.
            let _ = write!(out, ",{name}=\"{}\"", escaped(&value));
        }
        out.push_str(&line[end..]);
    }
    out
}

/// Name, raw labels and end of the labels of a series. `None` without labels.
fn parse(line: &str) -> Option<(&str, BTreeMap<&str, &str>, usize)> {
    let begin = line.find(['{', ' '])?;
    let (mut at, mut labels) = (begin + 1, BTreeMap::new());
    while line.as_bytes().get(at - 1).is_some_and(|byte| matches!(byte, b'{' | b',')) {
        let (key, rest) = line[at..].split_once("=\"")?;
        let length = closing_quote(rest)?;
        labels.insert(key, &rest[..length]);
        at += key.len() + length + 4;
    }
    line[at - 1..].starts_with('}').then(|| (&line[..begin], labels, at - 1))
}

/// Position of the first quote that is not escaped.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escapes = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escapes;
        escapes = byte == b'\\' && !escapes;
        ends
    })
}

/// The object that one of Kueue's metrics is about. Names of queues and Cohorts need no unescaping.
fn subject(metric: &str, labels: &BTreeMap<&str, &str>) -> Option<SeriesSubject> {
    let label = |name: &str| labels.get(name).map(|value| (*value).to_owned());
    let metric = metric.strip_prefix("kueue_")?;
    if metric.starts_with("local_queue_") {
        return Some(SeriesSubject::LocalQueue {
            namespace: label("namespace")?,
            name: label("name")?,
        });
    }
    if metric.starts_with("cohort_") {
        return label("cohort").map(SeriesSubject::Cohort);
    }
    label("cluster_queue")
        .or_else(|| label("preempting_cluster_queue"))
        .map(SeriesSubject::ClusterQueue)
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use switchyard_config as config;

    use super::*;

    #[test]
    fn series_gets_labels_of_its_object() {
        let queue = |name: &str| Some(SeriesSubject::ClusterQueue(name.into()));
        let local =
            || Some(SeriesSubject::LocalQueue { namespace: "ns".into(), name: "lq".into() });
        let cohort = || Some(SeriesSubject::Cohort("all".into()));
        for (sentence, line, expected) in [
            (
                "a gauge",
                "kueue_pending_workloads{cluster_queue=\"cq\",status=\"active\"} 1.0\n",
                queue("cq"),
            ),
            (
                "a bucket",
                "kueue_admission_wait_time_seconds_bucket{le=\"1.0\",cluster_queue=\"cq\"} 1\n",
                queue("cq"),
            ),
            (
                "who preempts",
                "kueue_preempted_workloads_total{preempting_cluster_queue=\"cq\"} 1\n",
                queue("cq"),
            ),
            (
                "a queue's Cohort",
                "kueue_cluster_queue_nominal_quota{cohort=\"all\",cluster_queue=\"cq\"} 1\n",
                queue("cq"),
            ),
            (
                "a gate of pods",
                "kueue_pod_scheduling_gate_removal_seconds_sum{name=\"g\",cluster_queue=\"cq\"} 1\n",
                queue("cq"),
            ),
            (
                "a LocalQueue",
                "kueue_local_queue_status{name=\"lq\",namespace=\"ns\",active=\"True\"} 1.0\n",
                local(),
            ),
            (
                "a LocalQueue's ClusterQueue",
                "kueue_local_queue_unadmitted_workloads{name=\"lq\",namespace=\"ns\",cluster_queue=\"cq\"} 1.0\n",
                local(),
            ),
            (
                "a Cohort",
                "kueue_cohort_info{cohort=\"all\",parent_cohort=\"\",root_cohort=\"all\"} 1.0\n",
                cohort(),
            ),
            (
                "a quote in a value",
                "kueue_evicted_workloads_total{reason=\"a \\\"b\\\",c=\\\\\",cluster_queue=\"cq\"} 1\n",
                queue("cq"),
            ),
            ("a cycle", "kueue_admission_attempts_total{result=\"success\"} 1\n", None),
            (
                "a kind of jobs",
                "kueue_workload_creation_latency_seconds_count{job_kind=\"Job\"} 1\n",
                None,
            ),
            (
                "a cluster",
                "multikueue_workloads_admitted_total{cluster_queue=\"cq\",cluster=\"east\"} 1\n",
                None,
            ),
            ("one of ours", "switchyard_cluster_connected{cluster=\"east\"} 1\n", None),
            ("no labels", "switchyard_breaker_open 0\n", None),
            ("help", "# HELP kueue_pending_workloads Pending {cluster_queue=\"cq\"}.\n", None),
            ("the end", "# EOF\n", None),
        ] {
            let found = labelled(line, |subject| {
                assert_eq!(Some(subject), expected.as_ref(), "{sentence}");
                vec![("custom_a".into(), "x".into())]
            });
            let with = line.replace("} ", ",custom_a=\"x\"} ");
            assert_eq!(
                found,
                if expected.is_some() { with } else { line.to_owned() },
                "{sentence}"
            );
        }
    }

    #[test]
    fn label_values_are_escaped_and_page_end_is_kept() {
        let page = "# TYPE kueue_pending_workloads gauge\nkueue_pending_workloads{cluster_queue=\"cq\"} 1.0\n# EOF\n";
        let with = labelled(page, |_| {
            vec![("custom_a".into(), "x\\\"\n".into()), ("custom_b".into(), String::new())]
        });
        insta::assert_snapshot!(with, @r#"
        # TYPE kueue_pending_workloads gauge
        kueue_pending_workloads{cluster_queue="cq",custom_a="x\\\"\n",custom_b=""} 1.0
        # EOF
        "#);
    }

    #[test]
    fn missing_object_has_empty_labels() {
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
            metrics: {customLabels: [{name: team, trackedValues: [red]}]}\n\
            featureGates: {CustomMetricLabels: true}\n";
        let config = config::load(file).unwrap();
        let labels: Vec<CustomLabel> =
            config.custom_labels(SourceKind::ClusterQueue).cloned().collect();
        let of = |value: &str| ObjectMeta {
            labels: Some([("team".into(), value.into())].into()),
            ..ObjectMeta::default()
        };
        let told = |object: Option<&ObjectMeta>| values(&labels, object).remove(0);
        assert_eq!(told(Some(&of("red"))), ("custom_team".into(), "red".into()));
        assert_eq!(told(Some(&of("blue"))).1, "kueue.x-k8s.io/_UNTRACKED_VALUE_");
        assert_eq!(told(None).1, "");
    }
}
