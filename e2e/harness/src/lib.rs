//! Real control planes for tests, demo and benchmarks.
//!
//! An [`Environment`] is one etcd and any number of [`Cluster`]s, each with a real API server, its controllers, and
//! nodes played by kwok. Everything listens on loopback ports, every wait has a deadline, and no process outlives the
//! one that started it. The programs are built once per machine from the Go modules in `e2e/controlplane`.
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use std::time::Duration;
//! use switchyard_e2e::{ClusterSpec, Environment, JobBuilder, NodeSpec, job};
//! let gpus = NodeSpec::new("n1").cpu(16).gpu(8).label("pool", "a");
//! let worker = ClusterSpec::new("worker").node(gpus);
//! let environment = Environment::builder("sample").cluster(worker).start().await?;
//! let worker = environment.cluster("worker");
//! let namespace = worker.namespace("sample").await?;
//! JobBuilder::new(&namespace, "one").gpu(2).create(&worker.admin).await?;
//! job::complete(&worker.admin, &namespace, "one", Duration::from_secs(30)).await?;
//! # Ok(()) }
//! ```

pub mod auditor;
mod certs;
mod cluster;
mod environment;
pub mod fixture;
pub mod fleet;
pub mod forward;
pub mod gate;
mod ground;
pub mod http;
pub mod job;
pub mod kubeconfig;
pub mod leader;
mod names;
pub mod nodes;
pub mod paths;
pub mod ports;
mod process;
mod progress;
pub mod prometheus;
pub mod queues;
pub mod random;
pub mod ready;
pub mod rights;
pub mod single;
mod spec;
pub mod stock;
pub mod table;
mod usage_writer;
pub mod wait;
mod workdir;
pub mod write_counts;

pub use certs::{Authority, Pair};
pub use cluster::{Cluster, Request, Requests};
pub use environment::{Environment, EnvironmentBuilder};
pub use job::JobBuilder;
pub use process::{PORT_TRIES, Process, Program, lost_port};
pub use progress::Progress;
pub use spec::{ClusterSpec, NOT_READY, NodeSpec};
pub use switchyard_parts::{Go, GoError, Part, Parts, PartsError, SourceEdit};
