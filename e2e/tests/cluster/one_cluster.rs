//! Subjects that share one cluster under one controller with Kueue's default configuration. Each test has a namespace and
//! a ClusterQueue of its own, and none changes what belongs to the whole cluster.

mod cohorts;
mod explain;
mod jobs;
mod preemption;
mod single;
