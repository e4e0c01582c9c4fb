mod build;
mod fencing;
mod groups;
mod laws;
mod making;
mod reporting;
mod teardown;
mod verdicts;
