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
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use kube::{Resource, ResourceExt, runtime::watcher::Event};
use tokio::{sync::watch, time::Instant};

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
    // Since when the watch does not run.
    broken: Mutex<Option<Instant>>,
    // Makes what comes in as small as it can be.
    fit: fn(&mut K),
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
        Self::fitted(|_| ())
    }
}

impl<K> Store<K> {
    /// A store without objects. `fit` is called with each that comes, and may do what makes no difference to readers: thousands
    /// are held.
    pub fn fitted(fit: fn(&mut K)) -> Self {
        Self(Arc::new(Inner {
            objects: RwLock::default(),
            handlers: Mutex::default(),
            ready: watch::channel(false).0,
            served: watch::channel(true).0,
            broken: Mutex::default(),
            fit,
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

    /// For how long the watch has not run, if it does not: from an error until the next object or list, or until no error
    /// came for a while.
    #[must_use]
    pub fn broken_for(&self) -> Option<Duration> {
        self.0.broken.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
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
    pub fn observe(&self, object: K) -> bool {
        let object = self.fit(object);
        let key = Key::of(&object);
        self.change(|objects| {
            let current = objects.get(&key)?;
            let newer = current.uid() == object.uid() && version(&object)? > version(&**current)?;
            newer.then(|| vec![put(objects, object)])
        })
    }

    /// Puts an object in as a watch would: for tests, and for stores that something else feeds.
    pub fn insert(&self, object: K) {
        let object = self.fit(object);
        self.change(|objects| Some(vec![put(objects, object)]));
    }

    /// Takes an object out as a watch would.
    pub fn remove(&self, key: &Key) {
        self.change(|objects| {
            objects
                .remove(key)
                .map(|old| vec![Change { key: key.clone(), old: Some(old), new: None }])
        });
    }

    /// Declares the first list read.
    pub fn set_ready(&self) {
        self.0.ready.send_replace(true);
    }

    /// As it is held.
    fn fit(&self, mut object: K) -> K {
        object.meta_mut().managed_fields = None;
        (self.0.fit)(&mut object);
        object
    }

    fn change(&self, edit: impl FnOnce(&mut Map<K>) -> Option<Vec<Change<K>>>) -> bool {
        let handlers = self.0.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = edit(&mut self.0.objects.write().unwrap_or_else(PoisonError::into_inner))
            .unwrap_or_default();
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
        let mut broken = self.store.0.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let news = broken.is_none();
        broken.get_or_insert_with(Instant::now);
        news
    }

    /// Notes that the watch runs. Whether that is news.
    pub(crate) fn recovered(&self) -> bool {
        self.store.0.broken.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
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
                let object = self.store.fit(object);
                self.listing.get_or_insert_default().insert(Key::of(&object), Arc::new(object));
            }
            Event::InitDone => self.replace(),
        }
        recovered
    }

    fn apply_one(&self, object: K) {
        let object = self.store.fit(object);
        let key = Key::of(&object);
        self.store.change(|objects| {
            // What we wrote ourselves comes back as we observed it: that is told once.
            let known =
                |current: &Arc<K>| !supersedes(&object, current) || same_version(&object, current);
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

// Another uid always wins: the watch is in order, so the other one is gone.
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

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    // A handler that panicked cannot leave a map half changed; the readers may go on.
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
