//! Starts a cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;

use super::{Cluster, READY_TIME, SETTLE_TIME, apply};
use crate::ground::{FRONT_PROXY, Ground, start_etcd};
use crate::kubeconfig::{self, Credential};
use crate::nodes::{self, RealNode, Services, Site};
use crate::ports;
use crate::process::{self, Process, Program};
use crate::rights;
use crate::spec::{ClusterSpec, NodeSpec};
use crate::wait::{eventually, never};
use crate::workdir::WorkDir;
use switchyard_parts::Part;

/// The stages by which kwok simulates the kubelets.
const STAGES: &str = include_str!("../kwok/stages.yaml");

/// Records each request once, when it is answered, without its body.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted, Panic]\nrules:\n- level: Metadata\n";

/// The files of a cluster.
#[derive(Debug)]
pub(super) struct Files {
    /// `PART.log`.
    pub(super) logs: PathBuf,
    /// Certificates, keys and configuration.
    pub(super) state: PathBuf,
}

impl Files {
    fn write(spec: &ClusterSpec, ground: &Ground, dir: &WorkDir) -> anyhow::Result<Self> {
        let files = Self { logs: dir.path().join(&spec.name), state: dir.state().join(&spec.name) };
        let limits =
            if spec.shipped_limits { "{qps: 50, burst: 100}" } else { "{qps: 1000, burst: 2000}" };
        let scheduler = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: \
             {{leaderElect: false}}\nclientConnection: {{kubeconfig: {}, {}\n",
            files.path("kubeconfig"),
            limits.trim_start_matches('{'),
        );
        fs::create_dir_all(&files.logs)?;
        fs::create_dir_all(&files.state)?;
        for (name, text) in [
            ("ca.crt", ground.ca_pem.as_str()),
            ("server.crt", &ground.serving.certificate),
            ("server.key", &ground.serving.key),
            ("front-proxy-ca.crt", &ground.front_proxy.0),
            ("front-proxy.crt", &ground.front_proxy.1.certificate),
            ("front-proxy.key", &ground.front_proxy.1.key),
            ("token.key", &ground.token_private),
            ("token.pub", &ground.token_public),
            ("stages.yaml", STAGES),
            ("audit.yaml", AUDIT_POLICY),
            ("scheduler.yaml", &scheduler),
        ] {
            fs::write(files.state.join(name), text)
                .with_context(|| format!("cannot write {name}"))?;
        }
        Ok(files)
    }

    /// One JSON object a line.
    pub(super) fn audit_log(&self) -> PathBuf {
        self.state.join("audit.log")
    }

    fn path(&self, name: &str) -> String {
        self.state.join(name).display().to_string()
    }

    fn program(&self, ground: &Ground, part: Part) -> anyhow::Result<Program> {
        Ok(Program::new(
            part.name(),
            ground.binary(part)?,
            self.logs.join(format!("{}.log", part.name())),
        ))
    }
}

impl Cluster {
    pub(crate) async fn start(
        spec: ClusterSpec,
        ground: Arc<Ground>,
        dir: &WorkDir,
    ) -> anyhow::Result<Self> {
        let name = spec.name.clone();
        Self::start_all(spec, ground, dir).await.with_context(|| format!("cluster {name}"))
    }

    async fn start_all(
        spec: ClusterSpec,
        ground: Arc<Ground>,
        dir: &WorkDir,
    ) -> anyhow::Result<Self> {
        let start = Instant::now();
        let files = Files::write(&spec, &ground, dir)?;
        if let Some(node) = &spec.real_node {
            ensure!(spec.nodes.is_empty(), "a cluster has one real node or nodes that kwok plays");
            node.add_addresses()?;
        }
        let mut processes = BTreeMap::new();
        let mut etcd_url = ground.etcd_url.clone();
        if spec.own_etcd {
            let (etcd, url) =
                start_etcd(ground.binary(Part::Etcd)?, &files.logs, &files.state).await?;
            etcd_url = url;
            processes.insert(Part::Etcd, etcd);
        }
        let (api_server, port, admin) = start_api_server(&spec, &ground, &files, &etcd_url).await?;
        let ready = start.elapsed();
        processes.insert(Part::ApiServer, api_server);
        for (part, program) in others(&spec, &ground, &files)? {
            processes.insert(part, program.start()?);
        }
        let url = format!("https://127.0.0.1:{port}");
        if let Some(node) = &spec.real_node {
            let program = real_node(node.clone(), &spec, &ground, &files, &url).await?;
            processes.insert(Part::Kubelet, program.start()?);
        }
        let services =
            spec.real_node.clone().map(|node| Services::start(node, admin.clone(), port));
        let cluster = Self {
            port,
            url,
            _services: services,
            kubeconfig: files.state.join("kubeconfig"),
            admin,
            processes: Mutex::new(processes),
            kinds: apply::Kinds::default(),
            usage_writer: Arc::default(),
            files,
            ground,
            spec,
        };
        cluster.add_nodes(&cluster.spec.nodes).await?;
        cluster.settle().await?;
        tracing::debug!(cluster = cluster.spec.name, url = cluster.url, ?ready, all = ?start.elapsed(), "cluster is up");
        Ok(cluster)
    }

    /// Adds nodes, which kwok plays, to a cluster that has some already.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn add_nodes(&self, specs: &[NodeSpec]) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let create = specs.iter().map(async |node| {
            let object: Node = serde_json::from_value(node.object())?;
            nodes
                .create(&PostParams::default(), &object)
                .await
                .with_context(|| format!("node {}", node.name()))
        });
        try_join_all(create).await.map(|_| ())
    }

    /// Waits until nodes are Ready and Jobs can create pods in `default`.
    async fn settle(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        eventually(SETTLE_TIME, "all nodes to be Ready", async || {
            self.check_processes().map_err(never)?;
            if self.spec.has_nodes() {
                let nodes = nodes.list(&kube::api::ListParams::default()).await?.items;
                ensure!(!nodes.is_empty(), "there is no node yet");
                for node in nodes {
                    let name = node.metadata.name.unwrap_or_default();
                    let conditions =
                        node.status.and_then(|status| status.conditions).unwrap_or_default();
                    let ready =
                        conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
                    ensure!(ready, "{name} is not Ready");
                }
            }
            Ok(())
        })
        .await?;
        self.await_service_account("default", "default").await
    }

    /// Waits until a service account exists. Before, its namespace accepts no pods that use it.
    pub async fn await_service_account(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), namespace);
        eventually(SETTLE_TIME, format!("service account {namespace}/{name}"), async || {
            self.check_processes().map_err(never)?;
            accounts.get(name).await?;
            Ok(())
        })
        .await
    }

    fn check_processes(&self) -> anyhow::Result<()> {
        self.processes.lock().values().try_for_each(Process::check)
    }
}

/// Starts an API server and waits until it is ready. If another process takes the port first, tries another port.
async fn start_api_server(
    spec: &ClusterSpec,
    ground: &Ground,
    files: &Files,
    etcd_url: &str,
) -> anyhow::Result<(Process, u16, Client)> {
    for _ in 0..process::PORT_TRIES {
        let port = ports::free()?;
        let url = format!("https://127.0.0.1:{port}");
        let credential = Credential::Certificate(ground.admin.clone());
        let kubeconfig = kubeconfig::render(&spec.name, &url, &ground.ca_pem, &credential)?;
        fs::write(files.state.join("kubeconfig"), &kubeconfig)?;
        let admin = kubeconfig::client(&kubeconfig).await?;
        let process = api_server(spec, ground, files, (port, etcd_url))?.start()?;
        match await_ready(&process, &admin).await {
            Ok(()) => return Ok((process, port, admin)),
            Err(_) if process::lost_port(&process) => {
                tracing::debug!(port, "port was taken, again with another")
            }
            Err(error) => return Err(error),
        }
    }
    bail!("no port stays free for kube-apiserver")
}

/// Waits until an API server reports that it is ready.
pub(super) async fn await_ready(process: &Process, admin: &Client) -> anyhow::Result<()> {
    let ready = eventually(READY_TIME, "the API server to be ready", async || {
        process.check().map_err(never)?;
        let request = http::Request::get("/readyz").body(Vec::new())?;
        let answer = tokio::time::timeout(Duration::from_secs(3), admin.request_text(request));
        answer.await.context("no answer within 3 s")??;
        Ok(())
    });
    ready.await.with_context(|| format!("its log ends with:\n{}", process.log_tail(20)))
}

fn api_server(
    spec: &ClusterSpec,
    ground: &Ground,
    files: &Files,
    (port, etcd_url): (u16, &str),
) -> anyhow::Result<Program> {
    let services =
        spec.real_node.as_ref().map_or_else(|| "10.0.0.0/24".to_owned(), RealNode::service_range);
    let authorizers = if spec.real_node.is_some() { "Node,RBAC" } else { "RBAC" };
    let program = files
        .program(ground, Part::ApiServer)?
        .arg(format!("--etcd-servers={etcd_url}"))
        .arg(format!("--etcd-prefix=/{}", spec.name))
        .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--cert-dir={}", files.path("certs")))
        .arg(format!("--tls-cert-file={}", files.path("server.crt")))
        .arg(format!("--tls-private-key-file={}", files.path("server.key")))
        .arg(format!("--client-ca-file={}", files.path("ca.crt")))
        .arg(format!("--authorization-mode={authorizers}"))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={}", files.path("token.pub")))
        .arg(format!("--service-account-signing-key-file={}", files.path("token.key")))
        .arg(format!("--service-cluster-ip-range={services}"))
        .arg("--kubelet-preferred-address-types=InternalIP")
        // The front proxy leads to aggregated APIs.
        .arg(format!("--requestheader-client-ca-file={}", files.path("front-proxy-ca.crt")))
        .arg(format!("--requestheader-allowed-names={FRONT_PROXY}"))
        .arg("--requestheader-username-headers=X-Remote-User")
        .arg("--requestheader-group-headers=X-Remote-Group")
        .arg("--requestheader-extra-headers-prefix=X-Remote-Extra-")
        .arg(format!("--proxy-client-cert-file={}", files.path("front-proxy.crt")))
        .arg(format!("--proxy-client-key-file={}", files.path("front-proxy.key")))
        // The first plugin taints new nodes until the node lifecycle controller clears them, which does not run here. The
        // second one asks for the whole OpenAPI schema every five seconds, and no test has such a policy.
        .arg("--disable-admission-plugins=TaintNodesByCondition,MutatingAdmissionPolicy")
        .args(&spec.api_server_args);
    // Kubernetes 1.37 refuses a loopback address as the endpoint of the Service `kubernetes`. Only pods on real nodes use it.
    let program = match spec.real_node {
        None => program.arg("--endpoint-reconciler-type=none"),
        Some(_) => program,
    };
    let audited = |policy: &str, log: &Path| {
        [
            format!("--audit-policy-file={}", files.path(policy)),
            format!("--audit-log-path={}", log.display()),
        ]
    };
    if spec.audited {
        return Ok(program
            .args(audited("audit.yaml", &files.audit_log()))
            .arg("--audit-log-maxsize=4000"));
    }
    let Some(log) = rights::log(&spec.name, port) else { return Ok(program) };
    fs::write(files.state.join("rights.yaml"), rights::policy()?)?;
    // No more than 300 MB of one cluster.
    Ok(program
        .args(audited("rights.yaml", &log))
        .args(["--audit-log-maxsize=100", "--audit-log-maxbackup=2"]))
}

/// The programs of a cluster besides the API server.
fn others(
    spec: &ClusterSpec,
    ground: &Ground,
    files: &Files,
) -> anyhow::Result<Vec<(Part, Program)>> {
    let kubeconfig = format!("--kubeconfig={}", files.path("kubeconfig"));
    let mut manager = files
        .program(ground, Part::ControllerManager)?
        .arg(&kubeconfig)
        .arg(format!("--service-account-private-key-file={}", files.path("token.key")))
        .arg(format!("--root-ca-file={}", files.path("ca.crt")))
        .args(["--leader-elect=false", "--secure-port=0"])
        .arg(format!("--controllers={}", spec.controllers.join(",")));
    if !spec.shipped_limits {
        manager = manager.args([
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--concurrent-job-syncs=20",
        ]);
    }
    let mut programs = vec![(Part::ControllerManager, manager)];
    if !spec.nodes.is_empty() {
        let kwok = files.program(ground, Part::Kwok)?.arg(&kubeconfig).arg("--manage-all-nodes");
        programs.push((Part::Kwok, kwok.arg("--config").arg(files.path("stages.yaml"))));
    }
    if spec.has_nodes() && spec.scheduler {
        let scheduler = files.program(ground, Part::Scheduler)?.arg("--secure-port=0");
        programs.push((
            Part::Scheduler,
            scheduler.arg(format!("--config={}", files.path("scheduler.yaml"))),
        ));
    }
    Ok(programs)
}

/// The node's program. It is made on a blocking thread, because images take a second or two.
async fn real_node(
    node: RealNode,
    spec: &ClusterSpec,
    ground: &Arc<Ground>,
    files: &Files,
    url: &str,
) -> anyhow::Result<Program> {
    let (cluster, ground, url) = (spec.name.clone(), Arc::clone(ground), url.to_owned());
    let (logs, state) = (files.logs.clone(), files.state.clone());
    let make = move || {
        let site = Site {
            cluster: &cluster,
            url: &url,
            authority: &ground.authority,
            kubelet: ground.binary(Part::Kubelet)?,
            logs: &logs,
            state: &state,
        };
        nodes::program(&node, &site)
    };
    tokio::task::spawn_blocking(make).await?
}

/// The directory `deploy` of the repository.
pub(super) fn deploy() -> PathBuf {
    Path::new(&crate::paths::root()).join("deploy")
}
