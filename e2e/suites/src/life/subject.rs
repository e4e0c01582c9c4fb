//! A job of the run, as its user writes it, of one of the kinds that need no operator.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_e2e::JobBuilder;
use switchyard_e2e::job::{EXIT_CODE, RUN_FOR, STOP_AFTER};

use super::NAMESPACE;

/// How a job is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    #[default]
    Job,
    IndexedJob,
    /// With a minimal parallelism.
    PartialJob,
    ElasticJob,
    CronJob,
    Pod,
    PodGroup,
    StatefulSet,
    Deployment,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Job,
        Self::IndexedJob,
        Self::PartialJob,
        Self::ElasticJob,
        Self::CronJob,
        Self::Pod,
        Self::PodGroup,
        Self::StatefulSet,
        Self::Deployment,
    ];

    /// Its API version and kind.
    pub(crate) fn api(self) -> (&'static str, &'static str) {
        match self {
            Self::Job | Self::IndexedJob | Self::PartialJob | Self::ElasticJob => {
                ("batch/v1", "Job")
            }
            Self::CronJob => ("batch/v1", "CronJob"),
            Self::Pod | Self::PodGroup => ("v1", "Pod"),
            Self::StatefulSet => ("apps/v1", "StatefulSet"),
            Self::Deployment => ("apps/v1", "Deployment"),
        }
    }

    pub(crate) fn is_job(self) -> bool {
        self.api().1 == "Job"
    }

    /// Its pods are replaced when they end, so it never ends by itself.
    pub(crate) fn serves(self) -> bool {
        matches!(self, Self::StatefulSet | Self::Deployment)
    }
}

/// A job that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) queue: &'static str,
    /// Pods at once.
    pub(crate) size: u32,
    /// Request of each pod.
    pub(crate) millicpu: u32,
    /// How long each pod runs; none: until it is deleted.
    pub(crate) runs: Option<Duration>,
    /// How long each pod takes to end when it is deleted.
    pub(crate) stops: Duration,
    pub(crate) fails: bool,
    pub(crate) backoff: u32,
    pub(crate) class: &'static str,
    pub(crate) max_seconds: Option<u32>,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, queue, size, millicpu, runs, stops, fails, class, .. } = self;
        write!(
            f,
            "{kind:?} {name} in {queue}, {size} x {millicpu}m, {class}, stops in {stops:?}, "
        )?;
        match runs {
            None => write!(f, "runs on")?,
            Some(runs) => write!(f, "runs {runs:?}")?,
        }
        if *fails {
            write!(f, ", fails")?;
        }
        self.max_seconds.map_or(Ok(()), |seconds| write!(f, ", at most {seconds} s"))
    }
}

impl Subject {
    /// The objects that its user creates.
    pub(crate) fn objects(&self) -> Vec<Value> {
        match self.kind {
            Kind::Job | Kind::IndexedJob | Kind::PartialJob | Kind::ElasticJob => vec![self.job()],
            Kind::CronJob => vec![self.cron_job()],
            Kind::Pod => vec![self.pod(self.name.to_owned())],
            Kind::PodGroup => (0..self.size).map(|index| self.member(index)).collect(),
            Kind::StatefulSet | Kind::Deployment => vec![self.serving()],
        }
    }

    fn job(&self) -> Value {
        // Work for three rounds of pods: sizes may change meanwhile.
        let completions = if self.kind == Kind::IndexedJob { self.size } else { self.size * 3 };
        let mut job = JobBuilder::new(NAMESPACE, self.name)
            .queue(self.queue)
            .priority_class(self.class)
            .cpu(&format!("{}m", self.millicpu))
            .parallelism(self.size)
            .completions(completions)
            .backoff_limit(self.backoff)
            .pod_annotation(RUN_FOR, &self.run_for())
            .pod_annotation(STOP_AFTER, &millis(self.stops));
        job = match self.kind {
            Kind::IndexedJob => job.field("completionMode", "Indexed".into()),
            Kind::PartialJob => job.annotation(names::JOB_MIN_PARALLELISM, "1"),
            Kind::ElasticJob => job.annotation(names::ELASTIC_JOB, "true"),
            _ => job,
        };
        if let Some(seconds) = self.max_seconds {
            job = job.label(names::MAX_EXEC_TIME_SECONDS, &seconds.to_string());
        }
        if self.fails {
            job = job.fails();
        }
        job.build()
    }

    /// A Job each minute.
    fn cron_job(&self) -> Value {
        let job = self.job();
        let labels = &job["metadata"]["labels"];
        json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"namespace": NAMESPACE, "name": self.name},
            "spec": {
                "schedule": "* * * * *",
                "successfulJobsHistoryLimit": 1,
                "failedJobsHistoryLimit": 1,
                "jobTemplate": {"metadata": {"labels": labels}, "spec": job["spec"]},
            },
        })
    }

    fn pod(&self, name: String) -> Value {
        let mut pod = self.template();
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["namespace"] = NAMESPACE.into();
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["labels"][names::QUEUE_NAME] = self.queue.into();
        pod["metadata"]["labels"][names::PRIORITY_CLASS] = self.class.into();
        pod["spec"]["restartPolicy"] = "Never".into();
        pod
    }

    fn member(&self, index: u32) -> Value {
        let mut pod = self.pod(format!("{}-{index}", self.name));
        pod["metadata"]["labels"][names::POD_GROUP_NAME] = self.name.into();
        pod["metadata"]["annotations"][names::POD_GROUP_TOTAL_COUNT] = self.size.to_string().into();
        pod
    }

    /// A StatefulSet or a Deployment.
    fn serving(&self) -> Value {
        let (version, kind) = self.kind.api();
        let mut object = json!({
            "apiVersion": version,
            "kind": kind,
            "metadata": {"namespace": NAMESPACE, "name": self.name, "labels": {
                names::QUEUE_NAME: self.queue, names::PRIORITY_CLASS: self.class,
            }},
            "spec": {
                "replicas": self.size,
                "selector": {"matchLabels": {"app": self.name}},
                "template": self.template(),
            },
        });
        if self.kind == Kind::StatefulSet {
            object["spec"]["serviceName"] = self.name.into();
        }
        object
    }

    fn template(&self) -> Value {
        let requests = json!({"cpu": format!("{}m", self.millicpu)});
        let code = if self.fails { "1" } else { "0" };
        json!({
            "metadata": {
                "labels": {"app": self.name},
                "annotations": {RUN_FOR: self.run_for(), STOP_AFTER: millis(self.stops), EXIT_CODE: code},
            },
            "spec": {
                "terminationGracePeriodSeconds": self.stops.as_secs() + 1,
                "containers": [{"name": "main", "image": "example.org/job:1", "resources": {"requests": requests}}],
            },
        })
    }

    fn run_for(&self) -> String {
        self.runs.map_or_else(|| "forever".to_owned(), millis)
    }
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}
