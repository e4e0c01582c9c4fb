//! Pods as the API server admits them, and their requests as Kubernetes' own library sums them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use switchyard_e2e::{Cluster, Part, Parts, fixture};

/// Amounts by resource: thousandths of cpu, whole units of the rest.
pub(super) type Amounts = BTreeMap<String, i64>;

/// Requests in flight.
const AT_ONCE: usize = 16;

/// The answer of the API server.
pub(super) enum Answer {
    /// The object as it would be stored.
    Admitted(Value),
    Refused(String),
}

pub(super) struct Server<'a> {
    cluster: &'a Cluster,
    pod_requests: PathBuf,
}

impl<'a> Server<'a> {
    pub(super) async fn new(cluster: &'a Cluster) -> Self {
        let build = || Parts::new()?.binary(Part::PodRequests).map_err(anyhow::Error::from);
        Self { cluster, pod_requests: tokio::task::spawn_blocking(build).await.unwrap().unwrap() }
    }

    /// Creates an object by dry run; `resources` is its collection's path, such as `/apis/batch/v1/namespaces/ns/jobs`.
    pub(super) async fn dry_run(&self, resources: &str, object: &Value) -> anyhow::Result<Answer> {
        let request = http::Request::post(format!("{resources}?dryRun=All"))
            .body(serde_json::to_vec(object)?)?;
        match self.cluster.admin.request::<Value>(request).await {
            Ok(admitted) => Ok(Answer::Admitted(admitted)),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
                Ok(Answer::Refused(status.message.clone()))
            }
            Err(error) => Err(error).with_context(|| format!("{resources}: {object}")),
        }
    }

    /// The pods of these specs, each in its namespace.
    pub(super) async fn pods(&self, specs: &[(&str, &Value)]) -> anyhow::Result<Vec<Answer>> {
        let create = |(namespace, spec): &(&str, &Value)| {
            let pod =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
            let resources = format!("/api/v1/namespaces/{namespace}/pods");
            async move { self.dry_run(&resources, &pod).await }
        };
        stream::iter(specs.iter().map(create)).buffered(AT_ONCE).try_collect().await
    }

    /// The requests of each pod.
    pub(super) async fn requests(&self, pods: &[&Value]) -> anyhow::Result<Vec<Amounts>> {
        // Tests of one cluster run beside each other.
        let path = self.cluster.state_dir().join(fixture::unique("pods"));
        let mut file = std::fs::File::create(&path)?;
        for pod in pods {
            writeln!(file, "{pod}")?;
        }
        drop(file);
        let input = std::fs::File::open(&path)?;
        let mut command = Command::new(&self.pod_requests);
        command.stdin(input).stderr(Stdio::inherit());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(output.status.success(), "pod-requests: {}", output.status);
        let lines = std::str::from_utf8(&output.stdout)?.lines();
        let amounts: Vec<Amounts> = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        ensure!(
            amounts.len() == pods.len(),
            "pod-requests told {} of {} pods",
            amounts.len(),
            pods.len()
        );
        Ok(amounts)
    }

    /// The requests of the pods of these specs, or why the API server refuses them.
    pub(super) async fn admitted(
        &self,
        specs: &[(&str, &Value)],
    ) -> anyhow::Result<Vec<Result<Admitted, String>>> {
        let answers = self.pods(specs).await?;
        let pods: Vec<&Value> = answers.iter().filter_map(Answer::admitted).collect();
        let mut amounts = self.requests(&pods).await?.into_iter();
        let one = |answer: Answer| match answer {
            Answer::Refused(why) => Err(why),
            Answer::Admitted(mut pod) => Ok(Admitted {
                spec: pod["spec"].take(),
                requests: amounts.next().unwrap_or_default(),
            }),
        };
        Ok(answers.into_iter().map(one).collect())
    }
}

impl Answer {
    pub(super) fn admitted(&self) -> Option<&Value> {
        match self {
            Self::Admitted(object) => Some(object),
            Self::Refused(_) => None,
        }
    }
}

/// An admitted pod.
pub(super) struct Admitted {
    pub(super) spec: Value,
    pub(super) requests: Amounts,
}
