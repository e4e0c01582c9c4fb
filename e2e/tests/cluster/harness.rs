//! The harness itself: what it promises to every other test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, Environment, JobBuilder, NodeSpec, Part, fixture, job};

/// Generous: the machine may be building something else.
const SOON: Duration = Duration::from_secs(120);

static PAIR: fixture::Shared<Environment> = fixture::Shared::new(|| {
    Box::pin(async {
        let gpus = NodeSpec::new("gpu-1").cpu(16).gpu(8).label("pool", "a");
        let plain = NodeSpec::new("cpu-1").cpu(16).taint("plain", "yes", "NoSchedule");
        Environment::builder("harness")
            .cluster(ClusterSpec::new("hub"))
            .cluster(ClusterSpec::new("worker").nodes([gpus, plain]))
            .start()
            .await
    })
});

#[test]
fn two_clusters_start_in_time() {
    fixture::run(async {
        // The parts are built by now, or this waits for the build; what counts is the start after it.
        PAIR.get().await.unwrap();
        let start = Instant::now();
        let node = NodeSpec::new("n1");
        let environment = Environment::builder("start").cluster(ClusterSpec::new("hub"));
        let environment =
            environment.cluster(ClusterSpec::new("worker").node(node)).start().await.unwrap();
        let took = start.elapsed();
        println!("two clusters, one with a node: {took:.1?}");
        for cluster in environment.clusters() {
            let rss = |part| cluster.rss(part).map(|bytes| bytes / 1_000_000).unwrap_or_default();
            println!("{}: API server {} MB", cluster.name(), rss(Part::ApiServer));
        }
        let dir = environment.dir().to_owned();
        let start = Instant::now();
        environment.stop();
        println!("stopped in {:.1?}", start.elapsed());
        assert!(!dir.exists(), "files are left");
        // 5 s a cluster when the machine is idle; other tests and builds run beside this one.
        assert!(took < Duration::from_secs(180), "took {took:?}");
    });
}

#[test]
fn jobs_run_and_end_as_their_annotations_say() {
    fixture::run(async {
        let environment = PAIR.get().await.unwrap();
        let worker = environment.cluster("worker");
        let client = &worker.admin;
        let namespace = worker.namespace("jobs").await.unwrap();
        let new = |name: &str| JobBuilder::new(&namespace, name);
        new("good").gpu(2).parallelism(2).completions(3).create(client).await.unwrap();
        new("bad").fails().create(client).await.unwrap();
        new("long").run_forever().create(client).await.unwrap();
        new("tainted")
            .node_selector("kubernetes.io/hostname", "cpu-1")
            .create(client)
            .await
            .unwrap();
        new("tolerant")
            .node_selector("kubernetes.io/hostname", "cpu-1")
            .toleration("plain", "yes")
            .run_for(Duration::ZERO)
            .create(client)
            .await
            .unwrap();

        let good = job::complete(client, &namespace, "good", SOON).await.unwrap();
        assert_eq!(good.status.unwrap().succeeded, Some(3));
        job::failed(client, &namespace, "bad", SOON).await.unwrap();
        job::complete(client, &namespace, "tolerant", SOON).await.unwrap();
        let pods = pods_of(client, &namespace, "good").await.unwrap();
        assert!(
            pods.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("gpu-1"))
        );
        let bad = pods_of(client, &namespace, "bad").await.unwrap();
        let ended =
            bad[0].status.clone().unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
        assert_eq!(ended.terminated.unwrap().exit_code, 1);

        await_phases(client, &namespace, "long", &["Running"]).await;
        await_phases(client, &namespace, "tainted", &["Pending"]).await;
    });
}

#[test]
fn a_pod_runs_for_as_long_as_it_says() {
    fixture::run(async {
        let environment = PAIR.get().await.unwrap();
        let worker = environment.cluster("worker");
        let namespace = worker.namespace("time").await.unwrap();
        let asked = Duration::from_millis(2500);
        JobBuilder::new(&namespace, "timed").run_for(asked).create(&worker.admin).await.unwrap();
        let done = job::complete(&worker.admin, &namespace, "timed", SOON).await.unwrap();
        let pod = pods_of(&worker.admin, &namespace, "timed").await.unwrap().remove(0);
        let state = pod
            .status
            .unwrap()
            .container_statuses
            .unwrap()
            .remove(0)
            .state
            .unwrap()
            .terminated
            .unwrap();
        let ran = state.finished_at.unwrap().0.duration_since(state.started_at.unwrap().0);
        // Kubernetes' times have whole seconds.
        assert!((2..=60).contains(&ran.as_secs()), "ran for {ran:?}");
        assert!(done.status.unwrap().completion_time.is_some());
    });
}

#[test]
fn suspending_a_job_ends_its_pods_and_deleting_it_collects_them() {
    fixture::run(async {
        let environment = PAIR.get().await.unwrap();
        let worker = environment.cluster("worker");
        let client = &worker.admin;
        let namespace = worker.namespace("suspend").await.unwrap();
        let jobs: Api<batch::Job> = Api::namespaced(client.clone(), &namespace);
        JobBuilder::new(&namespace, "long").run_forever().create(client).await.unwrap();
        await_phases(client, &namespace, "long", &["Running"]).await;

        let suspend = |on: bool| kube::api::Patch::Merge(json!({"spec": {"suspend": on}}));
        jobs.patch("long", &Default::default(), &suspend(true)).await.unwrap();
        await_phases(client, &namespace, "long", &[]).await;
        eventually(SOON, "no active pod", async || {
            let status = jobs.get("long").await?.status;
            ensure!(
                status.as_ref().and_then(|status| status.active).unwrap_or(0) == 0,
                "{status:?}"
            );
            Ok(())
        })
        .await
        .unwrap();

        jobs.patch("long", &Default::default(), &suspend(false)).await.unwrap();
        await_phases(client, &namespace, "long", &["Running"]).await;
        jobs.delete("long", &DeleteParams::background()).await.unwrap();
        await_phases(client, &namespace, "long", &[]).await;
    });
}

#[test]
fn a_service_account_has_its_own_rights_only() {
    fixture::run(async {
        let environment = PAIR.get().await.unwrap();
        let hub = environment.cluster("hub");
        let namespace = hub.namespace("rights").await.unwrap();
        let yaml = format!(
            r"
apiVersion: v1
kind: ServiceAccount
metadata: {{name: reader, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: reader, namespace: {namespace}}}
rules:
- {{apiGroups: [''], resources: [configmaps], verbs: [list]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: reader, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}
subjects: [{{kind: ServiceAccount, name: reader, namespace: {namespace}}}]
"
        );
        hub.apply_yaml(&yaml).await.unwrap();
        let (client, kubeconfig) = hub.service_account(&namespace, "reader").await.unwrap();
        assert!(kubeconfig.contains("certificate-authority-data"));
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        eventually(SOON, "the role to count", async || {
            Ok(maps.list(&ListParams::default()).await?)
        })
        .await
        .unwrap();
        let map = serde_json::from_value(json!({"metadata": {"name": "x"}})).unwrap();
        let refused = maps.create(&PostParams::default(), &map).await;
        assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    });
}

#[test]
fn manifests_with_their_own_kinds_apply_in_one_go() {
    fixture::run(async {
        let environment = PAIR.get().await.unwrap();
        let hub = environment.cluster("hub");
        let yaml = r"
apiVersion: harness.switchyard.dev/v1
kind: Thing
metadata: {name: first, namespace: things}
spec: {size: 3}
---
apiVersion: v1
kind: Namespace
metadata: {name: things}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.harness.switchyard.dev}
spec:
  group: harness.switchyard.dev
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
";
        let applied = hub.apply_yaml(yaml).await.unwrap();
        assert_eq!(applied[2].data["spec"]["size"], 3);
        let wrong = hub.apply_yaml(&yaml.replace("size: 3", "size: many")).await.unwrap_err();
        assert!(format!("{wrong:#}").contains("spec.size"), "{wrong:#}");
    });
}

#[test]
fn an_api_server_counts_what_was_asked_of_it() {
    fixture::run(async {
        let spec = ClusterSpec::new("alone").audited();
        let environment = Environment::builder("metrics").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("alone");
        // The API server writes these itself, some time after its start.
        let system: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), "kube-system");
        for name in [
            "extension-apiserver-authentication",
            "kube-apiserver-legacy-service-account-token-tracking",
        ] {
            let written = async || Ok(system.get(name).await.map(drop)?);
            eventually(SOON, format!("ConfigMap {name}"), written).await.unwrap();
        }
        let before = cluster.requests().await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), "default");
        for name in ["a", "b", "c"] {
            let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            maps.create(&PostParams::default(), &map).await.unwrap();
        }
        maps.delete("a", &DeleteParams::default()).await.unwrap();
        let more = cluster.requests().await.unwrap().since(&before);
        let writes = more.of("", "configmaps").writes();
        assert_eq!(writes.total(), 4, "{more}");
        assert_eq!(writes.only(|request| request.verb == "POST" && request.code == 201).total(), 3);

        let ours = cluster.requests_by("e2e-admin").unwrap().of("", "configmaps").writes();
        assert_eq!(ours.total(), 4, "{ours}");
        let (reader, _) = cluster.service_account("default", "default").await.unwrap();
        assert!(Api::<ConfigMap>::namespaced(reader, "default").get("b").await.is_err());
        let theirs = cluster.requests_by("system:serviceaccount:default:default").unwrap();
        assert_eq!(theirs.to_string(), "      1 GET     403 configmaps\n      1 in all");
    });
}

#[test]
fn an_api_server_goes_hangs_and_comes_back_with_its_state() {
    fixture::run(async {
        let environment =
            Environment::builder("faults").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let namespace = cluster.namespace("kept").await.unwrap();
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(cluster.admin.clone(), &namespace);

        cluster.pause(Part::ApiServer).unwrap();
        assert!(cluster.is_paused(Part::ApiServer).unwrap(), "a thread goes on");
        let hung = tokio::time::timeout(Duration::from_millis(300), accounts.get("default")).await;
        assert!(hung.is_err(), "a paused API server answered: {hung:?}");
        cluster.resume(Part::ApiServer).unwrap();
        accounts.get("default").await.unwrap();

        cluster.stop_api_server().unwrap();
        assert!(accounts.get("default").await.is_err());
        let start = Instant::now();
        cluster.start_api_server().await.unwrap();
        println!("API server is back after {:.1?}", start.elapsed());
        accounts.get("default").await.unwrap();
        cluster.restart(Part::ControllerManager).await.unwrap();
        cluster.namespace("after").await.unwrap();
    });
}

#[test]
fn nothing_is_left_when_the_owner_is_killed() {
    if std::env::var_os(OWNER).is_some() {
        return own("killed", || std::thread::sleep(SOON));
    }
    let mut owner = Owner::start("harness::nothing_is_left_when_the_owner_is_killed");
    let processes = owner.processes();
    let port = owner.port;
    assert!(processes.len() >= 3 && processes.iter().all(|pid| is_alive(*pid)), "{processes:?}");
    assert!(switchyard_e2e::ports::is_open(port));
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    await_gone(&processes, port);
    forget(&owner.dir);
}

#[test]
fn nothing_is_left_but_logs_when_a_test_panics() {
    if std::env::var_os(OWNER).is_some() {
        return own("panics", || panic!("as a test that fails"));
    }
    let mut owner = Owner::start("harness::nothing_is_left_but_logs_when_a_test_panics");
    let processes = owner.processes();
    assert!(!owner.child.wait().unwrap().success());
    await_gone(&processes, owner.port);
    assert!(
        owner.dir.join("alone/kube-apiserver.log").exists() && !owner.dir.join("state").exists()
    );
    forget(&owner.dir);
}

/// An environment that starts meanwhile may have found that it has no owner any more.
fn forget(dir: &std::path::Path) {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            panic!("{}: {error}", dir.display())
        }
        _ => {}
    }
}

/// Set in the processes that the two tests above start, each itself again, to see what becomes of their clusters.
const OWNER: &str = "HARNESS_OWNER";

fn own(name: &str, end: impl FnOnce()) {
    fixture::run(async {
        let environment =
            Environment::builder(name).cluster(ClusterSpec::new("alone")).start().await.unwrap();
        println!("OWNER dir {}", environment.dir().display());
        println!("OWNER port {}", environment.cluster("alone").port());
        println!("OWNER ready");
        end();
    });
}

struct Owner {
    child: Child,
    dir: PathBuf,
    port: u16,
}

impl Owner {
    fn start(test: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(OWNER, "yes")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut dir, mut port) = (PathBuf::new(), 0);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some((_, said)) = line.split_once("OWNER ") else { continue };
            match said.split_once(' ') {
                Some(("dir", path)) => dir = path.into(),
                Some(("port", number)) => port = number.parse().unwrap(),
                _ => break,
            }
        }
        assert_ne!(port, 0, "the owner did not start");
        Self { child, dir, port }
    }

    /// The programs that run with files in the owner's directory: everything it started, if it has not ended yet.
    fn processes(&self) -> Vec<u32> {
        let mark = self.dir.display().to_string();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| command_line(*pid).contains(&mark)).collect()
    }
}

fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn is_alive(pid: u32) -> bool {
    // A zombie's command line is empty.
    Path::new(&format!("/proc/{pid}")).exists() && !command_line(pid).is_empty()
}

fn await_gone(processes: &[u32], port: u16) {
    let start = Instant::now();
    while processes.iter().any(|pid| is_alive(*pid)) || switchyard_e2e::ports::is_open(port) {
        let left: Vec<String> = processes
            .iter()
            .map(|pid| command_line(*pid))
            .filter(|line| !line.is_empty())
            .collect();
        assert!(start.elapsed() < SOON, "still there: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("all gone after {:.1?}", start.elapsed());
}

async fn pods_of(client: &Client, namespace: &str, job: &str) -> anyhow::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    Ok(pods.list(&job::pods_of(job)).await?.items)
}

async fn phases(client: &Client, namespace: &str, job: &str) -> anyhow::Result<Vec<String>> {
    let pods = pods_of(client, namespace, job).await?;
    Ok(pods.into_iter().filter_map(|pod| pod.status?.phase).collect())
}

async fn await_phases(client: &Client, namespace: &str, job: &str, wanted: &[&str]) {
    eventually(SOON, format!("pods of {job} to be {wanted:?}"), async || {
        let phases = phases(client, namespace, job).await?;
        ensure!(phases == wanted, "{phases:?}");
        Ok(())
    })
    .await
    .unwrap();
    always(Duration::from_millis(200), "pods", async || {
        let phases = phases(client, namespace, job).await?;
        ensure!(phases == wanted, "{phases:?}");
        Ok(())
    })
    .await
    .unwrap();
}
