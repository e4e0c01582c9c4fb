//! How results are written.

use anyhow::Context as _;
use serde::Serialize;

/// A table for people, JSON or YAML for programs.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// A table.
    #[default]
    Table,
    /// JSON. Fields are only ever added.
    Json,
    /// YAML, with the same fields.
    Yaml,
}

impl Output {
    /// The value as JSON, as YAML, or as `table` renders it.
    ///
    /// # Errors
    /// Never for the types used here.
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
