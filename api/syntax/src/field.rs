//! Field paths, and errors about fields in Kubernetes' words.

use std::fmt;

/// The path of a field, such as `spec.resourceGroups[0].flavors[1].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// The object itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// A top-level field.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// A field of this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// An item of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// A value of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// Path of a label.
#[must_use]
pub fn label_path(key: &str) -> Path {
    Path::new("metadata").child("labels").key(key)
}

/// Path of an annotation.
#[must_use]
pub fn annotation_path(key: &str) -> Path {
    Path::new("metadata").child("annotations").key(key)
}

/// An error about one field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    /// Path of the field.
    pub path: String,
    /// The error, such as `Invalid value: "-1": must be greater than or equal to 0`.
    pub message: String,
}

impl FieldError {
    /// An error with any message.
    pub fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_string(), message: message.into() }
    }

    /// The value is not allowed. Text is quoted and numbers are bare: see [`Shown`].
    pub fn invalid(path: &Path, value: impl Shown, detail: impl fmt::Display) -> Self {
        Self::new(path, format!("Invalid value: {}: {detail}", value.shown()))
    }

    /// The value is not allowed and too large for the message.
    pub fn invalid_without_value(path: &Path, detail: &str) -> Self {
        Self::new(path, with_detail("Invalid value", detail))
    }

    /// The value is missing.
    pub fn required(path: &Path, detail: &str) -> Self {
        Self::new(path, with_detail("Required value", detail))
    }

    /// The field must not be set.
    pub fn forbidden(path: &Path, detail: &str) -> Self {
        Self::new(path, with_detail("Forbidden", detail))
    }

    /// The value names an object that does not exist.
    pub fn not_found(path: &Path, value: impl Shown) -> Self {
        Self::new(path, format!("Not found: {}", value.shown()))
    }

    /// The value occurs twice.
    pub fn duplicate(path: &Path, value: impl Shown) -> Self {
        Self::new(path, format!("Duplicate value: {}", value.shown()))
    }

    /// The value is not one of the supported ones.
    pub fn not_supported(path: &Path, value: impl Shown, supported: &[&str]) -> Self {
        let known: Vec<String> = supported.iter().map(|name| name.shown()).collect();
        Self::new(
            path,
            format!("Unsupported value: {}: supported values: {}", value.shown(), known.join(", ")),
        )
    }

    /// The list or text is too long.
    pub fn too_many(path: &Path, count: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new(path, format!("Too many: {count}: must have at most {max} {items}"))
    }
}

fn with_detail(what: &str, detail: &str) -> String {
    if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") }
}

/// How a value appears in an error: quoted text, bare numbers.
pub trait Shown {
    /// The value as text.
    fn shown(&self) -> String;
}

impl Shown for str {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

impl Shown for String {
    fn shown(&self) -> String {
        self.as_str().shown()
    }
}

impl Shown for i64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for i32 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for usize {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for serde_json::Value {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl<T: Shown + ?Sized> Shown for &T {
    fn shown(&self) -> String {
        (*self).shown()
    }
}

/// The name most similar to `name`, if one is similar enough to suggest.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let (distance, best) = known
        .into_iter()
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate))
        .min()?;
    (distance * 3 <= wanted.chars().count().max(3)).then_some(best)
}

/// Edit distance: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn errors_read_as_kubernetes_writes_them() {
        let path = Path::new("spec").child("groups").index(0).key("cpu");
        let all = [
            FieldError::invalid(&path, "-1", "must be greater than or equal to 0"),
            FieldError::invalid(&path, -1, "must be greater than or equal to 0"),
            FieldError::required(&path, "must be specified"),
            FieldError::required(&Path::root().child("name"), ""),
            FieldError::duplicate(&path, "cpu"),
            FieldError::not_supported(&path, "x", &["a", "b"]),
            FieldError::too_many(&path, 3, 2),
            FieldError::forbidden(&path, "not here"),
        ];
        insta::assert_snapshot!(all.map(|error| error.to_string()).join("\n"), @r#"
        spec.groups[0][cpu]: Invalid value: "-1": must be greater than or equal to 0
        spec.groups[0][cpu]: Invalid value: -1: must be greater than or equal to 0
        spec.groups[0][cpu]: Required value: must be specified
        name: Required value
        spec.groups[0][cpu]: Duplicate value: "cpu"
        spec.groups[0][cpu]: Unsupported value: "x": supported values: "a", "b"
        spec.groups[0][cpu]: Too many: 3: must have at most 2 items
        spec.groups[0][cpu]: Forbidden: not here
        "#);
    }

    #[rstest]
    #[case::a_letter_too_many("gcIntervall", Some("gcInterval"))]
    #[case::two_letters_swapped("gcInetrval", Some("gcInterval"))]
    #[case::another_case("GCInterval", Some("gcInterval"))]
    #[case::something_else("color", None)]
    #[case::nothing("", None)]
    fn near_names_are_offered(#[case] name: &str, #[case] offered: Option<&str>) {
        assert_eq!(nearest(name, ["origin", "gcInterval", "workerLostTimeout"]), offered);
    }
}
