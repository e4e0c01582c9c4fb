mod build;
mod laws;
mod making;
mod reporting;
mod teardown;
mod verdicts;
