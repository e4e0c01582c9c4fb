//! Simulation of the hub's dispatcher, its agents' ledgers and their API servers under faults, in
//! virtual time and driven by a seed.
//!
//! The deciding code is production code: [`switchyard_dispatcher::Dispatcher`],
//! [`switchyard_hub::cluster_channel::ClusterChannel`], [`switchyard_ledger::Ledger`],
//! [`switchyard_ledger::SessionProtocol`], [`switchyard_platform::lease::step`]. Models surround it:
//! API servers with versions, conflicts, stale watches and lost answers; the controllers of hub and
//! workers; connections; processes that crash and freeze.
//!
//! A [`plan::Plan`] follows from a seed and determines a run. [`run`] plays it and checks the
//! [`Law`]s after every step. [`shrink::shrink`] finds a smaller plan that breaks the same law. A
//! [`Mutation`] breaks the code on purpose.

mod cluster;
mod dice;
mod faults;
mod hub;
mod laws;
mod loss;
mod names;
mod network;
pub mod plan;
mod reached;
mod search;
pub mod shrink;
mod state;
mod time;
mod violation;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use plan::Plan;
pub use reached::{EXCUSES, FAULTS, Reached};
pub use search::{Found, explain, search, search_for, search_until};
pub use switchyard_flags::simulate::Mutation;
pub use violation::{Law, Violation};
pub use world::{Report, run};

/// As [`run`], with a panic of the tested code as a violation.
pub fn guarded(plan: &Plan, mutation: Option<Mutation>, traced: bool) -> Report {
    catch_unwind(AssertUnwindSafe(|| run(plan, mutation, traced))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let what = text.unwrap_or_else(|| "a panic".to_owned());
        let violation = Some(Violation { law: Law::Panic, what, at: 0 });
        Report { violation, steps: 0, took: 0, trace: Vec::new(), reached: Reached::default() }
    })
}
