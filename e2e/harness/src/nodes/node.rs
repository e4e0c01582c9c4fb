//! A real node of a cluster: its files, its addresses, and its program.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context;
use switchyard_parts::containers::{Containers, UNSHARE};

use super::image::{NodeImage, write_pause};
use super::{config, isolation};
use crate::kubeconfig::{self, Credential};
use crate::process::Program;
use crate::{Authority, paths};

/// A real node, and its cluster's part of the run's network.
#[derive(Clone, Debug)]
pub(crate) struct RealNode {
    number: u8,
    images: Vec<NodeImage>,
}

impl RealNode {
    pub(crate) fn new(images: Vec<NodeImage>) -> Self {
        static LAST: AtomicU8 = AtomicU8::new(0);
        Self { number: LAST.fetch_add(1, Ordering::Relaxed) + 1, images }
    }

    /// The addresses of the cluster's Services.
    pub(crate) fn service_range(&self) -> String {
        format!("10.96.{}.0/24", self.number)
    }

    /// The API server's address for pods: the first address of the Services.
    pub(crate) fn api_address(&self) -> String {
        format!("10.96.{}.1", self.number)
    }

    /// The address of the Service of type LoadBalancer with this index, from 1.
    pub(crate) fn load_balancer(&self, index: u8) -> std::net::Ipv4Addr {
        [10, 97, self.number, index].into()
    }

    fn address(&self) -> String {
        format!("10.98.{}.1", self.number)
    }

    /// Adds the cluster's addresses to the loopback device. An address with a prefix makes its whole network local.
    pub(crate) fn add_addresses(&self) -> anyhow::Result<()> {
        let services =
            [format!("{}/24", self.api_address()), format!("{}/24", self.load_balancer(1))];
        for address in services.iter().chain([&format!("{}/32", self.address())]) {
            isolation::ip(&["addr", "add", address, "dev", "lo"])?;
        }
        Ok(())
    }
}

/// A node's directories, and its connection to the cluster.
pub(crate) struct Site<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) url: &'a str,
    pub(crate) authority: &'a Authority,
    pub(crate) kubelet: &'a Path,
    pub(crate) logs: &'a Path,
    pub(crate) state: &'a Path,
}

/// A node's name. No test and no label depends on it.
pub(crate) fn name(cluster: &str) -> String {
    format!("{cluster}-node")
}

/// Writes the node's files and makes its images, which blocks for a second or two. Returns its program.
pub(crate) fn program(node: &RealNode, site: &Site<'_>) -> anyhow::Result<Program> {
    let containers = Containers::find()?;
    let dir = site.state.join("node");
    let (cni, images) = (dir.join("cni"), dir.join("images"));
    for folder in [&dir, &cni, &images] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let name = name(site.cluster);
    // Tests of one process may have clusters of the same name.
    let cgroup = format!("switchyard-{}-{}", std::process::id(), node.number);
    let identity = site.authority.client(&format!("system:node:{name}"), "system:nodes")?;
    let kubeconfig = kubeconfig::render(
        site.cluster,
        site.url,
        &site.authority.pem(),
        &Credential::Certificate(identity),
    )?;
    let write = |name: &str, text: String| {
        fs::write(dir.join(name), text)
            .with_context(|| format!("cannot write {}", dir.join(name).display()))
    };
    write("containerd.toml", config::containerd(&containers, &dir)?)?;
    write("cni/pods.conflist", config::pod_network(node.number, &dir).to_string())?;
    write("kubelet.json", config::kubelet(&node.address(), &cgroup).to_string())?;
    write("kubeconfig", kubeconfig)?;
    let mut archives = vec![write_pause(&containers, &images)?];
    for image in &node.images {
        archives.push(image.archive(&containers, &images)?);
    }
    let init = paths::binary("switchyard-node")?;
    let program = Program::new("node", UNSHARE[0], site.logs.join("node.log")).cgroup(&cgroup);
    let program = program
        .args(&UNSHARE[1..])
        .arg(init)
        .arg("init")
        .arg("--dir")
        .arg(&dir)
        .arg("--logs")
        .arg(site.logs);
    let program =
        archives.iter().fold(program, |program, archive| program.arg("--image").arg(archive));
    let program = program.arg("--kubelet").arg(site.kubelet).arg("--");
    Ok(program.args(kubelet_flags(&dir, &name, &node.address())))
}

fn kubelet_flags(dir: &Path, name: &str, address: &str) -> Vec<String> {
    let at = |file: &str| -> PathBuf { dir.join(file) };
    vec![
        format!("--config={}", at("kubelet.json").display()),
        format!("--kubeconfig={}", at("kubeconfig").display()),
        format!("--cert-dir={}", at("certs").display()),
        format!("--root-dir={}", config::KUBELET),
        format!("--hostname-override={name}"),
        format!("--node-ip={address}"),
    ]
}
