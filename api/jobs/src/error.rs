//! Errors between jobs and pod sets.

/// Why a job could not be turned into pod sets, or admission could not be written into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The object has a shape that its kind does not allow. Permanent: the user has to change it.
    #[error("{field}: {problem}")]
    Malformed {
        /// Path of the field.
        field: String,
        /// The problem with it.
        problem: String,
    },
    /// The Workload and the job have different numbers of pod sets. Permanent.
    #[error("invalid podset infos: expecting {want} podset, got {got}")]
    PodSetCount {
        /// Pod sets of the job.
        want: usize,
        /// Pod sets given.
        got: usize,
    },
    /// The Workload has no pod set of this name. Permanent.
    #[error("invalid podset infos: podSetInfo with the name '{name}' is not found")]
    PodSetMissing {
        /// The pod set that a pod needs.
        name: String,
    },
    /// A topology annotation cannot be parsed. Permanent.
    #[error("{problem}")]
    TopologyRequest {
        /// The problem, in Kueue's words.
        problem: String,
    },
    /// Admission sets a key that the template sets to another value. Permanent.
    #[error("{}invalid admission check PodSetUpdate: conflict for {what}: {detail}", in_check(.check.as_deref()))]
    PodSetUpdateConflict {
        /// The admission check that set the key, if one did.
        check: Option<String>,
        /// `labels`, `annotations` or `nodeSelector`.
        what: &'static str,
        /// The key and both values.
        detail: String,
    },
    /// A flavor of the admission does not exist. Worth a retry.
    #[error("ResourceFlavor {name:?} not found; create it again, or let the workload be evicted")]
    FlavorNotFound {
        /// Name of the ResourceFlavor.
        name: String,
    },
}

fn in_check(check: Option<&str>) -> String {
    check.map(|name| format!("in admission check {name:?}: ")).unwrap_or_default()
}

impl JobError {
    /// An error about the value at a JSON pointer.
    pub(crate) fn malformed(pointer: &str, problem: impl Into<String>) -> Self {
        Self::Malformed { field: dotted(pointer), problem: problem.into() }
    }

    /// True if a retry cannot help. The Workload is then finished with `FailedToStart`.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::FlavorNotFound { .. })
    }
}

/// Converts `/spec/groups/0/template` to `spec.groups[0].template`.
pub(crate) fn dotted(pointer: &str) -> String {
    let mut text = String::with_capacity(pointer.len());
    for part in pointer.split('/').filter(|part| !part.is_empty()) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            text.push_str(&format!("[{part}]"));
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(part);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_read_as_users_write_fields() {
        assert_eq!(dotted("/spec/groups/0/template/spec"), "spec.groups[0].template.spec");
        assert_eq!(dotted("/spec"), "spec");
    }
}
