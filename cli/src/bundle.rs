//! `switchyard debug bundle`: collects what a maintainer needs to know of an installation, in one archive.
//!
//! No Secret gets into the archive. [`redact`] removes command lines, values of environment and HTTP
//! headers, users' annotations and long ones, which may contain tokens, from objects and from the
//! configuration file. Logs and messages of events are not changed. Failed reads are listed in the
//! archive's `errors.txt`, and the command continues.

mod archive;
mod gather;
mod redact;

use std::path::PathBuf;

use anyhow::Context as _;
use futures::future::join_all;
use kube::Client;
use serde::Serialize;

use crate::{Output, audit, connect, version};
use archive::Archive;

/// Arguments of `switchyard debug bundle`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The archive. An older file of the name is replaced once the new one is whole.
    #[arg(long, value_name = "FILE", default_value = "switchyard-bundle.tar.gz")]
    pub out: PathBuf,
    /// Also read a worker cluster: the name of its MultiKueueCluster and a kubeconfig. Repeat it for each worker.
    #[arg(long = "worker", value_name = "NAME=KUBECONFIG", value_parser = audit::worker)]
    pub workers: Vec<(String, PathBuf)>,
    /// The namespace of Switchyard on each cluster.
    #[arg(long, default_value = crate::DEFAULT_HUB_NAMESPACE)]
    pub hub_namespace: String,
    /// Newest part of each container's log, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub log_size: u16,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    pub file: PathBuf,
    pub files: usize,
    /// Failed reads.
    pub errors: Vec<String>,
}

/// Writes the archive.
///
/// # Errors
/// When every cluster fails to answer, a worker's kubeconfig is unreadable, or the archive cannot be
/// written.
pub async fn run(hub: Client, args: &Args) -> anyhow::Result<String> {
    let mut archive =
        Archive::create(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    let mut clusters = vec![("hub".to_owned(), hub)];
    for (name, path) in &args.workers {
        let (client, _) = connect(Some(path), None).await?;
        clusters.push((format!("workers/{name}"), client));
    }
    let read = clusters.iter().map(|(directory, client)| {
        gather::cluster(client, directory, &args.hub_namespace, args.log_size)
    });
    let mut files = vec![("client-version.txt".to_owned(), version::Versions::client().client)];
    let mut errors = Vec::new();
    let gathered = join_all(read).await;
    if gathered.iter().all(|cluster| cluster.files.is_empty()) {
        let errors = gathered.into_iter().flat_map(|cluster| cluster.errors);
        anyhow::bail!(
            "no archive, since no cluster was read: {}",
            errors.collect::<Vec<_>>().join("; ")
        );
    }
    for mut gathered in gathered {
        files.append(&mut gathered.files);
        errors.append(&mut gathered.errors);
    }
    files.push(("errors.txt".to_owned(), errors.join("\n") + "\n"));
    for (path, text) in &files {
        archive.add(path, text).with_context(|| format!("writing {path}"))?;
    }
    archive.finish().with_context(|| format!("writing {}", args.out.display()))?;
    let bundle = Bundle { file: args.out.clone(), files: files.len(), errors };
    args.output.render(&bundle, text)
}

fn text(bundle: &Bundle) -> String {
    let Bundle { file, files, errors } = bundle;
    let mut out =
        format!("{}: {files} files. Read it before you send it to anybody.\n", file.display());
    if !errors.is_empty() {
        out.push_str(&format!("Not read ({}):\n", errors.len()));
        out.extend(errors.iter().map(|error| format!("  {error}\n")));
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use kube::client::Body;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[tokio::test]
    async fn no_archive_replaces_the_last_one_if_no_cluster_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("bundle.tar.gz");
        std::fs::write(&out, "of yesterday").unwrap();
        let refuses = tower::service_fn(|_: http::Request<Body>| async {
            let text = r#"{"kind":"Status","code":401,"status":"Failure","message":"Unauthorized","reason":"Unauthorized"}"#;
            http::Response::builder().status(401).body(Body::from(text.as_bytes().to_vec()))
        });
        let line = ["bundle", "--out", out.to_str().unwrap()];
        let args = Line::try_parse_from(line).unwrap().args;
        let error = run(Client::new(refuses, "default"), &args).await.unwrap_err().to_string();
        assert!(error.starts_with("no archive, since no cluster was read: hub: "), "{error}");
        assert!(error.contains("Unauthorized"), "{error}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "of yesterday");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no remains");
    }
}
