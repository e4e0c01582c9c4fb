//! The API on a real API server: accepted objects, and refused ones with their messages. The manifests are those that
//! `api/tests` checks without a server.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use switchyard_api::v1beta2::Cohort;
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_controller::{Handle, Options};
use switchyard_e2e::{Cluster, ClusterSpec, Environment, Part, Parts, fixture, paths, ready, wait};
use switchyard_platform::{readable::Readable, store::Store, watch::feed};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "switchyard-system";

/// One cluster with only the CRDs, one with Switchyard's webhook, one with Kueue's own CRDs.
static ENVIRONMENT: fixture::Shared<Environment> = fixture::Shared::new(|| {
    Box::pin(async {
        let builder = Environment::builder("api").cluster(ClusterSpec::new("plain"));
        builder
            .cluster(ClusterSpec::new("guarded"))
            .cluster(ClusterSpec::new("stock"))
            .start()
            .await
    })
});

fn api_dir() -> PathBuf {
    paths::root().join("api")
}

/// The server's objects of the manifest's kind, in the manifest's namespace.
async fn objects(cluster: &Cluster, manifest: &Value) -> Api<DynamicObject> {
    let text = |field: &str| manifest[field].as_str().unwrap();
    let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or_default();
    cluster.dynamic(text("apiVersion"), text("kind"), namespace).await.unwrap()
}

/// Creates or replaces an object, and then its status. Says why it is refused.
async fn put(api: &Api<DynamicObject>, manifest: &Value) -> Result<(), String> {
    write(api, manifest, "spec").await?;
    if manifest.get("status").is_some() {
        write(api, manifest, "status").await?;
    }
    Ok(())
}

/// Writes an object or its status, again while others write it, too.
async fn write(api: &Api<DynamicObject>, manifest: &Value, part: &str) -> Result<(), String> {
    let parameters = PostParams::default();
    let name = manifest["metadata"]["name"].as_str().unwrap();
    for _ in 0..20 {
        let mut object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
        let written = match api.get_opt(name).await {
            Ok(None) => api.create(&parameters, &object).await,
            Ok(Some(mut present)) if part == "status" => {
                present.data["status"] = manifest["status"].clone();
                api.replace_status(name, &parameters, &present).await
            }
            Ok(Some(present)) => {
                object.metadata.resource_version = present.metadata.resource_version;
                api.replace(name, &parameters, &object).await
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(kube::Error::Api(status)) => return Err(status.message),
            Err(other) => panic!("{name}: {other}"),
        }
    }
    panic!("{name}: always in conflict")
}

#[test]
fn every_manifest_is_accepted_and_kept_whole() {
    fixture::run(async {
        let environment = ENVIRONMENT.get().await.unwrap();
        let plain = environment.cluster("plain");
        plain.apply_dir(paths::root().join("deploy/crds")).await.unwrap();
        for file in crate::manifests::accepted(&api_dir()) {
            for manifest in &file.documents {
                let api = objects(plain, manifest).await;
                put(&api, manifest)
                    .await
                    .unwrap_or_else(|message| panic!("{}: {message}", file.name));
                let stored = api.get(manifest["metadata"]["name"].as_str().unwrap()).await.unwrap();
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
        let environment = ENVIRONMENT.get().await.unwrap();
        let plain = environment.cluster("plain");
        plain.apply_dir(paths::root().join("deploy/crds")).await.unwrap();
        all_refused(plain, |case| !case.by_webhook).await;
    });
}

#[test]
fn what_no_schema_can_say_is_refused_by_the_webhook() {
    fixture::run(async {
        let environment = ENVIRONMENT.get().await.unwrap();
        let guarded = environment.cluster("guarded");
        let _controller = guard(guarded).await;
        // An earlier status also belongs to the controller; changes of it are tested without a server.
        let ours = |before: &Value| before.get("status").is_none();
        all_refused(guarded, |case| case.by_webhook && case.before.as_ref().is_none_or(ours)).await;
    });
}

#[test]
fn the_schemas_of_stock_kueue_say_the_same() {
    fixture::run(async {
        let environment = ENVIRONMENT.get().await.unwrap();
        let stock = environment.cluster("stock");
        let source = Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap();
        stock.apply_dir(source.join("config/components/crd/bases")).await.unwrap();
        for file in crate::manifests::accepted(&api_dir()) {
            for manifest in &file.documents {
                let Some(manifest) = as_kueue(manifest) else { continue };
                let api = objects(stock, &manifest).await;
                put(&api, &manifest)
                    .await
                    .unwrap_or_else(|message| panic!("{}: {message}", file.name));
            }
        }
        all_refused(stock, |case| !case.by_webhook && !case.ours).await;
    });
}

/// Users can store objects that Rust types cannot read. The others of their kind are read all the same.
#[test]
fn unreadable_object_does_not_stop_its_kind() {
    fixture::run(async {
        let environment = ENVIRONMENT.get().await.unwrap();
        let plain = environment.cluster("plain");
        plain.apply_dir(paths::root().join("deploy/crds")).await.unwrap();
        let cohort = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": name, "labels": {"a": "b"}}, "spec": {}});
        let mut deep = cohort("listed-deep");
        deep["status"] = nested(200);
        put_any(plain, &deep).await;
        put_any(plain, &cohort("listed-good")).await;
        let store = Store::<Cohort>::default();
        let shutdown = CancellationToken::new();
        let api: Api<Readable<Cohort>> = Api::all(plain.admin.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let feed = feed(events, "cohorts".into(), false, store.clone(), |_| (), shutdown.clone());
        let feed = tokio::spawn(feed);
        tokio::time::timeout(WAIT, store.ready()).await.unwrap();
        assert!(store.get("", "listed-good").is_some());
        assert!(store.get("", "listed-deep").is_none());
        put_any(plain, &cohort("watched-deep")).await;
        let early = async || store.get("", "watched-deep").context("not watched");
        wait::eventually(WAIT, "the Cohort without status", early).await.unwrap();
        deep["metadata"]["name"] = json!("watched-deep");
        put_any(plain, &deep).await;
        put_any(plain, &cohort("watched-late")).await;
        set_late_time(plain, "watched-late").await;
        let late = async || {
            let cohort = store.get("", "watched-late").context("not watched")?;
            let changed = cohort.metadata.labels.iter().flatten().any(|(key, _)| key == "late");
            ensure!(changed, "the change is not watched");
            Ok(())
        };
        wait::eventually(WAIT, "the watch to go on", late).await.unwrap();
        // The state before its status was written.
        assert!(store.get("", "watched-deep").is_some_and(|cohort| cohort.status.is_none()));
        assert_eq!(store.broken_for(), None);
        shutdown.cancel();
        feed.await.unwrap().unwrap();
    });
}

/// A Cohort's status that is nested so many levels deep, in a field without a schema.
fn nested(levels: usize) -> Value {
    let mut value = json!({});
    for _ in 0..levels {
        value = json!({"a": value});
    }
    json!({"effectiveQuotas": value})
}

/// Writes a Cohort and its status. Ignores answers, which may be too deep for a client.
async fn put_any(cluster: &Cluster, cohort: &Value) {
    let api = objects(cluster, cohort).await;
    let object: DynamicObject = serde_json::from_value(cohort.clone()).unwrap();
    let _ = api.create(&PostParams::default(), &object).await;
    if cohort.get("status").is_some() {
        let name = cohort["metadata"]["name"].as_str().unwrap();
        let status = Patch::Merge(json!({"status": cohort["status"]}));
        let _ = api.patch_status(name, &PatchParams::default(), &status).await;
    }
}

/// Claims that a label was set in the year 9999, too late for Rust's types, and adds another label.
async fn set_late_time(cluster: &Cluster, cohort: &str) {
    let api: Api<Cohort> = Api::all(cluster.admin.clone());
    let mut managed = json!(api.get(cohort).await.unwrap().metadata.managed_fields.unwrap());
    managed.as_array_mut().unwrap().push(json!({
        "manager": "someone", "operation": "Update", "apiVersion": "kueue.x-k8s.io/v1beta2",
        "time": "9999-12-31T23:59:59Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
    }));
    let change = json!({"metadata": {"labels": {"late": "true"}, "managedFields": managed}});
    let answer = api.patch(cohort, &PatchParams::default(), &Patch::Merge(change)).await;
    assert!(matches!(answer, Err(kube::Error::SerdeError(_))), "{answer:?}");
}

/// A manifest without Switchyard's fields; none if it is empty then, or if only later releases accept it.
fn as_kueue(manifest: &Value) -> Option<Value> {
    let mut manifest = manifest.clone();
    let pod_sets = manifest.pointer("/spec/podSets").and_then(Value::as_array);
    let of_later_releases = pod_sets.into_iter().flatten().any(|pod_set| pod_set["minCount"] == 0);
    if manifest.pointer("/spec/clusterSource/agent").is_some() || of_later_releases {
        return None;
    }
    for (parent, ours) in [("/spec", "onDisconnect"), ("/status", "dispatch")] {
        if let Some(parent) = manifest.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(ours);
        }
    }
    Some(manifest)
}

/// A controller in this process that serves the webhooks, with the rights that `deploy/` ships.
async fn guard(cluster: &Cluster) -> Handle {
    cluster.install().await.unwrap();
    let (client, _) = cluster.service_account(NAMESPACE, "switchyard").await.unwrap();
    let config = crate::common::that_judges_manifests();
    let mut options = Options::new(client, Arc::new(config), "api-test", NAMESPACE);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
    options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
    let handle = switchyard_controller::start(options).unwrap();
    handle.ready(WAIT).await.unwrap();
    // The API server learns of each registration a moment after it is written.
    ready::validating_webhooks(cluster, WAIT).await.unwrap();
    ready::job_webhook(cluster, "default", WAIT).await.unwrap();
    handle
}

/// Every one of these cases is refused, with its message.
async fn all_refused(cluster: &Cluster, which: impl Fn(&crate::manifests::Refused) -> bool) {
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for case in crate::manifests::refused(&api_dir()).iter().filter(|case| which(case)) {
        let api = objects(cluster, &case.object).await;
        if let Some(before) = &case.before {
            put(&api, before).await.unwrap_or_else(|message| panic!("{}: {message}", case.name));
        }
        match put(&api, &case.object).await {
            Ok(()) => wrong.push(format!("{} ({}): accepted", case.name, case.sentence)),
            Err(message) if message.contains(&case.message) => refused += 1,
            Err(message) => {
                wrong.push(format!("{}: expected {:?}, got {message}", case.name, case.message))
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 0, "no case");
    println!("{refused} malformed manifests refused");
}
