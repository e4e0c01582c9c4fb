//! A compact map for few entries.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map from names to a few values, ordered by name, in one allocation. A [`BTreeMap`] allocates
/// room for eleven entries, which would be most of the memory of a Workload. Thousands of Workloads
/// are in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct SmallMap<V>(Box<[(String, V)]>);

impl<V> SmallMap<V> {
    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value for a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&V> {
        let at = self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Entries in the order of their names.
    pub fn iter(&self) -> Iter<'_, V> {
        self.into_iter()
    }

    /// Values in the order of their names.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Sets the value for a name. Copies the whole map.
    pub fn insert(&mut self, name: String, value: V) {
        *self = std::mem::take(self).into_iter().chain([(name, value)]).collect();
    }
}

/// See [`SmallMap::iter`].
pub type Iter<'a, V> =
    std::iter::Map<std::slice::Iter<'a, (String, V)>, fn(&(String, V)) -> (&String, &V)>;

impl<'a, V> IntoIterator for &'a SmallMap<V> {
    type IntoIter = Iter<'a, V>;
    type Item = (&'a String, &'a V);

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl<V> IntoIterator for SmallMap<V> {
    type IntoIter = std::vec::IntoIter<(String, V)>;
    type Item = (String, V);

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<V> Default for SmallMap<V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

/// If a name occurs twice, the last value counts.
impl<V> FromIterator<(String, V)> for SmallMap<V> {
    fn from_iter<I: IntoIterator<Item = (String, V)>>(entries: I) -> Self {
        entries.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

impl<V> From<BTreeMap<String, V>> for SmallMap<V> {
    fn from(map: BTreeMap<String, V>) -> Self {
        Self(map.into_iter().collect())
    }
}

impl<V, const N: usize> From<[(String, V); N]> for SmallMap<V> {
    fn from(entries: [(String, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<V: fmt::Debug> fmt::Debug for SmallMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<V: Serialize> Serialize for SmallMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for SmallMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn small_map_matches_the_standard_map(entries in prop::collection::vec(("[a-e]{0,2}", any::<i64>()), 0..8)) {
            let map: BTreeMap<String, i64> = entries.iter().cloned().collect();
            let small: SmallMap<i64> = entries.iter().cloned().collect();
            let mut inserted = SmallMap::default();
            entries.iter().for_each(|(name, value)| inserted.insert(name.clone(), *value));
            prop_assert_eq!(&inserted, &small);
            prop_assert_eq!(small.is_empty(), map.is_empty());
            prop_assert!(small.iter().eq(&map) && small.values().eq(map.values()));
            for name in ["", "a", "e", "zz"].into_iter().chain(map.keys().map(String::as_str)) {
                prop_assert_eq!(small.get(name), map.get(name));
            }
            let text = serde_json::to_string(&map).unwrap();
            prop_assert_eq!(&serde_json::to_string(&small).unwrap(), &text);
            prop_assert_eq!(format!("{small:?}"), format!("{map:?}"));
            prop_assert_eq!(serde_json::from_str::<SmallMap<i64>>(&text).unwrap(), small);
        }
    }
}
