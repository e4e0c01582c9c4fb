//! JSON that is read often in its first moments and hardly ever after.
//!
//! A parsed tree takes about ten times the memory of its text. So one process-wide cache keeps the
//! most recently used trees, and every other value keeps only its text.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

/// Capacity of the cache. A change is handed to all subscribers of its kind, and read, before so
/// many others come.
const TREES: usize = 256;

/// The values with a tree, oldest first.
static RECENT: Mutex<VecDeque<Weak<CachedJson>>> = Mutex::new(VecDeque::new());

/// One JSON value. It never changes.
pub(super) struct CachedJson(Mutex<Forms>);

/// At least one form is present.
struct Forms {
    tree: Option<Arc<Value>>,
    text: Option<Box<str>>,
}

impl CachedJson {
    pub(super) fn new(value: Value) -> Arc<Self> {
        let held = Arc::new(Self(Mutex::new(Forms { tree: Some(Arc::new(value)), text: None })));
        remember(&held);
        held
    }

    pub(super) fn value(self: &Arc<Self>) -> Arc<Value> {
        let mut forms = self.0.lock();
        if let Some(tree) = &forms.tree {
            return tree.clone();
        }
        let tree: Arc<Value> = Arc::new(forms.read().unwrap_or_default());
        forms.tree = Some(tree.clone());
        drop(forms);
        remember(self);
        tree
    }

    /// The whole value if its tree is cached, else only `metadata`.
    pub(super) fn head(&self) -> Arc<Value> {
        #[derive(Default, Deserialize)]
        struct Head {
            metadata: Value,
        }
        let forms = self.0.lock();
        forms.tree.clone().unwrap_or_else(|| {
            let Head { metadata } = forms.read().unwrap_or_default();
            Arc::new(json!({ "metadata": metadata }))
        })
    }

    /// Drops the tree and keeps the text.
    fn drop_tree(&self) {
        let mut forms = self.0.lock();
        if let (None, Some(tree)) = (&forms.text, &forms.tree) {
            forms.text = serde_json::to_string(&**tree).ok().map(String::into_boxed_str);
        }
        if forms.text.is_some() {
            forms.tree = None;
        }
    }
}

impl Forms {
    /// The text is this module's own output, so it parses.
    fn read<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.text.as_deref()?).ok()
    }
}

/// Records a value with a new tree, and drops the tree of the oldest.
fn remember(held: &Arc<CachedJson>) {
    let mut recent = RECENT.lock();
    recent.push_back(Arc::downgrade(held));
    let oldest = if recent.len() > TREES { recent.pop_front() } else { None };
    drop(recent);
    if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
        oldest.drop_tree();
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
        fn dropped_tree_is_parsed_to_the_same_value(spec in tree()) {
            let object = json!({"metadata": {"name": "a"}, "spec": spec});
            let held = CachedJson::new(object.clone());
            held.drop_tree();
            prop_assert_eq!(&*held.value(), &object);
        }
    }

    #[test]
    fn head_is_read_without_a_tree() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"suspend": true},
        });
        let held = CachedJson::new(object.clone());
        held.drop_tree();
        assert_eq!(*held.head(), json!({"metadata": {"name": "a", "labels": {"x": "1"}}}));
        assert!(held.0.lock().tree.is_none(), "its head is no tree");
        assert_eq!(*held.value(), object);
        assert_eq!(*held.head(), object);
    }

    #[test]
    fn trees_are_bounded() {
        let all: Vec<_> =
            (0..3 * TREES).map(|number| CachedJson::new(json!({"number": number}))).collect();
        let trees = all.iter().filter(|held| held.0.lock().tree.is_some()).count();
        assert!(trees <= TREES);
        for (number, held) in all.iter().enumerate() {
            assert_eq!(held.value()["number"], number);
        }
    }

    #[test]
    fn readers_tree_survives_the_drop() {
        let held = CachedJson::new(json!({"a": 1}));
        let reader = held.value();
        held.drop_tree();
        assert_eq!(*reader, json!({"a": 1}));
    }
}
