//! The real programs that clusters are made of, built from pinned Go modules, once per machine.
//!
//! Each part is built into `CACHE/controlplane/PART-KEY/PART`, where KEY is a digest of all that decides what comes out:
//! the module's `go.mod`, `go.sum` and own source, the package, the flags and the Go version. A file lock per part keeps two
//! processes from building it twice; a part appears by a rename and so is never seen half written.

pub mod command;
pub mod containers;
pub mod debian;
mod edited;
mod go;
mod kubernetes;
pub mod paths;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

pub use self::edited::SourceEdit;
pub use self::go::{Go, GoError};
pub use self::kubernetes::Kubernetes;

/// A program that tests or checks start, built from a pinned Go module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers: Jobs, garbage collection, namespaces, service accounts.
    ControllerManager,
    /// Binds pods to nodes.
    Scheduler,
    /// Plays the kubelets.
    Kwok,
    /// Runs the pods of a real node.
    Kubelet,
    /// Stock Kueue, the peer.
    Kueue,
    /// Renders and installs the chart.
    Helm,
    /// Kueue's own scheduler performance test: makes queues and workloads, plays their jobs, and measures.
    KueueRunner,
    /// The small Kueue that its performance test is run against.
    MinimalKueue,
    /// Kubernetes' command line.
    Kubectl,
    /// Kueue's plugin of it, `kubectl kueue`.
    KubectlKueue,
    /// The operator of JobSets.
    JobSet,
    /// The operator of LeaderWorkerSets.
    LeaderWorkerSet,
    /// The operator of Kubeflow's kinds but MPIJob.
    TrainingOperator,
    /// The operator of Ray's kinds.
    KubeRay,
    /// The operator of MPIJobs.
    MpiOperator,
    /// Prints the requests of pods, by Kubernetes' own library.
    PodRequests,
    /// Checks the words of comments and pages.
    Vale,
    /// Checks the workflows of `.github`.
    Actionlint,
}

impl Part {
    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Kubelet => "kubelet",
            Self::Kueue => "kueue",
            Self::Helm => "helm",
            Self::KueueRunner => "kueue-runner",
            Self::MinimalKueue => "minimalkueue",
            Self::Kubectl => "kubectl",
            Self::KubectlKueue => "kubectl-kueue",
            Self::JobSet => "jobset",
            Self::LeaderWorkerSet => "lws",
            Self::TrainingOperator => "training-operator",
            Self::KubeRay => "kuberay",
            Self::MpiOperator => "mpi-operator",
            Self::PodRequests => "pod-requests",
            Self::Vale => "vale",
            Self::Actionlint => "actionlint",
        }
    }

    /// The directory under `e2e/controlplane` that pins it.
    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer | Self::ControllerManager | Self::Scheduler => {
                Kubernetes::Default.module()
            }
            Self::Kwok => "kwok",
            Self::Kubelet => "kubelet",
            Self::Kueue => "kueue",
            Self::Helm => "helm",
            Self::KueueRunner | Self::MinimalKueue => "kueue-runner",
            Self::Kubectl => "kubectl",
            Self::KubectlKueue => "kueuectl",
            Self::JobSet
            | Self::LeaderWorkerSet
            | Self::TrainingOperator
            | Self::KubeRay
            | Self::MpiOperator
            | Self::PodRequests
            | Self::Vale
            | Self::Actionlint => self.name(),
        }
    }

    /// The Go module it comes from.
    pub fn source(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::Kubectl => "k8s.io/kubernetes",
            Self::Kwok => "sigs.k8s.io/kwok",
            Self::Helm => "helm.sh/helm/v4",
            Self::Kueue | Self::KueueRunner | Self::MinimalKueue | Self::KubectlKueue => {
                "sigs.k8s.io/kueue"
            }
            Self::JobSet => "sigs.k8s.io/jobset",
            Self::LeaderWorkerSet => "sigs.k8s.io/lws",
            Self::TrainingOperator => "github.com/kubeflow/training-operator",
            Self::KubeRay => "github.com/ray-project/kuberay/ray-operator",
            Self::MpiOperator => "github.com/kubeflow/mpi-operator",
            Self::PodRequests => "k8s.io/component-helpers",
            Self::Vale => "github.com/errata-ai/vale/v3",
            Self::Actionlint => "github.com/rhysd/actionlint",
        }
    }

    fn package(self) -> String {
        match self {
            Self::Etcd | Self::JobSet | Self::KubeRay => self.source().to_owned(),
            Self::LeaderWorkerSet => format!("{}/cmd", self.source()),
            Self::TrainingOperator => format!("{}/cmd/training-operator.v1", self.source()),
            Self::KueueRunner => format!("{}/test/performance/scheduler/runner", self.source()),
            Self::MinimalKueue => {
                format!("{}/test/performance/scheduler/minimalkueue", self.source())
            }
            Self::KubectlKueue => format!("{}/cmd/kueuectl", self.source()),
            Self::PodRequests => ".".to_owned(),
            _ => format!("{}/cmd/{}", self.source(), self.name()),
        }
    }

    /// The source file that its module holds, where the program is no other project's.
    fn own_file(self) -> Option<&'static str> {
        (self == Self::PodRequests).then_some("main.go")
    }

    /// The value of `CGO_ENABLED`: Vale's parsers of source code are written in C.
    fn cgo(self) -> &'static str {
        if self == Self::Vale { "1" } else { "0" }
    }

    /// Kubernetes tells its version only when it is linked in.
    fn ldflags(self, version: &str) -> String {
        let stripped = "-s -w".to_owned();
        if self.source() != "k8s.io/kubernetes" {
            return stripped;
        }
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) =
            (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let package = "k8s.io/component-base/version";
        format!(
            "{stripped} -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        )
    }
}

/// Why a part is not there.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// Go is missing, or too old.
    #[error(transparent)]
    Go(#[from] GoError),
    /// The build failed.
    #[error("cannot build {part}: go build failed ({status}):\n{output}")]
    Build {
        /// The part.
        part: &'static str,
        /// How `go build` ended.
        status: std::process::ExitStatus,
        output: String,
    },
    /// A file could not be read or written.
    #[error("{what} {path}: {source}")]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A `go.mod` lacks a version, or a source edit does not apply.
    #[error("{0}")]
    Module(String),
    /// No pinned Kubernetes has this name, or the part is not pinned for it.
    #[error("{0}")]
    Kubernetes(String),
}

/// The store of built parts.
#[derive(Clone, Debug)]
pub struct Parts {
    go: Go,
    modules: PathBuf,
    cache: PathBuf,
    kubernetes: Kubernetes,
}

/// The source and the target of a part.
struct Place {
    module: PathBuf,
    version: String,
    ldflags: String,
    dir: PathBuf,
    binary: PathBuf,
}

impl Parts {
    /// The parts pinned in this repository, kept in the user's cache. Go is looked up in `PATH`. [`Kubernetes::VARIABLE`]
    /// selects the Kubernetes of the control planes.
    ///
    /// # Errors
    /// When there is no Go or no cache, or the variable has an unknown value.
    pub fn new() -> anyhow::Result<Self> {
        Self::of(Kubernetes::selected()?)
    }

    /// As [`Parts::new`], with control planes of this Kubernetes.
    ///
    /// # Errors
    /// When there is no Go or no cache.
    pub fn of(kubernetes: Kubernetes) -> anyhow::Result<Self> {
        let go = Go::find(std::env::var_os("PATH").as_deref())?;
        let parts = Self::at(
            go,
            paths::root().join("e2e/controlplane"),
            paths::cache()?.join("controlplane"),
        );
        Ok(Self { kubernetes, ..parts })
    }

    /// Parts pinned in the modules under one directory and kept in another.
    pub fn at(go: Go, modules: impl Into<PathBuf>, cache: impl Into<PathBuf>) -> Self {
        Self { go, modules: modules.into(), cache: cache.into(), kubernetes: Kubernetes::Default }
    }

    /// The directory of the module that pins a part.
    fn module(&self, part: Part) -> Result<PathBuf, PartsError> {
        let name = match part {
            Part::ApiServer | Part::ControllerManager | Part::Scheduler => self.kubernetes.module(),
            // A kubelet must not be newer than its API server, and one version of it is pinned.
            Part::Kubelet => self.kubernetes.with_kubelet()?,
            _ => part.module(),
        };
        Ok(self.modules.join(name))
    }

    /// The path of a part's program, built first if it has to be: minutes the first time, announced on standard
    /// error. Blocks, also while another process builds the same part.
    pub fn binary(&self, part: Part) -> Result<PathBuf, PartsError> {
        let Place { module, version, ldflags, dir, binary } = self.place(part)?;
        if binary.is_file() {
            return Ok(binary);
        }
        fs::create_dir_all(&dir).map_err(file("create", &dir))?;
        let _lock = self.lock(part)?;
        if !binary.is_file() {
            let unfinished = dir.join(format!("{}.unfinished", part.name()));
            self.build(part, &version, &module, &ldflags, &unfinished)?;
            fs::rename(&unfinished, &binary).map_err(file("rename", &unfinished))?;
        }
        Ok(binary)
    }

    fn place(&self, part: Part) -> Result<Place, PartsError> {
        let module = self.module(part)?;
        let go_mod = read(&module.join("go.mod"))?;
        let go_sum = read(&module.join("go.sum"))?;
        let go_version = self.go.check(&module, &go_mod)?;
        let version = module_version(&go_mod, part.source())?;
        let ldflags = part.ldflags(&version);
        let own_file = part.own_file().map(|file| read(&module.join(file))).transpose()?;
        let package = part.package();
        let settings = format!("CGO_ENABLED={} -trimpath", part.cgo());
        let mut key = vec![&*go_mod, &*go_sum, &*go_version, &*package, &*ldflags, &*settings];
        key.extend(own_file.as_deref());
        let key = digest(&key);
        let dir = self.cache.join(format!("{}-{key}", part.name()));
        let binary = dir.join(part.name());
        Ok(Place { module, version, ldflags, dir, binary })
    }

    /// Whether a part is there, so that [`Parts::binary`] returns at once.
    pub fn is_built(&self, part: Part) -> bool {
        self.place(part).is_ok_and(|place| place.binary.is_file())
    }

    /// The version of the module that a part is built from, such as `v1.36.3`.
    ///
    /// # Errors
    /// When its `go.mod` does not say it.
    pub fn version(&self, part: Part) -> Result<String, PartsError> {
        module_version(&read(&self.module(part)?.join("go.mod"))?, part.source())
    }

    /// The folder of a module that this part's module requires, such as Kueue's own, whose CRDs lie in it.
    pub fn source_dir(&self, part: Part, module: &str) -> Result<PathBuf, PartsError> {
        let dir = self.module(part)?;
        self.go.check(&dir, &read(&dir.join("go.mod"))?)?;
        Ok(self.go.module_dir(&dir, module)?)
    }

    /// The folder of the module that this part is built from.
    pub fn own_source_dir(&self, part: Part) -> Result<PathBuf, PartsError> {
        self.source_dir(part, part.source())
    }

    fn lock(&self, part: Part) -> Result<File, PartsError> {
        let path = self.cache.join(format!("{}.lock", part.name()));
        let lock = File::create(&path).map_err(file("create", &path))?;
        if lock.try_lock().is_err() {
            eprintln!("==> wait for another process that builds {}", part.name());
            lock.lock().map_err(file("lock", &path))?;
        }
        Ok(lock)
    }

    fn build(
        &self,
        part: Part,
        version: &str,
        module: &Path,
        flags: &str,
        out: &Path,
    ) -> Result<(), PartsError> {
        eprintln!(
            "==> build {} {version} (once per machine; minutes when Go's own cache is cold)",
            part.name()
        );
        let start = Instant::now();
        let log = out.with_extension("log");
        let output = File::create(&log).map_err(file("create", &log))?;
        let mut command = Command::new(self.go.path());
        command
            .current_dir(module)
            .env("CGO_ENABLED", part.cgo())
            .env("GOWORK", "off")
            .stdin(Stdio::null());
        command.args(["build", "-trimpath", "-ldflags", flags, "-o"]).arg(out).arg(part.package());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(file("start", self.go.path()))?;
        let mut told = Duration::ZERO;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(file("wait for", self.go.path()))? {
                break status;
            }
            if start.elapsed() > told + Duration::from_secs(20) {
                told = start.elapsed();
                eprintln!("    {}: still building, {} s", part.name(), told.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let output = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        if !status.success() {
            let lines: Vec<&str> = output.lines().collect();
            let output = lines[lines.len().saturating_sub(30)..].join("\n");
            return Err(PartsError::Build { part: part.name(), status, output });
        }
        eprintln!("    {}: {:.1} s", part.name(), start.elapsed().as_secs_f64());
        Ok(())
    }
}

fn read(path: &Path) -> Result<String, PartsError> {
    fs::read_to_string(path).map_err(file("read", path))
}

fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PartsError {
    let path = path.to_owned();
    move |source| PartsError::File { what, path, source }
}

/// The version that a `go.mod` requires of a module.
fn module_version(go_mod: &str, module: &str) -> Result<String, PartsError> {
    let required = go_mod.lines().find_map(|line| {
        let mut words = line.trim_start().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module))
            .then(|| words.next())
            .flatten()
            .filter(|word| word.starts_with('v'))
    });
    required
        .map(str::to_owned)
        .ok_or_else(|| PartsError::Module(format!("go.mod requires no version of {module}")))
}

/// The first 16 hexadecimal digits of a SHA-256 over all parts, each with its length.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_is_told_its_version_and_the_others_are_not() {
        let flags = Part::ApiServer.ldflags("v1.36.3");
        assert!(
            flags.contains("gitVersion=v1.36.3")
                && flags.contains("gitMajor=1")
                && flags.contains("gitMinor=36")
        );
        assert_eq!(Part::Etcd.ldflags("v3.7.3"), "-s -w");
    }

    #[test]
    fn versions_are_read_from_require_lines_alone() {
        let block =
            "tool (\n\texample.org/a/cmd/x\n)\nrequire (\n\texample.org/a v1.2.3 // indirect\n)\n";
        assert_eq!(module_version(block, "example.org/a").unwrap(), "v1.2.3");
        assert_eq!(
            module_version("require example.org/a v1.2.4\n", "example.org/a").unwrap(),
            "v1.2.4"
        );
        assert!(
            module_version("replace example.org/a => example.org/a v1.0.0\n", "example.org/a")
                .is_err()
        );
    }

    #[test]
    fn every_pinned_module_names_its_version() {
        let modules = paths::root().join("e2e/controlplane");
        for part in [
            Part::Etcd,
            Part::ApiServer,
            Part::Kwok,
            Part::Kubelet,
            Part::Kueue,
            Part::KueueRunner,
            Part::Helm,
            Part::Kubectl,
            Part::KubectlKueue,
            Part::JobSet,
            Part::LeaderWorkerSet,
            Part::TrainingOperator,
            Part::KubeRay,
            Part::MpiOperator,
            Part::PodRequests,
            Part::Vale,
            Part::Actionlint,
        ] {
            let go_mod = read(&modules.join(part.module()).join("go.mod")).unwrap();
            assert!(module_version(&go_mod, part.source()).unwrap().starts_with('v'), "{part:?}");
        }
    }

    #[test]
    fn parts_of_one_source_have_one_version() {
        let parts = Parts::at(
            Go::find(std::env::var_os("PATH").as_deref()).unwrap(),
            paths::root().join("e2e/controlplane"),
            "",
        );
        for (one, other) in [
            (Part::KueueRunner, Part::Kueue),
            (Part::KubectlKueue, Part::Kueue),
            (Part::Kubectl, Part::ApiServer),
            (Part::Kubelet, Part::ApiServer),
        ] {
            assert_eq!(
                parts.version(one).unwrap(),
                parts.version(other).unwrap(),
                "{one:?} and {other:?}"
            );
        }
    }

    /// Kubernetes releases its libraries as `v0` of the same minor and patch.
    #[test]
    fn pods_are_reckoned_by_the_api_servers_release() {
        let modules = paths::root().join("e2e/controlplane");
        let version = |part: Part| {
            module_version(
                &read(&modules.join(part.module()).join("go.mod")).unwrap(),
                part.source(),
            )
            .unwrap()
        };
        assert_eq!(
            version(Part::PodRequests).strip_prefix("v0."),
            version(Part::ApiServer).strip_prefix("v1.")
        );
    }

    #[test]
    fn operators_are_of_the_versions_that_kueue_asks_for() {
        let modules = paths::root().join("e2e/controlplane");
        let kueue = read(&modules.join(Part::Kueue.module()).join("go.mod")).unwrap();
        for part in [
            Part::JobSet,
            Part::LeaderWorkerSet,
            Part::TrainingOperator,
            Part::KubeRay,
            Part::MpiOperator,
        ] {
            let own = read(&modules.join(part.module()).join("go.mod")).unwrap();
            let version = |go_mod: &str| module_version(go_mod, part.source()).unwrap();
            assert_eq!(version(&own), version(&kueue), "{part:?}");
        }
    }

    #[test]
    fn the_key_depends_on_every_part_and_on_where_one_ends() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["a"]).len(), 16);
    }

    #[test]
    fn built_part_is_reused_and_failed_build_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let module = dir.path().join("modules/etcd");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("go.mod"), "go 1.20\nrequire go.etcd.io/etcd/server/v3 v3.7.3\n")
            .unwrap();
        fs::write(module.join("go.sum"), "").unwrap();
        let go = crate::go::tests::fake_go(dir.path(), "go1.26.8", "echo broken >&2; exit 1");
        let parts = Parts::at(
            Go::find(Some(go.as_os_str())).unwrap(),
            dir.path().join("modules"),
            dir.path().join("c"),
        );
        let error = parts.binary(Part::Etcd).unwrap_err().to_string();
        assert!(error.contains("cannot build etcd") && error.contains("broken"), "{error}");

        let go = crate::go::tests::fake_go(dir.path(), "go1.26.8", "touch \"$6\"");
        let parts = Parts::at(
            Go::find(Some(go.as_os_str())).unwrap(),
            dir.path().join("modules"),
            dir.path().join("c"),
        );
        let built = parts.binary(Part::Etcd).unwrap();
        crate::go::tests::fake_go(dir.path(), "go1.26.8", "exit 1");
        assert_eq!(parts.binary(Part::Etcd).unwrap(), built);
    }
}
