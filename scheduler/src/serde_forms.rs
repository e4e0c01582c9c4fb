//! Serde forms of values that JSON cannot express.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A map whose keys are no strings, as a list of pairs.
pub(crate) mod pairs {
    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

/// A float that may be infinite, by its bits.
pub(crate) mod bits {
    use super::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(crate) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(number.to_bits())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

/// Floats by name, by their bits.
pub(crate) mod bits_by_name {
    use std::collections::BTreeMap;

    use super::{Deserialize as _, Deserializer, Serializer};
    use crate::Name;

    pub(crate) fn serialize<S: Serializer>(
        numbers: &BTreeMap<Name, f64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(numbers.iter().map(|(name, number)| (name, number.to_bits())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<Name, f64>, D::Error> {
        let bits = BTreeMap::<Name, u64>::deserialize(from)?;
        Ok(bits.into_iter().map(|(name, bits)| (name, f64::from_bits(bits))).collect())
    }
}
