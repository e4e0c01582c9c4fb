//! Suites that play for longer than a cluster test: random life on a fleet, jobs with their real operators, and Kueue's own
//! end-to-end suites against Switchyard.

pub mod kueue_e2e;
pub mod life;
pub mod operators;
