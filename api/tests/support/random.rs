//! Random values that a structural schema accepts, with regard to types, required fields,
//! enumerations and limits.

use serde_json::{Map, Value, json};

/// A small random number generator. The same seed gives the same value.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `bound`, by xorshift.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// A value of this schema.
    pub(crate) fn value(&mut self, schema: &Value) -> Value {
        if let Some(known) = schema["enum"].as_array() {
            return known[self.below(known.len() as u64) as usize].clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            let all = [json!(0), json!(9), json!("1500m"), json!("4Gi"), json!("1e3"), json!(".5")];
            return all[self.below(all.len() as u64) as usize].clone();
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema),
            Some("array") => self.array(schema),
            Some("boolean") => json!(self.below(2) == 0),
            Some("integer") => self.integer(schema),
            _ if schema["format"] == "date-time" => self.time(),
            _ => json!(["", "a", "main", "größe"][self.below(4) as usize]),
        }
    }

    fn object(&mut self, schema: &Value) -> Value {
        let mut map = Map::new();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if required.contains(&json!(name)) || self.below(2) == 0 {
                map.insert(name.clone(), self.value(schema));
            }
        }
        if schema["additionalProperties"].is_object() {
            for name in ["a", "b"].iter().take(self.below(3) as usize) {
                map.insert((*name).to_owned(), self.value(&schema["additionalProperties"]));
            }
        }
        Value::Object(map)
    }

    fn array(&mut self, schema: &Value) -> Value {
        let least = schema["minItems"].as_u64().unwrap_or(0);
        let count = least + self.below(3);
        (0..count).map(|_| self.value(&schema["items"])).collect()
    }

    /// API servers such as 1.32 do not check the format.
    fn integer(&mut self, schema: &Value) -> Value {
        let low = schema["minimum"].as_f64().map_or(i64::MIN, |least| least as i64);
        let high = schema["maximum"].as_f64().map_or(i64::MAX, |most| most as i64);
        [json!(low), json!(high), json!(low.max(1))][self.below(3) as usize].clone()
    }

    fn time(&mut self) -> Value {
        let all =
            ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05.678901Z"];
        json!(all[self.below(3) as usize])
    }
}
