//! Our API on a real API server: what is accepted, and what is refused with which message. The manifests are those that
//! `api/tests` checks without a server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::PathBuf;

use anyhow::Context;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use serde_json::Value;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, fixture};

#[path = "../../api/tests/support/table.rs"]
mod table;

static HUB: fixture::Shared<Environment> = fixture::Shared::new(|| {
    Box::pin(async { Environment::builder("api").cluster(ClusterSpec::new("hub")).start().await })
});

fn api_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../api")
}

/// The server's objects of the manifest's kind, in the manifest's namespace.
async fn objects(cluster: &Cluster, manifest: &Value) -> Api<DynamicObject> {
    let text = |field: &str| manifest[field].as_str().unwrap();
    let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or_default();
    cluster.dynamic(text("apiVersion"), text("kind"), namespace).await.unwrap()
}

/// Creates or replaces an object, and then its status. Says why it is refused.
async fn put(api: &Api<DynamicObject>, manifest: &Value) -> Result<DynamicObject, String> {
    let parameters = PostParams::default();
    let message = |error: kube::Error| match error {
        kube::Error::Api(status) => status.message,
        other => panic!("{other}"),
    };
    let object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
    let name = object.metadata.name.clone().unwrap();
    let written = match api.get_opt(&name).await.map_err(message)? {
        None => api.create(&parameters, &object).await.map_err(message)?,
        Some(present) => {
            let mut object = object.clone();
            object.metadata.resource_version = present.metadata.resource_version;
            api.replace(&name, &parameters, &object).await.map_err(message)?
        }
    };
    let Some(status) = manifest.get("status") else { return Ok(written) };
    let mut object = written;
    object.data["status"] = status.clone();
    api.replace_status(&name, &parameters, &object).await.map_err(message)
}

#[test]
fn every_manifest_is_accepted_and_kept_whole() {
    fixture::run(async {
        let environment = HUB.get().await.unwrap();
        let hub = environment.cluster("hub");
        hub.apply_dir(api_dir().join("../deploy/crds")).await.unwrap();
        for file in table::accepted(&api_dir()) {
            for manifest in &file.documents {
                let api = objects(hub, manifest).await;
                let stored = put(&api, manifest).await.unwrap_or_else(|message| panic!("{}: {message}", file.name));
                kept(manifest, &serde_json::to_value(&stored).unwrap(), &file.name).unwrap();
            }
        }
    });
}

/// Nothing that was written is pruned or changed.
fn kept(written: &Value, stored: &Value, path: &str) -> anyhow::Result<()> {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            for (name, value) in written {
                let path = format!("{path}.{name}");
                kept(value, stored.get(name).with_context(|| format!("{path} is lost"))?, &path)?;
            }
            Ok(())
        }
        (Value::Array(written), Value::Array(stored)) if written.len() == stored.len() => {
            written.iter().zip(stored).try_for_each(|(written, stored)| kept(written, stored, path))
        }
        _ if written == stored => Ok(()),
        _ => anyhow::bail!("{path}: wrote {written}, stored {stored}"),
    }
}

#[test]
fn malformed_twins_are_refused_with_their_message() {
    fixture::run(async {
        let environment = HUB.get().await.unwrap();
        let hub = environment.cluster("hub");
        hub.apply_dir(api_dir().join("../deploy/crds")).await.unwrap();
        let (mut wrong, mut refused) = (Vec::new(), 0);
        // What only the webhook refuses is tested with the webhook.
        for case in table::refused(&api_dir()).iter().filter(|case| !case.by_webhook) {
            let api = objects(hub, &case.object).await;
            if let Some(before) = &case.before {
                put(&api, before).await.unwrap_or_else(|message| panic!("{}: {message}", case.name));
            }
            match put(&api, &case.object).await {
                Ok(_) => wrong.push(format!("{} ({}): accepted", case.name, case.sentence)),
                Err(message) if message.contains(&case.message) => refused += 1,
                Err(message) => wrong.push(format!("{}: expected {:?}, got {message}", case.name, case.message)),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        println!("{refused} malformed manifests refused");
    });
}
