//! Configuration of containerd, of the pods' network and of the kubelet.

use std::path::Path;

use serde_json::{Value, json};
use switchyard_parts::containers::Containers;

use super::image::PAUSE;

/// The socket of containerd, in the node's own `/run`.
pub(super) const CONTAINERD: &str = "/run/containerd/containerd.sock";
/// The kubelet's directory, in the node's own `/var/lib`: the path must be short, because sockets lie below it.
pub(super) const KUBELET: &str = "/var/lib/kubelet";

/// Most pods of one node.
const MAX_PODS: u32 = 60;

/// The configuration of containerd. Without `restrict_oom_score_adj`, no sandbox starts in a container that lacks
/// CAP_SYS_RESOURCE.
pub(super) fn containerd(containers: &Containers, dir: &Path) -> anyhow::Result<String> {
    let (root, opt, net) = (dir.join("containerd"), dir.join("opt"), dir.join("cni"));
    Ok(format!(
        r#"version = 2
root = {root:?}
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "{CONTAINERD}"
[plugins."io.containerd.internal.v1.opt"]
path = {opt:?}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {bin:?}
conf_dir = {net:?}
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {runc:?}
SystemdCgroup = false
"#,
        bin = containers.cni()?,
        runc = containers.runc()?,
    ))
}

/// The configuration of the pods' bridge. Pods reach the node and each other, but nothing beyond, because addresses are not
/// masqueraded.
pub(super) fn pod_network(number: u8, dir: &Path) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": format!("pods-{number}"),
        "plugins": [{
            "type": "bridge",
            "bridge": format!("pods-{number}"),
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": dir.join("ipam"),
                "ranges": [[{"subnet": format!("10.99.{number}.0/24")}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

/// The configuration of the kubelet. Anybody may read logs, because only this run's network reaches the kubelet.
pub(super) fn kubelet(address: &str, cgroup: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": false,
        "resolvConf": "",
        "maxPods": MAX_PODS,
        "nodeStatusUpdateFrequency": "5s",
        // A mounted Secret follows its object within this time, by default within a minute and a half.
        "syncFrequency": "10s",
        // The disk is the machine's, and other programs fill it too.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    })
}
