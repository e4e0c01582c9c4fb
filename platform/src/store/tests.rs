use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

use super::*;
use crate::readable::Unreadable;

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some("ns".into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn recorded(store: &Store<ConfigMap>) -> Arc<Mutex<Vec<String>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let text = |object: &Option<Arc<ConfigMap>>| {
        object.as_ref().map_or("-".to_owned(), |object| {
            format!(
                "{}@{}",
                object.uid().unwrap_or_default(),
                object.resource_version().unwrap_or_default()
            )
        })
    };
    store.subscribe(move |change| {
        sink.lock().push(format!("{} {} {}", change.key, text(&change.old), text(&change.new)));
    });
    seen
}

#[test]
fn relist_reports_only_the_difference() {
    let store = Store::default();
    let mut feed = Feed::new(store.clone());
    for event in [
        Event::Init,
        Event::InitApply(object("a", "1", 1)),
        Event::InitApply(object("b", "2", 2)),
        Event::InitApply(object("c", "3", 3)),
        Event::InitDone,
    ] {
        feed.apply(event);
    }
    assert!(store.is_ready());
    let seen = recorded(&store);
    for event in [
        Event::Init,
        Event::InitApply(object("a", "1", 1)),
        Event::InitApply(object("b", "2", 7)),
        Event::InitApply(object("d", "4", 8)),
        Event::InitDone,
    ] {
        feed.apply(event);
    }
    insta::assert_snapshot!(seen.lock().join("\n"), @r"
    ns/a - 1@1
    ns/b - 2@2
    ns/c - 3@3
    ns/c 3@3 -
    ns/b 2@2 2@7
    ns/d - 4@8
    ");
}

#[test]
fn own_write_is_visible_at_once_and_not_undone_by_the_watch() {
    let store = Store::default();
    let mut feed = Feed::new(store.clone());
    feed.apply(Event::Apply(object("a", "1", 1)));
    assert!(store.observe(object("a", "1", 5)));
    assert!(!store.observe(object("a", "1", 5)), "told once");
    assert!(!store.observe(object("a", "1", 4)), "older");
    assert!(!store.observe(object("a", "9", 9)), "another uid");
    feed.apply(Event::Apply(object("a", "1", 3)));
    assert_eq!(store.get("ns", "a").unwrap().resource_version().as_deref(), Some("5"));
    feed.apply(Event::Delete(object("a", "1", 6)));
    assert!(!store.observe(object("a", "1", 7)), "a deleted object does not come back");
    assert!(store.is_empty());
}

#[test]
fn late_deletion_keeps_the_recreated_object() {
    let store = Store::default();
    let mut feed = Feed::new(store.clone());
    feed.apply(Event::Apply(object("a", "2", 9)));
    feed.apply(Event::Delete(object("a", "1", 8)));
    assert_eq!(store.len(), 1);
}

#[test]
fn objects_of_one_namespace() {
    let store: Store<ConfigMap> = Store::default();
    for (namespace, name) in [("a", "x"), ("ns", "x"), ("ns", "y"), ("ns2", "x")] {
        let mut object = object(name, "1", 1);
        object.metadata.namespace = Some(namespace.into());
        store.insert(object);
    }
    assert_eq!(store.in_namespace("ns").len(), 2);
    store.remove(&Key::new("ns", "x"));
    assert_eq!(store.in_namespace("ns").len(), 1);
}

#[test]
fn health_follows_the_watch() {
    let store: Store<ConfigMap> = Store::default();
    let mut feed = Feed::new(store.clone());
    let runs = || store.is_ready() && store.broken_for().is_none();
    assert!(!runs());
    feed.apply(Event::Init);
    feed.apply(Event::InitDone);
    assert!(runs());
    assert!(feed.failed(), "news");
    assert!(!runs() && store.is_ready());
    assert!(!feed.apply(Event::Init) && !runs(), "a list that is begun may fail again");
    assert!(!feed.failed(), "known");
    assert!(feed.apply(Event::InitDone) && runs());
    feed.failed();
    assert!(feed.recovered() && runs());
}

#[test]
fn missing_kind_counts_as_ready() {
    let store: Store<ConfigMap> = Store::default();
    let mut feed = Feed::new(store.clone());
    for _ in 0..2 {
        feed.apply(Event::Init);
        feed.absent();
        assert!(store.is_ready() && store.broken_for().is_none() && store.is_empty());
    }
    for event in [Event::Init, Event::InitApply(object("a", "1", 1)), Event::InitDone] {
        feed.apply(event);
    }
    assert_eq!(store.len(), 1);
}

/// An object as if its type could not read it.
fn unreadable(name: &str, uid: &str) -> Readable<ConfigMap> {
    let metadata = object(name, uid, 9).metadata;
    Readable::Unreadable(Box::new(Unreadable { metadata, error: "too deep".to_owned() }))
}

#[test]
fn unreadable_object_keeps_its_last_state_until_deleted() {
    let store = Store::default();
    let mut feed = Feed::new(store.clone());
    for name in ["a", "b"] {
        feed.apply(Event::Apply(object(name, name, 1)));
    }
    let seen = recorded(&store);
    for event in [
        Event::Apply(unreadable("a", "a")),
        Event::Apply(unreadable("new", "new")),
        Event::Init,
        Event::InitApply(unreadable("a", "a")),
        Event::InitApply(unreadable("b", "another uid")),
        Event::InitApply(Readable::Object(object("c", "c", 3))),
        Event::InitDone,
        Event::Delete(unreadable("c", "another uid")),
        Event::Delete(unreadable("a", "a")),
    ] {
        feed.apply_readable("configmaps", event);
    }
    insta::assert_snapshot!(seen.lock().join("\n"), @r"
    ns/a - a@1
    ns/b - b@1
    ns/b b@1 -
    ns/c - c@3
    ns/a a@1 -
    ");
}
