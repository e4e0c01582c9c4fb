//! `cargo xtask rights`: lists rights of `deploy/rbac` that the cluster tests never used, by the audit logs of their API
//! servers. A person decides which of them are needed.

mod grants;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::Value;

use self::grants::{Grant, Use};
use crate::paths;

/// The variable with the directory for audit logs. `cargo xtask rights` sets it.
const DIRECTORY: &str = "SWITCHYARD_RIGHTS";

/// The path of a cluster's audit log. `None` unless the command set the directory.
pub(crate) fn log(cluster: &str, port: u16) -> Option<PathBuf> {
    let dir = std::env::var_os(DIRECTORY).filter(|dir| !dir.is_empty())?;
    Some(Path::new(&dir).join(format!("{cluster}-{}-{port}.log", std::process::id())))
}

/// An audit policy that records the accounts of `deploy/rbac` alone.
///
/// # Errors
/// When `deploy/rbac` cannot be read.
pub(crate) fn policy() -> anyhow::Result<String> {
    let accounts: BTreeSet<String> =
        granted()?.into_iter().flat_map(|grant| grant.accounts).collect();
    let users = serde_json::to_string(&accounts)?;
    // Watches outlive the tests, so the stage `ResponseStarted` is recorded too.
    Ok(format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, Panic]\nrules:\n- level: Metadata\n  \
         users: {users}\n- level: None\n"
    ))
}

fn granted() -> anyhow::Result<Vec<Grant>> {
    let dir = paths::root().join("deploy/rbac");
    let mut objects: Vec<Value> = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let some: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(&path)?)
                .with_context(|| path.display().to_string())?;
            objects.extend(some);
        }
    }
    Ok(grants::of(&objects))
}

/// Reads the audit logs of a directory. Returns the rights that no request in them used, as text.
///
/// # Errors
/// When the directory or `deploy/rbac` cannot be read, or there is no log.
pub fn report(dir: &Path) -> anyhow::Result<String> {
    let all = granted()?;
    let (given, mut unused, mut logs, mut events) = (all.len(), all, 0_usize, 0_usize);
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        logs += 1;
        for line in BufReader::new(File::open(&path)?).lines() {
            let Ok(line) = line else { break };
            // The last line may be incomplete.
            let Some(used) = serde_json::from_str(&line).ok().as_ref().and_then(Use::of) else {
                continue;
            };
            events += 1;
            unused.retain(|grant| !grant.covers(&used));
        }
    }
    ensure!(
        events > 0,
        "{logs} audit logs in {}, and no request of an account of deploy/rbac in them",
        dir.display()
    );
    let mut text = format!(
        "{} of {given} rights were never used, in {events} requests of {logs} logs\n",
        unused.len()
    );
    let mut role = None;
    for row in grants::rows(&unused) {
        let place = (row.role, row.namespace);
        if role.as_ref() != Some(&place) {
            let scope = if place.1.is_empty() { String::new() } else { format!(" in {}", place.1) };
            text += &format!("\n{}{scope}\n", place.0);
            role = Some(place);
        }
        let line = format!("  {:<55} {:<28} {} {}", row.resource, row.verbs, row.names, row.remark);
        text += &format!("{}\n", line.trim_end());
    }
    Ok(text)
}
