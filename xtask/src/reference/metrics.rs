//! `docs/metric-families.md`: all families of metrics. A cluster test compares types and labels with
//! live programs; the meanings are the help texts in the sources.

use std::fs;
use std::path::Path;
use std::str::FromStr as _;

use anyhow::{Context, bail};
use proc_macro2::{TokenStream, TokenTree};
use switchyard_pages::metrics::{FAMILIES, Family, LATER, OWN};

use super::{head, table};
use crate::run;

/// The crates that register metrics.
const SOURCES: [&str; 4] = ["controller/src", "hub/src", "worker-agent/src", "platform/src"];

pub(super) fn page() -> anyhow::Result<String> {
    let helps = Helps::read()?;
    let mut out = head(
        "Metric families",
        "This page is for operators. It lists every family that the programs show, by the name that queries use. `all` means hub,\n\
         agents and single mode. [Metrics](metrics.md) says where they are served and how Kueue's differ, and lists the alerts.",
    );
    out.push_str("\n## Switchyard's families\n\n");
    let own: Vec<&Family> = OWN.iter().map(|(family, _)| family).collect();
    out.push_str(&families(&own, &helps)?);
    out.push_str(
        "\n## Kueue's families\n\nNames, types and labels are those of Kueue v0.19.2. All have the label `replica_role` too, except \
         for the version.\n\n",
    );
    out.push_str(&families(&FAMILIES.iter().collect::<Vec<_>>(), &helps)?);
    out.push_str("\n## Families of later versions of Kueue\n\n");
    out.push_str(&families(&LATER.iter().collect::<Vec<_>>(), &helps)?);
    Ok(out)
}

fn families(families: &[&Family], helps: &Helps) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for family in families {
        let labels: Vec<String> = family.labels.iter().map(|it| format!("`{it}`")).collect();
        rows.push([
            format!("`{}`", family.name),
            family.kind.as_str().to_owned(),
            labels.join(", "),
            family.unit().to_owned(),
            family.shown_by().as_str().to_owned(),
            helps.of(family.name)?,
        ]);
    }
    rows.sort();
    Ok(table(["family", "type", "labels", "unit", "program", "meaning"], &rows))
}

/// Pairs of a name and its help text, in the order of the sources.
struct Helps(Vec<(String, String)>);

impl Helps {
    fn read() -> anyhow::Result<Self> {
        let mut found = Self(Vec::new());
        for dir in SOURCES {
            found.add_dir(&run::root().join(dir))?;
        }
        Ok(found)
    }

    fn add_dir(&mut self, dir: &Path) -> anyhow::Result<()> {
        let entries =
            fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        let mut paths: Vec<_> =
            entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
        paths.sort();
        for path in paths {
            if path.is_dir() {
                self.add_dir(&path)?;
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let tokens = TokenStream::from_str(&text)
                    .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
                self.add(tokens);
            }
        }
        Ok(())
    }

    /// Adds each pair of literals that a comma separates. A variable `help` stands for the literal
    /// before the name.
    fn add(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut last_help: Option<String> = None;
        for (at, token) in tokens.iter().enumerate() {
            if let TokenTree::Group(group) = token {
                if let (Some(help), Some(name)) = (&last_help, name_before_help(group.stream())) {
                    self.0.push((name, help.clone()));
                }
                self.add(group.stream());
                continue;
            }
            let Some(literal) = text_of(token) else { continue };
            let is_comma =
                matches!(tokens.get(at + 1), Some(TokenTree::Punct(it)) if it.as_char() == ',');
            match tokens.get(at + 2).and_then(text_of) {
                Some(help) if is_comma => self.0.push((literal, help)),
                _ => last_help = Some(literal),
            }
        }
    }

    fn of(&self, family: &str) -> anyhow::Result<String> {
        let base = family.strip_suffix("_total").unwrap_or(family);
        let find = |name: &str, last: bool| {
            // A help text is a sentence; other pairs are names and values.
            let is_help = |help: &str| help.starts_with(|it: char| it.is_ascii_uppercase());
            let mut all = self.0.iter().filter(|(known, help)| known == name && is_help(help));
            let found = if last { all.next_back() } else { all.next() };
            found.map(|(_, help)| help.clone())
        };
        let full = || find(base, false);
        // Registries add prefixes. LocalQueues are registered after ClusterQueues.
        let prefixes = [
            ("kueue_local_queue_", true),
            ("kueue_", false),
            ("switchyard_agent_", false),
            ("switchyard_", false),
        ];
        let short = || {
            let mut all = prefixes.iter();
            all.find_map(|(prefix, last)| find(base.strip_prefix(prefix)?, *last))
        };
        // A gauge's source has its full name, also where a counter has that name and `_total`.
        let found = if base == family { full().or_else(short) } else { short().or_else(full) };
        if let Some(help) = found {
            return Ok(help);
        }
        bail!("no source has a help text for {family}")
    }
}

/// The literal before a variable `help` in the arguments of a call.
fn name_before_help(tokens: TokenStream) -> Option<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let at = tokens.iter().position(|it| matches!(it, TokenTree::Ident(name) if name == "help"))?;
    at.checked_sub(2).and_then(|before| tokens.get(before)).and_then(text_of)
}

/// The text of a string literal without escapes.
fn text_of(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    let text = literal.to_string();
    Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_texts_are_found_beside_their_names() {
        let source = "fn f() { r.register(\"a\", \"The first\", x); let help = \"The second\"; \
                      add(e, \"switchyard_b\", help); for (n, h) in [(\"c\", \"Of queues\"), (\"c\", \"Of local ones\")] {} }";
        let mut helps = Helps(Vec::new());
        helps.add(TokenStream::from_str(source).unwrap());
        let of = |name: &str| helps.of(name).ok();
        assert_eq!(of("kueue_a_total").as_deref(), Some("The first"));
        assert_eq!(of("switchyard_b").as_deref(), Some("The second"));
        assert_eq!(of("kueue_c").as_deref(), Some("Of queues"));
        assert_eq!(of("kueue_local_queue_c").as_deref(), Some("Of local ones"));
        assert_eq!(of("kueue_d"), None);
    }
}
