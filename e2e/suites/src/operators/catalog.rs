//! The operators, and how each is started here.

use std::path::PathBuf;

use serde_json::{Value, json};
use switchyard_e2e::{Part, SourceEdit};

use super::samples::{self, Sample};

/// Where one process of an operator listens, and where its certificate is.
#[derive(Debug)]
pub(super) struct Place {
    /// The port on which it says that it is ready.
    pub(super) health: u16,
    /// The port of its webhooks.
    pub(super) webhook: u16,
    /// A folder with `tls.crt`, `tls.key` and `ca.crt`.
    pub(super) certificates: PathBuf,
    /// The URL of Ray's dashboard.
    pub(super) dashboard: String,
}

impl Place {
    fn health_address(&self) -> String {
        format!("127.0.0.1:{}", self.health)
    }
}

/// One operator.
#[derive(Debug)]
pub(super) struct Operator {
    pub(super) part: Part,
    /// Its manifests in the folder of its module: a folder for kustomize, or a file.
    pub(super) manifests: &'static str,
    /// CRDs of these that belong to another operator.
    pub(super) without: &'static [&'static str],
    /// Changes of its source, for where it listens when no flag of its says that.
    pub(super) edits: &'static [SourceEdit],
    /// Flags beyond those of its Deployment. The last of two equal ones counts.
    pub(super) flags: fn(&Place) -> Vec<String>,
    /// Variables of its environment.
    pub(super) env: fn(&Place) -> Vec<(&'static str, String)>,
    /// Merged over its configuration, if it has one.
    pub(super) config: fn(&Place) -> Value,
    /// The path of [`Place::health`] that says that it is ready.
    pub(super) ready: &'static str,
    /// One object of each of its kinds that is played.
    pub(super) kinds: fn() -> Vec<Sample>,
}

/// All of them, in the order in which they are played.
pub(super) static ALL: [Operator; 5] = [
    Operator {
        part: Part::JobSet,
        manifests: "config/default",
        without: &[],
        edits: &[],
        flags: |_| Vec::new(),
        env: |_| Vec::new(),
        config: configuration,
        ready: "/readyz",
        kinds: || vec![samples::job_set()],
    },
    Operator {
        part: Part::LeaderWorkerSet,
        manifests: "config/default",
        without: &[],
        edits: &[],
        flags: |_| Vec::new(),
        env: |_| Vec::new(),
        config: configuration,
        ready: "/readyz",
        kinds: || vec![samples::leader_worker_set()],
    },
    Operator {
        part: Part::TrainingOperator,
        manifests: "manifests/overlays/standalone",
        // The MPIJob from before the MPI operator's v2.
        without: &["mpijobs.kubeflow.org"],
        // It listens on all addresses, and makes its certificate itself, for a Service. It has no flags for either.
        edits: &[
            SourceEdit {
                file: "cmd/training-operator.v1/main.go",
                from: "Port: webhookServerPort,",
                to: "Port: webhookServerPort, Host: \"127.0.0.1\", CertDir: os.Getenv(\"WEBHOOK_CERTIFICATES\"),",
            },
            SourceEdit {
                file: "cmd/training-operator.v1/main.go",
                from: "cert.ManageCerts(mgr, certGenerationConfig, certsReady)",
                to: "func() error { _ = certGenerationConfig; close(certsReady); return nil }()",
            },
        ],
        flags: |place| {
            let mut flags = vec![
                "--metrics-bind-address=0".to_owned(),
                format!("--health-probe-bind-address={}", place.health_address()),
                format!("--webhook-server-port={}", place.webhook),
            ];
            // All but MPIJob.
            flags.extend(
                ["tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob"]
                    .map(|kind| format!("--enable-scheme={kind}")),
            );
            flags
        },
        env: |place| vec![("WEBHOOK_CERTIFICATES", place.certificates.display().to_string())],
        config: |_| Value::Null,
        ready: "/readyz",
        kinds: || vec![samples::pytorch_job()],
    },
    Operator {
        part: Part::KubeRay,
        manifests: "config/default",
        without: &[],
        edits: &[],
        flags: |place| {
            vec![
                "--metrics-addr=0".to_owned(),
                format!("--health-probe-bind-address={}", place.health_address()),
                "--enable-leader-election=false".to_owned(),
            ]
        },
        // Go's HTTP clients take it from here.
        env: |place| vec![("HTTP_PROXY", place.dashboard.clone())],
        config: |_| Value::Null,
        ready: "/readyz",
        kinds: || vec![samples::ray_cluster(), samples::ray_job()],
    },
    Operator {
        part: Part::MpiOperator,
        manifests: "deploy/v2beta1/mpi-operator.yaml",
        without: &[],
        // Port 8080 of all addresses.
        edits: &[SourceEdit {
            file: "cmd/mpi-operator/app/server.go",
            from: "fmt.Sprintf(\":%d\", healthCheckPort)",
            to: "os.Getenv(\"HEALTH_ADDRESS\")",
        }],
        flags: |_| Vec::new(),
        env: |place| vec![("HEALTH_ADDRESS", place.health_address())],
        config: |_| Value::Null,
        ready: "/healthz",
        kinds: || vec![samples::mpi_job()],
    },
];

/// The common part of the configurations of JobSet and LeaderWorkerSet.
fn configuration(place: &Place) -> Value {
    json!({
        "health": {"healthProbeBindAddress": place.health_address()},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": place.webhook, "certDir": place.certificates},
        // It brings certificates for a Service; they would not do for a loopback address.
        "internalCertManagement": {"enable": false},
        "leaderElection": {"leaderElect": false},
    })
}
