//! Output formats.

use anyhow::Context as _;
use serde::Serialize;

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Aligned columns.
    #[default]
    Table,
    /// JSON. Fields are only ever added.
    Json,
    /// YAML, with the same fields as JSON.
    Yaml,
}

/// A result with the field `dryRun`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DryRun<'a, T> {
    #[serde(flatten)]
    pub(crate) value: &'a T,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
}

/// A number of things: `1 pod`, `2 pods`.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// The verb after [`counted`].
pub(crate) fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

impl Output {
    /// The value in this format; `table` renders the table.
    ///
    /// # Errors
    /// Never for the types of this crate.
    pub fn render<T: Serialize>(
        self,
        value: &T,
        table: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<String> {
        match self {
            Self::Table => Ok(table(value)),
            Self::Json => {
                let mut json = serde_json::to_string_pretty(value).context("cannot write JSON")?;
                json.push('\n');
                Ok(json)
            }
            Self::Yaml => serde_saphyr::to_string(value).context("cannot write YAML"),
        }
    }
}
