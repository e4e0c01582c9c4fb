//! `docs/metric-families.md`: all families of metrics. A cluster test compares types and labels with
//! live programs; the meanings are the help texts in the sources.

use std::collections::BTreeSet;
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
    let unlisted = helps.unlisted();
    if !unlisted.is_empty() {
        bail!(
            "the sources register families that xtask/pages/src/metrics.rs does not list: {}",
            unlisted.join(", ")
        );
    }
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

/// Prefixes that registries add to names, and whether the last help text of a name is meant.
/// LocalQueues are registered after ClusterQueues.
const PREFIXES: [(&str, bool); 4] = [
    ("kueue_local_queue_", true),
    ("kueue_", false),
    ("switchyard_agent_", false),
    ("switchyard_", false),
];

/// Names and help texts in the sources.
#[derive(Default)]
struct Helps {
    /// Pairs of a name and its help text, in the order of the sources.
    pairs: Vec<(String, String)>,
    /// The first arguments of calls that register or encode a family.
    registered: Vec<String>,
}

impl Helps {
    fn read() -> anyhow::Result<Self> {
        let mut found = Self::default();
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
                    self.pairs.push((name, help.clone()));
                }
                let called = at.checked_sub(1).and_then(|before| tokens.get(before));
                let is_call = matches!(called, Some(TokenTree::Ident(name))
                    if name == "register" || name == "encode_descriptor");
                let first = group.stream().into_iter().next();
                self.registered.extend(first.filter(|_| is_call).and_then(|first| text_of(&first)));
                self.add(group.stream());
                continue;
            }
            let Some(literal) = text_of(token) else { continue };
            let is_comma =
                matches!(tokens.get(at + 1), Some(TokenTree::Punct(it)) if it.as_char() == ',');
            match tokens.get(at + 2).and_then(text_of) {
                Some(help) if is_comma => self.pairs.push((literal, help)),
                _ => last_help = Some(literal),
            }
        }
    }

    /// Names of families that no list has, each once. A name with a help text of several words
    /// counts as a family's.
    fn unlisted(&self) -> Vec<String> {
        let documented = FAMILIES.iter().chain(LATER).chain(OWN.iter().map(|(family, _)| family));
        let bases: BTreeSet<&str> = documented
            .map(|family| family.name.strip_suffix("_total").unwrap_or(family.name))
            .collect();
        let is_listed = |name: &str| {
            let has_base = |prefix: &str| bases.contains(format!("{prefix}{name}").as_str());
            has_base("") || PREFIXES.iter().any(|(prefix, _)| has_base(prefix))
        };
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|it| it.is_ascii_lowercase() || it == '_' || it.is_ascii_digit())
        };
        let is_sentence = |help: &str| is_help(help) && help.contains(' ') && !help.contains('\\');
        let paired = self.pairs.iter().filter(|(_, help)| is_sentence(help)).map(|(name, _)| name);
        let all: BTreeSet<&String> = self.registered.iter().chain(paired).collect();
        all.into_iter().filter(|name| is_name(name) && !is_listed(name)).cloned().collect()
    }

    fn of(&self, family: &str) -> anyhow::Result<String> {
        let base = family.strip_suffix("_total").unwrap_or(family);
        let find = |name: &str, last: bool| {
            let mut all = self.pairs.iter().filter(|(known, help)| known == name && is_help(help));
            let found = if last { all.next_back() } else { all.next() };
            found.map(|(_, help)| help.clone())
        };
        let full = || find(base, false);
        let short = || {
            let mut all = PREFIXES.iter();
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

/// Whether a text is a help text: a sentence. Other pairs are names and values.
fn is_help(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_uppercase())
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
        let mut helps = Helps::default();
        helps.add(TokenStream::from_str(source).unwrap());
        let of = |name: &str| helps.of(name).ok();
        assert_eq!(of("kueue_a_total").as_deref(), Some("The first"));
        assert_eq!(of("switchyard_b").as_deref(), Some("The second"));
        assert_eq!(of("kueue_c").as_deref(), Some("Of queues"));
        assert_eq!(of("kueue_local_queue_c").as_deref(), Some("Of local ones"));
        assert_eq!(of("kueue_d"), None);
    }

    #[test]
    fn family_without_a_row_is_found() {
        let source = "fn f() { r.register(\"new_one\", HELP, x); r.register(\"events_dropped\", \"Events\", x); \
                      add(e, \"switchyard_other\", \"A new family\"); with(\"batch\", \"Job\"); log(\"Not a name\", \"It is one\"); }";
        let mut helps = Helps::default();
        helps.add(TokenStream::from_str(source).unwrap());
        assert_eq!(helps.unlisted(), ["new_one", "switchyard_other"]);
        assert_eq!(Helps::read().unwrap().unlisted(), [""; 0]);
    }
}
