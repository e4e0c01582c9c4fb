//! Makes `docs/values.md`: values of the chart, from its `values.yaml`.

use super::{head, read, table};

const SOURCE: &str = "deploy/charts/switchyard/values.yaml";

pub(super) fn page() -> anyhow::Result<String> {
    let mut out = head(
        "Chart values",
        "This page is for administrators. It lists every value of the Helm chart with its default. `values.schema.json` refuses\n\
         unknown values at install time.\n",
    );
    let values = values(&read(SOURCE)?);
    let rows: Vec<[String; 3]> = values
        .iter()
        .map(|it| {
            let default =
                if it.default.is_empty() { String::new() } else { format!("`{}`", it.default) };
            [format!("`{}`", it.path), default, meaning(it, &values)]
        })
        .collect();
    out.push_str(&table(["value", "default", "meaning"], &rows));
    Ok(out)
}

#[derive(Debug, PartialEq, Eq)]
struct ChartValue {
    path: String,
    /// Empty for a section.
    default: String,
    text: String,
}

/// The comment of a value, or a word about where to find its meaning: its section, else Kubernetes.
fn meaning(value: &ChartValue, all: &[ChartValue]) -> String {
    if !value.text.is_empty() {
        return value.text.clone();
    }
    if value.path.ends_with(".enabled") {
        return "Whether the chart makes it.".to_owned();
    }
    let mut section = value.path.as_str();
    while let Some((outer, _)) = section.rsplit_once('.') {
        section = outer;
        if all.iter().any(|it| it.path == section && !it.text.is_empty()) {
            return format!("See `{section}`.");
        }
    }
    "Kubernetes' field of this name.".to_owned()
}

/// All keys of a YAML file of mappings, with the comments before them. Keys inside a flow mapping,
/// a list or a block of text are not listed.
fn values(text: &str) -> Vec<ChartValue> {
    let mut found = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    // Indentations and names of the sections around the line.
    let mut around: Vec<(usize, &str)> = Vec::new();
    // Lines indented deeper than this belong to a block of text or a list.
    let mut block: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if block.is_some_and(|of| indent > of && !line.is_empty()) {
            continue;
        }
        block = None;
        if let Some(words) = line.strip_prefix('#') {
            comment.push(words.trim().trim_start_matches("-- "));
            continue;
        }
        let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with('-')) else {
            comment.clear();
            continue;
        };
        around.retain(|(of, _)| *of < indent);
        around.push((indent, key));
        let value = value.trim();
        if value.starts_with('|') {
            block = Some(indent);
        }
        let names: Vec<&str> = around.iter().map(|(_, name)| *name).collect();
        let value = if value.starts_with('|') { "" } else { value };
        let text = comment.join(" ");
        if !(value.is_empty() && text.is_empty()) {
            found.push(ChartValue { path: names.join("."), default: value.to_owned(), text });
        }
        comment.clear();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_without_a_comment_refers_to_its_section_or_kubernetes() {
        let all = values("a:\n  # -- The Service.\n  b:\n    type: X\n  c:\n    d: 1\n");
        let meanings: Vec<String> = all.iter().map(|it| meaning(it, &all)).collect();
        assert_eq!(meanings, ["The Service.", "See `a.b`.", "Kubernetes' field of this name."]);
    }

    #[test]
    fn values_are_read_with_path_default_and_comment() {
        let text = "# About the chart.\n\n# -- How.\nmode: single\na:\n  # -- Text\n  # in two lines.\n  b: [1]\n  c:\n    d: \"\"\n\
                    # -- A file.\nfile: |-\n  x: 1\n  y: 2\nlast: {}\n";
        let found: Vec<(String, String, String)> =
            values(text).into_iter().map(|it| (it.path, it.default, it.text)).collect();
        let row = |path: &str, default: &str, text: &str| {
            (path.to_owned(), default.to_owned(), text.to_owned())
        };
        assert_eq!(
            found,
            [
                row("mode", "single", "How."),
                row("a.b", "[1]", "Text in two lines."),
                row("a.c.d", "\"\"", ""),
                row("file", "", "A file."),
                row("last", "{}", ""),
            ]
        );
    }
}
