//! Reads constants with their doc comments from a Rust source.

/// A constant of type `&str`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) value: String,
    /// The doc comment in one line.
    pub(super) doc: String,
}

/// A section of a source: its heading and its constants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    /// Text of a comment `// --- TEXT`, or the doc comment of a module.
    pub(super) heading: String,
    pub(super) constants: Vec<Constant>,
}

/// The public constants of a source, by section. A section begins at a comment `// ---` or at a module.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let new = |heading: String| Section { heading, constants: Vec::new() };
    let mut sections = vec![new(String::new())];
    let mut doc: Vec<&str> = Vec::new();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix("///") {
            doc.push(words.trim());
            continue;
        }
        if let Some(heading) = line.strip_prefix("// ---") {
            sections.push(new(heading.trim().trim_end_matches('.').to_owned()));
        } else if line.starts_with("pub mod ") && line.ends_with('{') {
            sections.push(new(doc.join(" ")));
        } else if let Some(rest) = line.strip_prefix("pub const ")
            && let Some((name, rest)) = rest.split_once(": &str =")
        {
            // A long value stands in the next line.
            let rest = if rest.trim().is_empty() { lines.next().unwrap_or_default() } else { rest };
            let value = rest.split('"').nth(1).unwrap_or_default();
            let constant =
                Constant { name: name.to_owned(), value: value.to_owned(), doc: doc.join(" ") };
            if let Some(section) = sections.last_mut() {
                section.constants.push(constant);
            }
        }
        doc.clear();
    }
    sections.retain(|section| !section.constants.is_empty());
    sections
}

/// Replaces links such as `` [`NAME`] `` and `` [`super::NAME`] `` by the text that `of` returns for
/// NAME, as code.
pub(super) fn without_links(text: &str, of: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, after)) = after.split_once("`]") else { break };
        let last = name.rsplit("::").next().unwrap_or(name);
        out.push_str(before);
        out.push_str(&format!("`{}`", of(last).unwrap_or_else(|| name.to_owned())));
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_read_with_comments_and_sections() {
        let text = "// --- On jobs.\n\n/// Label: the\n/// queue.\npub const QUEUE: &str = \"x/queue\";\n\
                    /// See [`QUEUE`].\npub const LONG: &str =\n    \"x/long\";\n/// Reasons.\npub mod a {\n    /// True.\n    \
                    pub const YES: &str = \"Yes\";\n    pub const N: usize = 1;\n}\n";
        let found = sections(text);
        let of = |at: usize| -> Vec<(&str, &str)> {
            found[at].constants.iter().map(|it| (it.value.as_str(), it.doc.as_str())).collect()
        };
        assert_eq!(found[0].heading, "On jobs");
        assert_eq!(of(0), [("x/queue", "Label: the queue."), ("x/long", "See [`QUEUE`].")]);
        assert_eq!(found[1].heading, "Reasons.");
        assert_eq!(of(1), [("Yes", "True.")]);
        assert_eq!(
            without_links("See [`super::QUEUE`], [`x`].", |name| {
                (name == "QUEUE").then(|| "x/queue".to_owned())
            }),
            "See `x/queue`, `x`."
        );
    }
}
