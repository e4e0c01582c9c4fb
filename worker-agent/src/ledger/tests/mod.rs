mod build;
mod fencing;
mod laws;
mod making;
mod reporting;
mod teardown;
mod verdicts;
