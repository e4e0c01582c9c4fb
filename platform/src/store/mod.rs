//! One kind's objects in memory, fed by one watch and shared by all readers.
//!
//! # Guarantees
//!
//! - A subscriber's handler gets every object that exists when it subscribes, then every later
//!   change, once each and in order, with the state before and after. Changes during a broken watch
//!   arrive as the difference.
//! - [`Store::observe`] lets a writer insert the server's answer at once (read your own writes). It
//!   never brings back a deleted object, and an older version never replaces a newer one.
//!
//! # Assumptions
//!
//! Resource versions of one kind grow as numbers. This holds for every etcd-backed API server, and
//! Kubernetes guarantees it since 1.35.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use kube::{Resource, ResourceExt, api::ObjectMeta, runtime::watcher::Event};
use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch, time::Instant};

use crate::readable::Readable;

/// Identifies an object within its kind.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    /// `namespace` is empty for cluster-scoped kinds.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    #[must_use]
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::of_meta(object.meta())
    }

    fn of_meta(metadata: &ObjectMeta) -> Self {
        Self::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A change of one object. At least one of `old` and `new` is set.
#[derive(Debug)]
pub struct Change<K> {
    pub key: Key,
    /// `None` when the object is new.
    pub old: Option<Arc<K>>,
    /// `None` when the object was deleted.
    pub new: Option<Arc<K>>,
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;
type Map<K> = BTreeMap<Key, Arc<K>>;

struct Inner<K> {
    objects: RwLock<Map<K>>,
    // Locked while a change is applied and handed out, so that handlers get changes in order.
    handlers: Mutex<Vec<Handler<K>>>,
    ready: watch::Sender<bool>,
    // Whether the server serves the kind.
    served: watch::Sender<bool>,
    // Since when the watch is broken.
    broken: Mutex<Option<Instant>>,
    // Makes incoming objects smaller.
    strip_unused_fields: fn(&mut K),
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
        Self::stripped(|_| ())
    }
}

impl<K> Store<K> {
    /// An empty store. It calls `strip_unused_fields` for each incoming object, which may drop what
    /// readers do not use, because thousands of objects are held.
    pub fn stripped(strip_unused_fields: fn(&mut K)) -> Self {
        Self(Arc::new(Inner {
            objects: RwLock::default(),
            handlers: Mutex::default(),
            ready: watch::channel(false).0,
            served: watch::channel(true).0,
            broken: Mutex::default(),
            strip_unused_fields,
        }))
    }
}

impl<K: Resource + 'static> Store<K> {
    /// The object, if it exists. `namespace` is empty for cluster-scoped kinds.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.by_key(&Key::new(namespace, name))
    }

    #[must_use]
    pub fn by_key(&self, key: &Key) -> Option<Arc<K>> {
        self.0.objects.read().get(key).cloned()
    }

    /// All objects, by namespace and name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        self.0.objects.read().values().cloned().collect()
    }

    /// The objects that match `predicate`. It runs under the store's lock: keep it cheap.
    #[must_use]
    pub fn filter(&self, predicate: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.0.objects.read().values().filter(|object| predicate(object)).cloned().collect()
    }

    #[must_use]
    pub fn any(&self, predicate: impl Fn(&K) -> bool) -> bool {
        self.0.objects.read().values().any(|object| predicate(object))
    }

    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = Key::new(namespace, "");
        let objects = self.0.objects.read();
        objects
            .range(from..)
            .take_while(|(key, _)| &*key.namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.objects.read().len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list has been read.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.0.ready.borrow()
    }

    /// How long the watch has been broken, if it is. It counts from an error until the next object
    /// or list, or until no error came for a while.
    #[must_use]
    pub fn broken_for(&self) -> Option<Duration> {
        self.0.broken.lock().map(|since| since.elapsed())
    }

    /// Whether the server serves the kind, as far as is known. Both may follow each other.
    #[must_use]
    pub fn served(&self) -> watch::Receiver<bool> {
        self.0.served.subscribe()
    }

    /// Waits until the first list has been read. Callers set the deadline.
    pub async fn ready(&self) {
        // Cannot fail, because `self` owns the sender.
        let _ = self.0.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Calls `handler` for each existing object, then for each change, on the watch's task. A
    /// handler must not block and must not write to this store. It usually adds a key to a queue.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.0.handlers.lock();
        for object in self.all() {
            handler(&Change { key: Key::of(&*object), old: None, new: Some(object) });
        }
        handlers.push(Box::new(handler));
    }

    /// Inserts the answer to a write, so that the writer's next read sees it. Returns whether it
    /// was newer.
    pub fn observe(&self, object: K) -> bool {
        let object = self.strip(object);
        let key = Key::of(&object);
        self.change(|objects| {
            let current = objects.get(&key)?;
            let newer = current.uid() == object.uid() && version(&object)? > version(&**current)?;
            newer.then(|| vec![put(objects, object)])
        })
    }

    /// Inserts an object as a watch would, for tests and for stores without a watch.
    pub fn insert(&self, object: K) {
        let object = self.strip(object);
        self.change(|objects| Some(vec![put(objects, object)]));
    }

    /// Removes an object as a watch would.
    pub fn remove(&self, key: &Key) {
        self.change(|objects| {
            objects
                .remove(key)
                .map(|old| vec![Change { key: key.clone(), old: Some(old), new: None }])
        });
    }

    /// Marks the first list as read.
    pub fn set_ready(&self) {
        self.0.ready.send_replace(true);
    }

    /// The object as the store holds it.
    fn strip(&self, mut object: K) -> K {
        object.meta_mut().managed_fields = None;
        (self.0.strip_unused_fields)(&mut object);
        object
    }

    fn change(&self, edit: impl FnOnce(&mut Map<K>) -> Option<Vec<Change<K>>>) -> bool {
        let handlers = self.0.handlers.lock();
        let changes = edit(&mut self.0.objects.write()).unwrap_or_default();
        for change in &changes {
            for handler in &*handlers {
                handler(change);
            }
        }
        !changes.is_empty()
    }
}

/// The writing side: turns watch events into changes of a [`Store`].
pub struct Feed<K> {
    store: Store<K>,
    // The objects of a list in progress.
    listing: Option<Map<K>>,
}

impl<K: Resource + 'static> Feed<K> {
    pub fn new(store: Store<K>) -> Self {
        Self { store, listing: None }
    }

    /// Marks the watch as broken. Returns whether it ran before.
    pub fn failed(&self) -> bool {
        let mut broken = self.store.0.broken.lock();
        let news = broken.is_none();
        broken.get_or_insert_with(Instant::now);
        news
    }

    /// Marks the watch as running. Returns whether it was broken.
    pub fn recovered(&self) -> bool {
        self.store.0.broken.lock().take().is_some()
    }

    /// The server does not serve the kind: the store counts as ready, and keeps the objects of an
    /// earlier list. Returns whether that ends an outage.
    pub fn absent(&self) -> bool {
        self.store.0.served.send_if_modified(|served| std::mem::replace(served, false));
        self.store.set_ready();
        self.recovered()
    }

    /// Applies a watch event whose object may be unreadable. The store keeps the last state of such
    /// an object until it is deleted. Returns as [`Feed::apply`].
    pub fn apply_readable(&mut self, kind: &str, event: Event<Readable<K>>) -> bool {
        match event {
            Event::Apply(Readable::Object(object)) => self.apply(Event::Apply(object)),
            Event::Delete(Readable::Object(object)) => self.apply(Event::Delete(object)),
            Event::InitApply(Readable::Object(object)) => self.apply(Event::InitApply(object)),
            Event::Init => self.apply(Event::Init),
            Event::InitDone => self.apply(Event::InitDone),
            Event::Apply(Readable::Unreadable(object)) => {
                object.warn(kind);
                self.recovered()
            }
            Event::Delete(Readable::Unreadable(object)) => {
                self.delete(&object.metadata);
                self.recovered()
            }
            Event::InitApply(Readable::Unreadable(object)) => {
                object.warn(kind);
                let key = Key::of_meta(&object.metadata);
                let last = self.store.by_key(&key);
                if let Some(last) = last.filter(|last| last.meta().uid == object.metadata.uid) {
                    self.listing.get_or_insert_default().insert(key, last);
                }
                self.recovered()
            }
        }
    }

    /// Applies a watch event. Returns whether it ends an outage. The start of a list does not,
    /// because the list may fail like the last one.
    pub fn apply(&mut self, event: Event<K>) -> bool {
        let recovered = !matches!(event, Event::Init) && self.recovered();
        match event {
            Event::Apply(object) => self.apply_one(object),
            Event::Delete(object) => self.delete(object.meta()),
            Event::Init => self.listing = Some(Map::new()),
            Event::InitApply(object) => {
                let object = self.store.strip(object);
                self.listing.get_or_insert_default().insert(Key::of(&object), Arc::new(object));
            }
            Event::InitDone => self.replace(),
        }
        recovered
    }

    fn apply_one(&self, object: K) {
        let object = self.store.strip(object);
        let key = Key::of(&object);
        self.store.change(|objects| {
            // A process's own write comes back as it was observed, so handlers get it once.
            let known =
                |current: &Arc<K>| !supersedes(&object, current) || same_version(&object, current);
            let known = objects.get(&key).is_some_and(known);
            (!known).then(|| vec![put(objects, object)])
        });
    }

    fn delete(&self, object: &ObjectMeta) {
        let key = Key::of_meta(object);
        self.store.change(|objects| {
            // The recreated object may have been observed before the late deletion of the old one
            // arrives.
            let same = objects.get(&key).is_some_and(|current| current.meta().uid == object.uid);
            if !same {
                return None;
            }
            objects.remove(&key).map(|old| vec![Change { key, old: Some(old), new: None }])
        });
    }

    fn replace(&mut self) {
        let listed = self.listing.take().unwrap_or_default();
        self.store.change(|objects| {
            let gone: Vec<Key> =
                objects.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
            let mut changes = Vec::new();
            for key in gone {
                let old = objects.remove(&key);
                changes.push(Change { key, old, new: None });
            }
            for (key, object) in listed {
                let fresh = objects.get(&key).is_none_or(|current| {
                    supersedes(&*object, current) && !same_version(&*object, current)
                });
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

// Another uid always wins: watch events are in order, so the old object is gone.
fn supersedes<K: Resource>(new: &K, current: &K) -> bool {
    new.uid() != current.uid()
        || match (version(new), version(current)) {
            (Some(new), Some(current)) => new >= current,
            _ => true,
        }
}

fn same_version<K: Resource>(a: &K, b: &K) -> bool {
    a.uid() == b.uid()
        && a.meta().resource_version.is_some()
        && a.meta().resource_version == b.meta().resource_version
}

fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests;
