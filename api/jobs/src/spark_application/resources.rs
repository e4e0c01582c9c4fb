//! Computes the requests of Spark's driver and executor pods. Each amount comes from a field of the
//! SparkApplication, else from Spark's settings in `spec.sparkConf`, else from Spark's default.
//! Source: Spark's `BasicDriverFeatureStep` and `BasicExecutorFeatureStep`.

use serde_json::{Value, json};

use super::Role;
use super::template::put;
use crate::JobError;
use crate::meta::{count_at, str_at};
use switchyard_syntax::quantity;

/// Spark's default memory, in MiB.
const MEMORY: u64 = 1024;
/// The least memory overhead, in MiB.
const LEAST_OVERHEAD: u64 = 384;
/// Memory overhead as a fraction of the memory, for JVM programs and for others.
const JVM_FACTOR: f64 = 0.1;
const OTHER_FACTOR: f64 = 0.4;

/// A role's fields and Spark settings.
struct SparkSettings<'a> {
    job: &'a Value,
    role: &'a Role,
    spec: &'a Value,
}

/// A value and the path of its field.
type FieldValue<'a> = Option<(&'a str, String)>;

impl<'a> SparkSettings<'a> {
    /// A field of the role.
    fn field(&self, name: &str) -> FieldValue<'a> {
        let text = self.spec.get(name)?.as_str()?;
        Some((text, format!("/spec/{}/{name}", self.role.name)))
    }

    /// A Spark setting. `{}` in its name stands for the role.
    fn setting(&self, name: &str) -> FieldValue<'a> {
        let key = name.replace("{}", self.role.name);
        let text = self.job.pointer("/spec/sparkConf")?.get(&key)?.as_str()?;
        Some((text, format!("/spec/sparkConf/{key}")))
    }

    fn is_jvm(&self) -> bool {
        !matches!(str_at(self.job, "/spec/type"), "Python" | "R")
    }

    fn cpu(&self) -> Result<Value, JobError> {
        let asked =
            self.field("coreRequest").or_else(|| self.setting("spark.kubernetes.{}.request.cores"));
        if let Some((text, at)) = asked {
            return amount(text, &at);
        }
        match self.spec.get("cores").and_then(Value::as_i64) {
            Some(cores) => Ok(Value::from(cores.to_string())),
            None => self
                .setting("spark.{}.cores")
                .map_or_else(|| Ok("1".into()), |(text, at)| amount(text, &at)),
        }
    }

    /// Total memory in MiB: Spark's memory and all additions.
    fn memory(&self) -> Result<u64, JobError> {
        let given = self.field("memory").or_else(|| self.setting("spark.{}.memory"));
        let memory = given.map_or(Ok(MEMORY), |(text, at)| mebibytes(text, &at))?;
        let overhead =
            self.field("memoryOverhead").or_else(|| self.setting("spark.{}.memoryOverhead"));
        let overhead = match overhead {
            Some((text, at)) => mebibytes(text, &at)?,
            None => self.default_overhead(memory)?,
        };
        let mut sum = memory.saturating_add(overhead);
        if self.role.name == "executor" {
            let off_heap = self
                .setting("spark.memory.offHeap.enabled")
                .is_some_and(|(text, _)| text == "true");
            let off_heap = self.setting("spark.memory.offHeap.size").filter(|_| off_heap);
            // Without a unit, it is in bytes.
            let off_heap = off_heap.map(|(text, at)| mebibytes(&with_unit(text, "b"), &at));
            let python = self.setting("spark.executor.pyspark.memory");
            let python = python.filter(|_| str_at(self.job, "/spec/type") == "Python");
            let python = python.map(|(text, at)| mebibytes(text, &at));
            for more in [off_heap, python].into_iter().flatten() {
                sum = sum.saturating_add(more?);
            }
        }
        Ok(sum)
    }

    fn default_overhead(&self, memory: u64) -> Result<u64, JobError> {
        let of_all = self.job.pointer("/spec/memoryOverheadFactor").and_then(Value::as_str);
        let given = self
            .setting("spark.{}.memoryOverheadFactor")
            .filter(|_| self.is_jvm())
            .or_else(|| of_all.map(|text| (text, "/spec/memoryOverheadFactor".to_owned())))
            .or_else(|| self.setting("spark.kubernetes.memoryOverheadFactor"));
        let factor = match given {
            None if self.is_jvm() => JVM_FACTOR,
            None => OTHER_FACTOR,
            Some((text, at)) => {
                let factor = text
                    .trim()
                    .parse::<f64>()
                    .ok()
                    .filter(|factor| factor.is_finite() && *factor >= 0.0);
                factor.ok_or_else(|| {
                    JobError::malformed(&at, format!("is {text:?}: a number from 0 on is needed"))
                })?
            }
        };
        let least = self.setting("spark.{}.minMemoryOverhead");
        let least = least.map_or(Ok(LEAST_OVERHEAD), |(text, at)| mebibytes(text, &at))?;
        // Spark truncates the fraction.
        let part = (memory as f64 * factor) as u64;
        Ok(part.max(least))
    }
}

/// The resources of the role's container. `own` are those of a given pod template, which Spark's
/// values override one by one.
pub(super) fn of_role(
    job: &Value,
    role: &Role,
    spec: &Value,
    own: &Value,
) -> Result<Value, JobError> {
    let settings = SparkSettings { job, role, spec };
    let given =
        |field: &str| own.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut requests, mut limits) = (given("requests"), given("limits"));
    let memory = Value::from(format!("{}Mi", settings.memory()?));
    requests.insert("cpu".to_owned(), settings.cpu()?);
    requests.insert("memory".to_owned(), memory.clone());
    limits.insert("memory".to_owned(), memory);
    let cpu =
        settings.field("coreLimit").or_else(|| settings.setting("spark.kubernetes.{}.limit.cores"));
    if let Some((text, at)) = cpu {
        limits.insert("cpu".to_owned(), amount(text, &at)?);
    }
    if let Some((text, at)) = settings.field("memoryLimit") {
        limits.insert("memory".to_owned(), amount(&java_memory(text), &at)?);
    }
    let (name, count) = (str_at(spec, "/gpu/name"), count_at(spec, "/gpu/quantity", 0));
    if !name.is_empty() && count > 0 {
        limits.insert(name.to_owned(), Value::from(count.to_string()));
    }
    let mut resources = json!({});
    put(&mut resources, "claims", own.get("claims").cloned().unwrap_or_default());
    put(&mut resources, "requests", Value::Object(requests));
    put(&mut resources, "limits", Value::Object(limits));
    Ok(resources)
}

fn amount(text: &str, at: &str) -> Result<Value, JobError> {
    match quantity::parse(text) {
        Ok(_) => Ok(Value::from(text)),
        Err(error) => Err(JobError::malformed(at, format!("is {text:?}: {error}"))),
    }
}

/// Appends the unit if there is none.
fn with_unit(text: &str, unit: &str) -> String {
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        format!("{text}{unit}")
    } else {
        text.to_owned()
    }
}

/// Parses Java's memory sizes: `512m` and `512` mean 512 MiB. Spark rejects Kubernetes' `512Mi`.
fn mebibytes(text: &str, at: &str) -> Result<u64, JobError> {
    let error = || {
        JobError::malformed(
            at,
            format!("is {text:?}: Spark takes whole numbers with one of the units k, m, g, t, p"),
        )
    };
    let lower = text.trim().to_lowercase();
    let digits = lower.find(|it: char| !it.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let number: u64 = number.parse().map_err(|_| error())?;
    match unit {
        "b" => Ok(number >> 20),
        "k" | "kb" => Ok(number >> 10),
        "" | "m" | "mb" => Ok(number),
        "g" | "gb" => Ok(number.saturating_mul(1 << 10)),
        "t" | "tb" => Ok(number.saturating_mul(1 << 20)),
        "p" | "pb" => Ok(number.saturating_mul(1 << 30)),
        _ => Err(error()),
    }
}

/// Converts a memory limit for the operator, which accepts Java's `512m` and Kubernetes' `512Mi`.
fn java_memory(text: &str) -> String {
    let lower = text.to_lowercase();
    for (unit, ours) in [("k", "Ki"), ("m", "Mi"), ("g", "Gi"), ("t", "Ti"), ("p", "Pi")] {
        let number = lower.strip_suffix(&format!("{unit}b")).or_else(|| lower.strip_suffix(unit));
        if let Some(number) = number {
            return format!("{number}{ours}");
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::ROLES;
    use super::*;

    fn requests(role: usize, spec: &Value) -> String {
        let job = json!({ "spec": spec });
        let role = &ROLES[role];
        let fields =
            job.pointer(&format!("/spec/{}", role.name)).cloned().unwrap_or_else(|| json!({}));
        match of_role(&job, role, &fields, &Value::Null) {
            Ok(resources) => {
                let text =
                    |name: &str| resources["requests"][name].as_str().unwrap_or("-").to_owned();
                format!("{} {}", text("cpu"), text("memory"))
            }
            Err(error) => error.to_string(),
        }
    }

    const DRIVER: usize = 0;
    const EXECUTOR: usize = 1;

    #[rstest]
    #[case::nothing_said(DRIVER, json!({}), "1 1408Mi")]
    #[case::cores(DRIVER, json!({"driver": {"cores": 2, "memory": "8g"}}), "2 9011Mi")]
    #[case::a_request_goes_before_cores(DRIVER, json!({"driver": {"cores": 2, "coreRequest": "500m"}}), "500m 1408Mi")]
    #[case::python(DRIVER, json!({"type": "Python", "driver": {"memory": "2g"}}), "1 2867Mi")]
    #[case::overhead(DRIVER, json!({"driver": {"memory": "512m", "memoryOverhead": "1g"}}), "1 1536Mi")]
    #[case::overhead_without_unit(DRIVER, json!({"driver": {"memory": "512m", "memoryOverhead": "100"}}), "1 612Mi")]
    #[case::a_factor(EXECUTOR, json!({"memoryOverheadFactor": "0.5", "executor": {"memory": "4g"}}), "1 6144Mi")]
    #[case::settings(
        EXECUTOR,
        json!({"sparkConf": {"spark.executor.cores": "3", "spark.executor.memory": "2g", "spark.executor.memoryOverhead": "0"}}),
        "3 2048Mi"
    )]
    #[case::fields_go_before_settings(
        EXECUTOR,
        json!({"sparkConf": {"spark.executor.memory": "2g"}, "executor": {"memory": "4096k"}}),
        "1 388Mi"
    )]
    #[case::memory_outside_of_the_heap(
        EXECUTOR,
        json!({"sparkConf": {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1073741824"}}),
        "1 2432Mi"
    )]
    #[case::python_workers(
        EXECUTOR,
        json!({"type": "Python", "sparkConf": {"spark.executor.pyspark.memory": "1g"}}),
        "1 2457Mi"
    )]
    #[case::a_unit_of_kubernetes(
        DRIVER,
        json!({"driver": {"memory": "512Mi"}}),
        r#"spec.driver.memory: is "512Mi": Spark takes whole numbers with one of the units k, m, g, t, p"#
    )]
    fn pods_ask_for_what_spark_asks_for(
        #[case] role: usize,
        #[case] spec: Value,
        #[case] want: &str,
    ) {
        assert_eq!(requests(role, &spec), want);
    }
}
