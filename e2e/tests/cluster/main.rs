//! The tests on real control planes: a file a subject.
//!
//! The tests of one file, with those of the files in its directory, run in one process and may share a cluster. Each
//! process has clusters of its own, so that no test sees what another installs. `cargo xtask test --only cluster` runs
//! them all that way, and `cargo test -p switchyard-e2e --test cluster dispatch::` those of one file. All files are one
//! program, since each program would be linked with everything again.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod bed;
mod common;
#[path = "../../../api/tests/support/table.rs"]
mod manifests;
mod visible;

mod adversary;
mod agent;
mod allowed;
mod api;
mod asked_again;
mod audit_stream;
mod availability;
mod bad_input;
mod budget;
mod charges;
mod chart;
mod cluster_profile;
mod cluster_rules;
mod commands;
mod deploy;
mod devices;
mod dispatch;
mod dry_runs;
mod elastic;
mod elastic_ray;
mod elastic_remote;
mod elsewhere;
mod enrolment;
mod examples;
mod failover;
mod failure_recovery;
mod fair;
mod fair_admission;
mod flavor_pins;
mod from_kueue;
mod front_door;
mod harness;
mod hub_words;
mod job_kinds;
mod job_writes;
mod kubeconfig;
mod kueuectl;
mod manager_kinds;
mod metrics;
mod monitoring;
mod moves;
mod node_room;
mod nodes;
mod odd_jobs;
mod one_cluster;
mod other_crds;
mod owner_of_copies;
mod pods;
mod pods_lost;
mod pods_ready;
mod pods_remote;
mod preemption_gates;
mod provisioning;
mod proxied;
mod recovery;
mod replay;
mod requests;
mod restarts;
mod retention;
mod rotation;
mod serving;
mod single_restarts;
mod skew;
mod stock_kueue;
mod stuck;
mod takeover;
mod topology;
mod trouble;
mod twins;
mod usage;
mod variants;
mod versions;
mod visibility;
mod waiting_copies;
mod waiting_jobs;
mod webhook;
