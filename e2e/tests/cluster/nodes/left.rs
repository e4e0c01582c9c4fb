//! A killed run leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use switchyard_e2e::nodes::{BUSYBOX, NodeImage};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, Environment, fixture};

use super::running_pod;

/// Set in the process that is killed: this test program again.
const OWNER: &str = "NODES_OWNER";
/// How long the kernel may take to end a node's processes.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    fixture::run_on_real_nodes(async {
        if std::env::var_os(OWNER).is_some() {
            return own().await;
        }
        let mut owner = start();
        // The cgroup of its first node.
        let (network, cgroup) = (network(owner.id()), format!("switchyard-{}-1", owner.id()));
        let processes = processes(&network, &cgroup);
        let names: BTreeSet<String> = processes.iter().map(|pid| name(*pid)).collect();
        for expected in
            ["etcd", "kube-apiserver", "containerd", "containerd-shim", "kubelet", "busybox"]
        {
            assert!(
                names.iter().any(|name| name.starts_with(expected)),
                "{expected} is not among {names:?}"
            );
        }
        assert!(!cgroups(&cgroup).is_empty());
        owner.kill().unwrap();
        owner.wait().unwrap();
        eventually(SOON, "everything to be gone", async || {
            let left: Vec<String> =
                processes.iter().filter(|pid| is_alive(**pid)).map(|pid| name(*pid)).collect();
            ensure!(left.is_empty(), "processes {left:?}");
            ensure!(cgroups(&cgroup).is_empty(), "cgroups {:?}", cgroups(&cgroup));
            let mounts = fs::read_to_string("/proc/self/mountinfo")?;
            ensure!(!mounts.contains(&format!("-{}/", owner.id())), "{mounts}");
            Ok(())
        })
        .await
        .unwrap();
    });
}

/// Starts a cluster with a real node and a pod, announces it, and waits to be killed.
async fn own() {
    let spec = ClusterSpec::new("alone").real_node([NodeImage::Busybox]);
    let environment = Environment::builder("killed").cluster(spec).start().await.unwrap();
    let cluster = environment.cluster("alone");
    let container =
        json!({"name": "main", "image": BUSYBOX, "command": ["/bin/sh", "-c", "sleep 600"]});
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": "sleeps"},
        "spec": {"containers": [container]},
    });
    cluster.apply([pod]).await.unwrap();
    running_pod(cluster, "default").await;
    println!("OWNER ready");
    std::thread::sleep(20 * SOON);
}

/// In a network of its own: the addresses of its node are those of nodes here.
fn start() -> Child {
    let mut command = Command::new("unshare");
    command.arg("--net").arg(std::env::current_exe().unwrap());
    command.args([
        "nodes::left::nothing_is_left_of_a_run_that_is_killed",
        "--exact",
        "--nocapture",
    ]);
    let mut child =
        command.env(OWNER, "yes").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.take_while(|line| !line.ends_with("OWNER ready")).count() < 10_000);
    assert!(is_alive(child.id()), "the owner did not start");
    child
}

fn network(pid: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()
}

/// All processes of a run: in its network, or in a container below its cgroup.
fn processes(network: &Path, cgroup: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |pid: &u32| {
        let in_network = fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|it| it == network);
        let of = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        in_network || of.contains(cgroup)
    };
    pids.filter(is_ours).collect()
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// A zombie has no command line.
fn is_alive(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Where a cgroup of this name is, in whatever hierarchy.
fn cgroups(name: &str) -> Vec<PathBuf> {
    let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
    hierarchies
        .chain([PathBuf::from("/sys/fs/cgroup")])
        .map(|it| it.join(name))
        .filter(|it| it.exists())
        .collect()
}
