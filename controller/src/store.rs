//! One kind's objects in memory, fed by one watch and shared by all who read.
//!
//! # Guarantees
//! - A subscriber's handler sees every object that is there when it subscribes, and every later change, once each and in
//!   order, with the state before and after. Changes that happened while the watch was broken arrive as the difference.
//! - [`Store::observe`] lets a writer put the server's answer in at once (read your own writes). It never brings back a
//!   deleted object, and an older version never replaces a newer one.
//!
//! # Assumptions
//! Resource versions of one kind grow as numbers, as in every etcd-backed API server (and by Kubernetes' promise since 1.35).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::{Resource, ResourceExt, runtime::watcher::Event};
use tokio::sync::watch;

/// Names an object within its kind. Cluster-scoped objects have an empty namespace.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key; `namespace` is empty for cluster-scoped kinds.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    #[must_use]
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::new(
            object.meta().namespace.as_deref().unwrap_or_default(),
            object.meta().name.as_deref().unwrap_or_default(),
        )
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What happened to one object. At least one of `old` and `new` is there.
#[derive(Debug)]
pub struct Change<K> {
    /// Which object.
    pub key: Key,
    /// Before; none when it is new.
    pub old: Option<Arc<K>>,
    /// After; none when it is gone.
    pub new: Option<Arc<K>>,
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;
type Map<K> = BTreeMap<Key, Arc<K>>;

struct Inner<K> {
    objects: RwLock<Map<K>>,
    // Held while a change is applied and told, so that handlers see changes in order.
    handlers: Mutex<Vec<Handler<K>>>,
    ready: watch::Sender<bool>,
    // Whether the server knows the kind.
    served: watch::Sender<bool>,
    broken: AtomicBool,
}

/// A cheap handle to the objects of one kind.
pub struct Store<K>(Arc<Inner<K>>);

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self(Arc::new(Inner {
            objects: RwLock::default(),
            handlers: Mutex::default(),
            ready: watch::channel(false).0,
            served: watch::channel(true).0,
            broken: AtomicBool::new(false),
        }))
    }
}

impl<K: Resource + 'static> Store<K> {
    /// The object, if it is there. `namespace` is empty for cluster-scoped kinds.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.by_key(&Key::new(namespace, name))
    }

    /// The object, if it is there.
    #[must_use]
    pub fn by_key(&self, key: &Key) -> Option<Arc<K>> {
        read(&self.0.objects).get(key).cloned()
    }

    /// All objects, by namespace and name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        read(&self.0.objects).values().cloned().collect()
    }

    /// The objects that `predicate` accepts. It runs under the store's lock: keep it cheap.
    #[must_use]
    pub fn filter(&self, predicate: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        read(&self.0.objects).values().filter(|object| predicate(object)).cloned().collect()
    }

    /// Whether any object satisfies `predicate`.
    #[must_use]
    pub fn any(&self, predicate: impl Fn(&K) -> bool) -> bool {
        read(&self.0.objects).values().any(|object| predicate(object))
    }

    /// The objects of one namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = Key::new(namespace, "");
        let objects = read(&self.0.objects);
        objects
            .range(from..)
            .take_while(|(key, _)| &*key.namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        read(&self.0.objects).len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list has been read.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.0.ready.borrow()
    }

    /// Whether the watch runs. False from an error until the next object or list, or until no error came for a while.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.is_ready() && !self.0.broken.load(Ordering::Relaxed)
    }

    /// Whether the server knows the kind, as far as we have asked; it may come to, and cease to.
    #[must_use]
    pub fn served(&self) -> watch::Receiver<bool> {
        self.0.served.subscribe()
    }

    /// Waits until the first list has been read. Callers set the deadline.
    pub async fn ready(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.0.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Calls `handler` for each object that is there, and then for each change, on the watch's own task. A handler only
    /// notes what is to be done (a push into a queue): it must not block, and must not write to this store.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.0.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        for object in self.all() {
            handler(&Change { key: Key::of(&*object), old: None, new: Some(object) });
        }
        handlers.push(Box::new(handler));
    }

    /// Takes in what a write returned, so that the writer's next look sees it. Returns whether it was news.
    pub fn observe(&self, mut object: K) -> bool {
        // As the watch leaves them out.
        object.managed_fields_mut().clear();
        let key = Key::of(&object);
        self.change(|objects| {
            let current = objects.get(&key)?;
            let newer = current.uid() == object.uid() && version(&object)? > version(&**current)?;
            newer.then(|| vec![put(objects, object)])
        })
    }

    /// Puts an object in as a watch would: for tests, and for stores that something else feeds.
    pub fn insert(&self, object: K) {
        self.change(|objects| Some(vec![put(objects, object)]));
    }

    /// Takes an object out as a watch would.
    pub fn remove(&self, key: &Key) {
        self.change(|objects| {
            objects.remove(key).map(|old| vec![Change { key: key.clone(), old: Some(old), new: None }])
        });
    }

    /// Declares the first list read.
    pub fn set_ready(&self) {
        self.0.ready.send_replace(true);
    }

    fn change(&self, edit: impl FnOnce(&mut Map<K>) -> Option<Vec<Change<K>>>) -> bool {
        let handlers = self.0.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = edit(&mut self.0.objects.write().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default();
        for change in &changes {
            for handler in &*handlers {
                handler(change);
            }
        }
        !changes.is_empty()
    }
}

/// The writing side: turns watch events into changes of a [`Store`].
pub(crate) struct Feed<K> {
    store: Store<K>,
    // Objects of a list in progress; none outside of one.
    listing: Option<Map<K>>,
}

impl<K: Resource + 'static> Feed<K> {
    pub(crate) fn new(store: Store<K>) -> Self {
        Self { store, listing: None }
    }

    /// Notes that the watch does not run. Whether that is news.
    pub(crate) fn failed(&self) -> bool {
        !self.store.0.broken.swap(true, Ordering::Relaxed)
    }

    /// Notes that the watch runs. Whether that is news.
    pub(crate) fn recovered(&self) -> bool {
        self.store.0.broken.swap(false, Ordering::Relaxed)
    }

    /// The server does not know the kind: there are no objects of it, and nothing is wrong. Whether that ends an outage.
    pub(crate) fn absent(&self) -> bool {
        self.store.0.served.send_if_modified(|served| std::mem::replace(served, false));
        self.store.set_ready();
        self.recovered()
    }

    /// Takes an event in. Whether it ends an outage: a list that is only begun may fail like the last one.
    pub(crate) fn apply(&mut self, event: Event<K>) -> bool {
        let recovered = !matches!(event, Event::Init) && self.recovered();
        match event {
            Event::Apply(object) => self.apply_one(object),
            Event::Delete(object) => self.delete(&object),
            Event::Init => self.listing = Some(Map::new()),
            Event::InitApply(object) => {
                self.listing.get_or_insert_default().insert(Key::of(&object), Arc::new(object));
            }
            Event::InitDone => self.replace(),
        }
        recovered
    }

    fn apply_one(&self, object: K) {
        let key = Key::of(&object);
        self.store.change(|objects| {
            // What we wrote ourselves comes back as we observed it: that is told once.
            let known = |current: &Arc<K>| !supersedes(&object, current) || same_version(&object, current);
            let known = objects.get(&key).is_some_and(known);
            (!known).then(|| vec![put(objects, object)])
        });
    }

    fn delete(&self, object: &K) {
        let key = Key::of(object);
        self.store.change(|objects| {
            // A recreated object may have been seen already; the late deletion of the old one is not its own.
            let same = objects.get(&key).is_some_and(|current| current.uid() == object.uid());
            if !same {
                return None;
            }
            objects.remove(&key).map(|old| vec![Change { key, old: Some(old), new: None }])
        });
    }

    fn replace(&mut self) {
        let listed = self.listing.take().unwrap_or_default();
        self.store.change(|objects| {
            let gone: Vec<Key> = objects.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
            let mut changes = Vec::new();
            for key in gone {
                let old = objects.remove(&key);
                changes.push(Change { key, old, new: None });
            }
            for (key, object) in listed {
                let fresh = objects
                    .get(&key)
                    .is_none_or(|current| supersedes(&*object, current) && !same_version(&*object, current));
                if fresh {
                    let old = objects.insert(key.clone(), object.clone());
                    changes.push(Change { key, old, new: Some(object) });
                }
            }
            Some(changes)
        });
        self.store.0.served.send_if_modified(|served| !std::mem::replace(served, true));
        self.store.set_ready();
    }
}

fn put<K: Resource>(objects: &mut Map<K>, object: K) -> Change<K> {
    let (key, object) = (Key::of(&object), Arc::new(object));
    let old = objects.insert(key.clone(), object.clone());
    Change { key, old, new: Some(object) }
}

// Another uid always wins: the watch is in order, so the other one is gone.
fn supersedes<K: Resource>(new: &K, current: &K) -> bool {
    new.uid() != current.uid()
        || match (version(new), version(current)) {
            (Some(new), Some(current)) => new >= current,
            _ => true,
        }
}

fn same_version<K: Resource>(a: &K, b: &K) -> bool {
    a.uid() == b.uid() && a.meta().resource_version.is_some() && a.meta().resource_version == b.meta().resource_version
}

fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    // A handler that panicked cannot leave a map half changed; the readers may go on.
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;

    use super::*;

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
                format!("{}@{}", object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default())
            })
        };
        store.subscribe(move |change| {
            sink.lock().unwrap().push(format!("{} {} {}", change.key, text(&change.old), text(&change.new)));
        });
        seen
    }

    #[test]
    fn a_relist_tells_only_the_difference() {
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
        insta::assert_snapshot!(seen.lock().unwrap().join("\n"), @r"
        ns/a - 1@1
        ns/b - 2@2
        ns/c - 3@3
        ns/c 3@3 -
        ns/b 2@2 2@7
        ns/d - 4@8
        ");
    }

    #[test]
    fn own_writes_are_seen_at_once_and_never_undone_by_the_watch() {
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
    fn a_late_deletion_leaves_the_recreated_object() {
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
        assert!(!store.is_healthy());
        feed.apply(Event::Init);
        feed.apply(Event::InitDone);
        assert!(store.is_healthy());
        assert!(feed.failed(), "news");
        assert!(!store.is_healthy() && store.is_ready());
        assert!(!feed.apply(Event::Init) && !store.is_healthy(), "a list that is begun may fail again");
        assert!(!feed.failed(), "known");
        assert!(feed.apply(Event::InitDone) && store.is_healthy());
        feed.failed();
        assert!(feed.recovered() && store.is_healthy());
    }

    #[test]
    fn a_kind_that_is_not_there_keeps_nobody_waiting() {
        let store: Store<ConfigMap> = Store::default();
        let mut feed = Feed::new(store.clone());
        for _ in 0..2 {
            feed.apply(Event::Init);
            feed.absent();
            assert!(store.is_ready() && store.is_healthy() && store.is_empty());
        }
        for event in [Event::Init, Event::InitApply(object("a", "1", 1)), Event::InitDone] {
            feed.apply(event);
        }
        assert_eq!(store.len(), 1);
    }
}
