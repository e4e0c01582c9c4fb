//! The command line as users type it, on a hub with two workers: list, describe, wait, move, drain, remove.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use clap::Parser as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use switchyard::ExitStatus;
use switchyard_e2e::fleet::{Fleet, NAMESPACE};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Part, Parts, fixture};

use crate::common::{events, fleet};
use tokio::sync::Notify;

const SOON: Duration = Duration::from_secs(60);

/// Runs the command line on the hub, and returns its verdict and what it printed.
async fn switchyard(fleet: &Fleet, words: &[&str]) -> anyhow::Result<(ExitStatus, String)> {
    let kubeconfig = fleet.hub().kubeconfig().to_str().unwrap().to_owned();
    let command = ["switchyard", "--kubeconfig", &kubeconfig];
    let args = switchyard::Args::try_parse_from(command.iter().chain(words))?;
    let mut out = Vec::new();
    let verdict = switchyard::run(args, &mut out).await?;
    Ok((verdict, String::from_utf8(out)?))
}

/// The output of a command that finds no fault.
async fn text(fleet: &Fleet, words: &[&str]) -> String {
    let (verdict, text) = switchyard(fleet, words).await.unwrap();
    assert_eq!(verdict, ExitStatus::Clean, "{words:?}: {text}");
    text
}

/// A reader that closes its pipe once it has read a text, as `grep -q` does.
#[derive(Default)]
struct Reader<'a> {
    text: String,
    until: &'a str,
    listed: Option<&'a Notify>,
}

impl Write for Reader<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(listed) = self.listed {
            listed.notify_one();
        }
        match self.text.contains(self.until) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(()),
        }
    }
}

/// Runs a command that watches, tells when it has printed its list, and ends it once it has printed
/// a text.
async fn watch_until(fleet: &Fleet, words: &[&str], listed: &Notify, until: &str) -> String {
    let kubeconfig = fleet.hub().kubeconfig().to_str().unwrap().to_owned();
    let command = ["switchyard", "--kubeconfig", &kubeconfig];
    let args = switchyard::Args::try_parse_from(command.iter().chain(words)).unwrap();
    let mut reader = Reader { until, listed: Some(listed), ..Reader::default() };
    let ended = tokio::time::timeout(SOON, switchyard::run(args, &mut reader)).await;
    let text = reader.text;
    ended.unwrap_or_else(|_| panic!("{words:?} has not printed {until:?}: {text}")).unwrap();
    text
}

/// The message of a command that fails.
async fn refusal(fleet: &Fleet, words: &[&str]) -> String {
    switchyard(fleet, words).await.unwrap_err().to_string()
}

/// The output of kubectl on the hub, which must succeed.
async fn kubectl(fleet: &Fleet, words: &'static [&'static str]) -> String {
    let kubeconfig = fleet.hub().kubeconfig().to_owned();
    let run = move || {
        let mut command = std::process::Command::new(Parts::new()?.binary(Part::Kubectl)?);
        let output = command.args(words).arg("--kubeconfig").arg(kubeconfig).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{words:?}: {errors}");
        Ok(String::from_utf8(output.stdout)?)
    };
    tokio::task::spawn_blocking(run).await.unwrap().unwrap()
}

#[test]
fn user_lists_waits_for_and_moves_a_job() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "2")];
        let tenant =
            fleet.tenant("typed").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        let n = tenant.name();
        tenant.submit(tenant.job("long").cpu("2").run_forever()).await.unwrap();

        text(fleet, &["wait", "long", "-n", n, "--for", "running", "--timeout", "60s"]).await;
        // The status of a queue follows its jobs a second later, or more.
        eventually(SOON, "the queue to show that no job waits", async || {
            let (_, queues) = switchyard(fleet, &["get", "queues", "-n", n, "-o", "json"]).await?;
            let shown: Value = serde_json::from_str(&queues)?;
            let counts = (&shown[0]["pending"], &shown[0]["reserving"]);
            anyhow::ensure!(counts == (&json!(0), &json!(1)), "{queues}");
            Ok(())
        })
        .await
        .unwrap();
        // Changes are printed until the reader closes its pipe.
        let (jobs, labelled, queues) = (Notify::new(), Notify::new(), Notify::new());
        let submit = async {
            for listed in [&jobs, &labelled, &queues] {
                listed.notified().await;
            }
            let next = tenant.job("next").cpu("3").run_forever();
            tenant.submit(next.label("team", "vision")).await.unwrap();
        };
        let of_jobs = ["get", "jobs", "-n", n, "-w", "-o", "name"];
        let of_queues = ["get", "queues", "-n", n, "-w", "-o", "json"];
        let of_team = [&of_jobs[..], &["-l", "team=vision"]].concat();
        let (jobs, of_team, queues, ()) = tokio::join!(
            watch_until(fleet, &of_jobs, &jobs, "job/next\n"),
            watch_until(fleet, &of_team, &labelled, "job/next\n"),
            watch_until(fleet, &of_queues, &queues, "\"pending\":1,"),
            submit,
        );
        assert!(jobs.starts_with("job/long\n"), "{jobs}");
        assert_eq!(of_team, "job/next\n", "a new job with the labels");
        assert!(queues.contains("\"pending\": 0"), "the list comes first: {queues}");
        let none = text(fleet, &["get", "queues", "-n", n, "-l", "no-such-label"]).await;
        assert_eq!(none, "No LocalQueues.\n");
        let wait = ["wait", "next", "-n", n, "--for", "admitted", "--timeout", "5s"];
        let late = refusal(fleet, &wait).await;
        assert!(late.starts_with("timed out after 5s: next: Pending"), "{late}");
        let none = refusal(fleet, &["wait", "none", "-n", n, "--timeout", "3s"]).await;
        assert!(none.contains("no workload or queued job \"none\""), "{none}");

        let wide = text(fleet, &["get", "jobs", "-n", n, "-o", "wide"]).await;
        assert!(wide.starts_with("JOB") && wide.contains("FLAVORS"), "{wide}");
        let names = |words: &'static [&'static str]| async move {
            text(fleet, &[&["get", "jobs", "-n", n, "-o", "name"], words].concat()).await
        };
        assert_eq!(names(&[]).await, "job/long\njob/next\n");
        assert_eq!(names(&["--state", "running"]).await, "job/long\n");
        assert_eq!(names(&["--state", "Pending,Evicted"]).await, "job/next\n");
        assert_eq!(names(&["-l", "no-such-label"]).await, "");
        assert_eq!(names(&["-l", "!no-such-label", "next"]).await, "job/next\n");
        assert_eq!(refusal(fleet, &["get", "jobs", "-n", n, "lnog"]).await, "not found: lnog");

        let json: Value = serde_json::from_str(
            &text(fleet, &["get", "jobs", "-n", n, "long", "-o", "json"]).await,
        )
        .unwrap();
        let first = json[0]["cluster"].as_str().unwrap().to_owned();
        let second = if first == "west" { "east" } else { "west" };

        let queue = text(fleet, &["describe", "queue", "main", "-n", n]).await;
        let (holds, waits) = (format!("{n}/long"), format!("{n}/next"));
        let places = (queue.find(&holds), queue.find(&waits));
        assert!(matches!(places, (Some(first), Some(then)) if first < then), "{queue}");
        let named = format!("multikueuecluster/{first}");
        let cluster = text(fleet, &["describe", "cluster", &named]).await;
        assert!(cluster.contains("Connected: yes") && cluster.contains("long"), "{cluster}");

        let to = ["move", "long", "-n", n, "--to", second];
        let dry = text(fleet, &[&to[..], &["--dry-run"]].concat()).await;
        assert!(dry.contains(&format!("would be stopped on {first} and started on {second}")));
        let moved = [&to[..], &["--wait", "--timeout", "60s", "-o", "json"]].concat();
        let moved: Value = serde_json::from_str(&text(fleet, &moved).await).unwrap();
        assert_eq!((&moved["to"], &moved["hasArrived"]), (&second.into(), &true.into()));
        let job = text(fleet, &["describe", "job", "long", "-n", n]).await;
        let attempt = format!("1         {first}");
        assert!(job.contains("ATTEMPT") && job.contains(&attempt), "{job}");
        assert!(job.contains("Events:"), "{job}");
        eventually(SOON, "the events of the Workload", async || {
            let (verdict, events) = switchyard(fleet, &["events", "long", "-n", n]).await?;
            let has = verdict == ExitStatus::Clean && events.contains("Workload/");
            anyhow::ensure!(has, "{verdict:?}: {events}");
            Ok(())
        })
        .await
        .unwrap();

        let why = text(fleet, &["why", "next", "-n", n]).await;
        assert!(why.contains("cpu"), "{why}");
        let old_name = text(fleet, &["explain", "next", "-n", n]).await;
        assert_eq!(old_name.lines().next(), why.lines().next());
    });
}

#[test]
fn administrator_drains_and_removes_a_cluster() {
    fixture::run(async {
        let fleet = Fleet::builder("typed")
            .agent(switchyard_e2e::ClusterSpec::new("north"))
            .agent(switchyard_e2e::ClusterSpec::new("south"));
        let fleet = fleet.start().await.unwrap();
        let clusters = ["north", "south"].map(switchyard_e2e::queues::agent_cluster);
        fleet.hub().apply(clusters).await.unwrap();
        fleet.connect().await.unwrap();
        let fleet = &fleet;
        let quota = [("cpu", "2")];
        let tenant =
            fleet.tenant("drained").hub(&quota).worker("north", &quota).worker("south", &quota);
        let tenant = tenant.make().await.unwrap();
        tenant.submit(tenant.job("long").cpu("1").run_forever()).await.unwrap();
        let row = tenant
            .await_status("long", "dispatched", SOON, |row| row.cluster.is_some())
            .await
            .unwrap();
        let first = row.cluster.unwrap();

        // The columns that `kubectl` shows.
        let rows = kubectl(fleet, &["get", "multikueueclusters"]).await;
        let cells = |at: usize| -> Vec<String> {
            rows.lines().nth(at).unwrap().split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(cells(0), ["NAME", "CONNECTED", "LINK", "SINCE", "AGENT", "AGE"], "{rows}");
        let row = cells(1);
        assert_eq!(row[..3], ["north", "True", "Active"], "{rows}");
        assert_eq!(row[4], env!("CARGO_PKG_VERSION"), "{rows}");

        let plan = ["cluster", "add", "third", "--dry-run", "--hub-address", "https://hub:7443"];
        let plan = text(fleet, &plan).await;
        assert!(plan.contains("Nothing is changed") && plan.contains("https://hub:7443"), "{plan}");
        let list = text(fleet, &["cluster", "list", "-o", "name"]).await;
        assert!(!list.contains("third"), "{list}");
        let rotation = text(fleet, &["ca", "rotate", "--dry-run"]).await;
        assert!(rotation.ends_with("Nothing is changed.\n"), "{rotation}");
        let recovered = text(fleet, &["recover", "start", "--dry-run"]).await;
        assert!(recovered.contains("would remember nothing"), "{recovered}");
        let back = text(fleet, &["migrate", "hand-back", "--dry-run", "-o", "json"]).await;
        let back: Value = serde_json::from_str(&back).unwrap();
        assert_eq!(back["dryRun"], true, "{back}");

        let there = refusal(fleet, &["cluster", "remove", &first]).await;
        assert!(there.contains("1 workload is on it"), "{there}");
        assert!(there.ends_with("confirm it with --yes"), "{there}");
        let dry = text(fleet, &["cluster", "drain", &first, "--dry-run"]).await;
        assert!(dry.contains("would be stopped there"), "{dry}");
        assert!(dry.ends_with("Nothing is changed.\n"), "{dry}");
        let list = text(fleet, &["cluster", "list", "-o", "name"]).await;
        assert_eq!(list, "multikueuecluster/north\nmultikueuecluster/south\n");
        let drain = ["cluster", "drain", &first, "--wait", "--timeout", "60s"];
        let listed = Notify::new();
        let draining = [&drain[..], &["-o", "json"]].concat();
        let (clusters, drained) = tokio::join!(
            watch_until(fleet, &["get", "clusters", "-w"], &listed, "; drained"),
            async {
                listed.notified().await;
                text(fleet, &draining).await
            },
        );
        assert!(clusters.starts_with("CLUSTER"), "{clusters}");
        let drained: Value = serde_json::from_str(&drained).unwrap();
        assert_eq!(
            (&drained["cluster"], &drained["isDrained"]),
            (&first.as_str().into(), &true.into())
        );
        // The second time nothing is left to move.
        let drained = text(fleet, &drain).await;
        assert_eq!(drained, format!("{first} is drained. No workload is on it.\n"));
        let lost = refusal(fleet, &["cluster", "mark-lost", &first, "--yes"]).await;
        assert!(lost.contains("is connected"), "{lost}");
        let remove = ["cluster", "remove", &first, "--wait", "--timeout", "60s"];
        let removed = text(fleet, &remove).await;
        assert!(removed.contains("has no job there any more"), "{removed}");
        assert!(removed.contains("still lists it"), "{removed}");
        let version = text(fleet, &["version"]).await;
        assert!(version.contains("Kubernetes: v1.") && version.contains("agent of"), "{version}");
    });
}

/// A text that must not be in a bundle.
const MARKER: &str = "s3cret-marker";

/// Objects with [`MARKER`] in the hub's namespace: a Secret, ConfigMaps, and a pod of the hub.
fn marked_objects() -> [Value; 4] {
    let exec = json!({
        "command": "/plugins/vault", "args": ["--token", MARKER], "interactiveMode": "Never",
        "apiVersion": "client.authentication.k8s.io/v1", "env": [{"name": "TOKEN", "value": MARKER}],
    });
    let profile = json!({"accessProviders": [{"name": "vault", "execConfig": exec}]});
    let file = json!({"multiKueue": {"gcInterval": "1m", "clusterProfile": profile}});
    let object = |kind: &str, name: &str| {
        let annotations = json!({"example.com/note": MARKER});
        let metadata = json!({"name": name, "namespace": NAMESPACE, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    };
    let with = |mut object: Value, field: &str, value: Value| {
        object[field] = value;
        object
    };
    let config = json!({"controller_manager_config.yaml": file.to_string(), "other": MARKER});
    let ports = json!([{"name": "health", "containerPort": 8081}]);
    let container = json!({"name": "manager", "image": "hub", "args": [MARKER], "ports": ports});
    [
        with(object("Secret", "marked"), "stringData", json!({"token": MARKER})),
        with(object("ConfigMap", "marked"), "data", json!({"token": MARKER})),
        with(object("ConfigMap", "marked-config"), "data", config),
        with(object("Pod", "switchyard-hub-marked"), "spec", json!({"containers": [container]})),
    ]
}

/// All files below a directory, by path, as one text each.
fn files(dir: &Path, under: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, under, found);
        } else {
            let name = path.strip_prefix(under).unwrap().to_str().unwrap().to_owned();
            found.insert(name, std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn bundle_has_states_and_events_and_no_secret() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "2")];
        let tenant = fleet.tenant("bundled").hub(&quota).worker("west", &quota);
        let tenant = tenant.make().await.unwrap();
        let n = tenant.name();
        let probe =
            json!({"httpGet": {"port": 80, "httpHeaders": [{"name": "X", "value": MARKER}]}});
        let container = json!({
            "name": "main", "image": "busybox", "command": ["sh", MARKER], "args": [MARKER],
            "env": [{"name": "TOKEN", "value": MARKER}], "livenessProbe": probe,
            "resources": {"requests": {"cpu": "1"}},
        });
        let job = tenant.job("marked").run_forever();
        let job = job.pod_field("containers", json!([container]));
        let job =
            job.annotation("example.com/note", MARKER).pod_annotation("example.com/note", MARKER);
        tenant.submit(job.annotation("switchyard.dev/note", &MARKER.repeat(30))).await.unwrap();
        tenant
            .await_status("marked", "dispatched", SOON, |row| row.cluster.is_some())
            .await
            .unwrap();
        let waits = tenant.job("waits").cpu("3").run_forever();
        tenant.submit(waits).await.unwrap();
        tenant.await_status("waits", "pending", SOON, |row| !row.reason.is_empty()).await.unwrap();
        // Events are written after the change that they report.
        events::told(&fleet.hub().admin, "waits", "CreatedWorkload", "").await;
        fleet.hub().apply(marked_objects()).await.unwrap();

        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("bundle.tar.gz");
        let west = format!("west={}", fleet.worker("west").kubeconfig().display());
        let out = archive.to_str().unwrap();
        let bundle =
            text(fleet, &["debug", "bundle", "--out", out, "--worker", &west, "-o", "json"]).await;
        // Other tests of the file share the fleet.
        let now = DeleteParams::default().grace_period(0);
        for object in marked_objects() {
            let of = |pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap();
            let api = fleet.hub().dynamic("v1", of("/kind"), NAMESPACE).await.unwrap();
            api.delete(of("/metadata/name"), &now).await.unwrap();
        }

        let mode = std::fs::metadata(&archive).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let unpack =
            std::process::Command::new("tar").args(["-xzf", out, "-C"]).arg(dir.path()).status();
        assert!(unpack.unwrap().success());
        let root = dir.path().join("switchyard-bundle");
        let mut found = BTreeMap::new();
        files(&root, &root, &mut found);
        for (path, text) in &found {
            assert!(!text.contains(MARKER), "{path} has the marker");
        }
        assert!(!bundle.contains(MARKER), "{bundle}");
        let events = format!("hub/events/{n}.yaml");
        for (path, has) in [
            ("client-version.txt", env!("CARGO_PKG_VERSION")),
            ("hub/kubernetes-version.txt", "v1."),
            ("hub/configmaps.yaml", "gcInterval"),
            ("hub/multikueueclusters.yaml", "reason: Active"),
            ("hub/workloads.yaml", "clusterName: west"),
            ("hub/check.txt", "clusters"),
            (&*events, "waits"),
            ("workers/west/kubernetes-version.txt", "v1."),
            ("workers/west/workloads.yaml", n),
            ("errors.txt", "hub/metrics/switchyard-hub-marked.txt: port 8081"),
            ("errors.txt", "workers/west/metrics: no pod of Switchyard"),
        ] {
            let text = found.get(path).unwrap_or_else(|| panic!("no {path}: {:?}", found.keys()));
            assert!(text.contains(has), "{path} lacks {has}: {text}");
        }
    });
}
