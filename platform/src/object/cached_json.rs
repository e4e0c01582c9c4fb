//! JSON that is looked at often in its first moments and hardly ever after.
//!
//! As a tree it takes about ten times the memory of its text. So the trees of what was made or looked at last are kept, in
//! this process together, and of all else the text.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use serde::Deserialize;
use serde_json::{Value, json};

/// Trees that are kept. A change of an object is told to all who follow its kind, and looked at, before so many others come.
const TREES: usize = 256;

/// Those that have a tree, the oldest first.
static RECENT: Mutex<VecDeque<Weak<Held>>> = Mutex::new(VecDeque::new());

/// One piece of JSON; it never changes.
pub(super) struct Held(Mutex<Forms>);

/// At least one is there.
struct Forms {
    tree: Option<Arc<Value>>,
    text: Option<Box<str>>,
}

impl Held {
    pub(super) fn new(value: Value) -> Arc<Self> {
        let held = Arc::new(Self(Mutex::new(Forms { tree: Some(Arc::new(value)), text: None })));
        note(&held);
        held
    }

    pub(super) fn value(self: &Arc<Self>) -> Arc<Value> {
        let mut forms = self.lock();
        if let Some(tree) = &forms.tree {
            return tree.clone();
        }
        let tree: Arc<Value> = Arc::new(forms.read().unwrap_or_default());
        forms.tree = Some(tree.clone());
        drop(forms);
        note(self);
        tree
    }

    /// All of it where the tree is there, else only what is under `metadata`.
    pub(super) fn head(&self) -> Arc<Value> {
        #[derive(Default, Deserialize)]
        struct Head {
            metadata: Value,
        }
        let forms = self.lock();
        forms.tree.clone().unwrap_or_else(|| {
            let Head { metadata } = forms.read().unwrap_or_default();
            Arc::new(json!({ "metadata": metadata }))
        })
    }

    /// Keeps the text alone.
    fn settle(&self) {
        let mut forms = self.lock();
        if let (None, Some(tree)) = (&forms.text, &forms.tree) {
            forms.text = serde_json::to_string(tree).ok().map(String::into_boxed_str);
        }
        if forms.text.is_some() {
            forms.tree = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Forms> {
        // Each change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forms {
    /// What we have written as text can be read.
    fn read<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.text.as_deref()?).ok()
    }
}

/// Notes that there is a tree, and settles the oldest that has one in its place.
fn note(held: &Arc<Held>) {
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    recent.push_back(Arc::downgrade(held));
    let oldest = if recent.len() > TREES { recent.pop_front() } else { None };
    drop(recent);
    if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
        oldest.settle();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_was_settled_is_read_again_as_it_was(spec in tree()) {
            let object = json!({"metadata": {"name": "a"}, "spec": spec});
            let held = Held::new(object.clone());
            held.settle();
            prop_assert_eq!(&*held.value(), &object);
        }
    }

    #[test]
    fn the_head_is_read_without_a_tree() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"suspend": true},
        });
        let held = Held::new(object.clone());
        held.settle();
        assert_eq!(*held.head(), json!({"metadata": {"name": "a", "labels": {"x": "1"}}}));
        assert!(held.lock().tree.is_none(), "its head is no tree");
        assert_eq!(*held.value(), object);
        assert_eq!(*held.head(), object);
    }

    #[test]
    fn trees_are_few() {
        let all: Vec<_> =
            (0..3 * TREES).map(|number| Held::new(json!({"number": number}))).collect();
        let trees = all.iter().filter(|held| held.lock().tree.is_some()).count();
        assert!(trees <= TREES);
        for (number, held) in all.iter().enumerate() {
            assert_eq!(held.value()["number"], number);
        }
    }

    #[test]
    fn a_tree_that_is_being_read_stays_with_its_reader() {
        let held = Held::new(json!({"a": 1}));
        let reader = held.value();
        held.settle();
        assert_eq!(*reader, json!({"a": 1}));
    }
}
