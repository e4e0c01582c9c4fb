//! Walks the tokens of a source: paths that start at the crate, and items that only tests have.
//!
//! Tokens instead of a syntax tree, since they reach into macro calls.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The references of a source outside its tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct References {
    /// First segments of paths from the crate's root.
    pub(super) names: BTreeSet<String>,
    /// Modules declared for tests alone.
    pub(super) test_modules: BTreeSet<String>,
}

/// First words of items. Before another word, `#[cfg(test)]` covers a field, a variant or an arm.
const ITEMS: [&str; 15] = [
    "pub",
    "fn",
    "mod",
    "use",
    "struct",
    "enum",
    "impl",
    "const",
    "static",
    "trait",
    "type",
    "async",
    "unsafe",
    "extern",
    "macro_rules",
];

/// Collects the references of a module at this depth: 0 is the crate's root, 1 is `mod a`.
pub(super) fn references(tokens: TokenStream, depth: usize) -> References {
    let mut found = References::default();
    walk(tokens, depth, &mut found);
    found
}

fn walk(tokens: TokenStream, depth: usize, found: &mut References) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                let Some(attribute) = group(&tokens, at + 1, Delimiter::Bracket) else {
                    at += 1;
                    continue;
                };
                at = if is_for_tests(attribute) {
                    skip_item(&tokens, at + 2, found)
                } else {
                    at + 2
                };
            }
            TokenTree::Ident(word) if *word == "pub" => {
                let restricted = group(&tokens, at + 1, Delimiter::Parenthesis).is_some();
                at += if restricted { 2 } else { 1 };
            }
            TokenTree::Ident(word) if *word == "mod" => {
                match group(&tokens, at + 2, Delimiter::Brace) {
                    Some(body) => {
                        walk(body.stream(), depth + 1, found);
                        at += 3;
                    }
                    None => at += 1,
                }
            }
            TokenTree::Ident(word) if *word == "crate" && is_path(&tokens, at + 1) => {
                first_names(&tokens, at + 3, found);
                at += 3;
            }
            TokenTree::Ident(word) if *word == "super" => {
                let mut climbed = 0;
                while ident(&tokens, at).is_some_and(|it| it == "super") && is_path(&tokens, at + 1)
                {
                    climbed += 1;
                    at += 3;
                }
                if climbed == 0 {
                    at += 1;
                } else if climbed == depth {
                    first_names(&tokens, at, found);
                }
            }
            TokenTree::Group(inner) => {
                walk(inner.stream(), depth, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Collects the first segments of the path or the group of paths at `at`.
fn first_names(tokens: &[TokenTree], at: usize, found: &mut References) {
    if let Some(name) = ident(tokens, at) {
        found.names.insert(name);
    } else if let Some(names) = group(tokens, at, Delimiter::Brace) {
        let inner: Vec<TokenTree> = names.stream().into_iter().collect();
        for branch in inner.split(is_comma) {
            first_names(branch, 0, found);
        }
    }
}

/// The names that a crate's root imports, each with its module.
pub(super) fn root_names(tokens: TokenStream) -> Vec<(String, String)> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !matches!(token, TokenTree::Ident(word) if *word == "use") {
            continue;
        }
        let is_end =
            |token: &TokenTree| matches!(token, TokenTree::Punct(it) if it.as_char() == ';');
        let end = tokens[at..].iter().position(is_end).map_or(tokens.len(), |end| at + end);
        let mut start = at + 1;
        while ident(&tokens, start).is_some_and(|it| it == "self" || it == "crate") {
            start += 3;
        }
        if let Some(module) = ident(&tokens, start) {
            let mut names = Vec::new();
            leaves(&tokens[start..end], &mut names);
            found.extend(names.into_iter().map(|name| (name, module.clone())));
        }
    }
    found
}

/// Collects the last segments of a tree of paths.
fn leaves(tokens: &[TokenTree], names: &mut Vec<String>) {
    for branch in tokens.split(is_comma) {
        match branch.last() {
            Some(TokenTree::Ident(name)) => names.push(name.to_string()),
            Some(TokenTree::Group(inner)) => {
                leaves(&inner.stream().into_iter().collect::<Vec<_>>(), names);
            }
            _ => {}
        }
    }
}

/// The index after the item or field that starts at `at`.
fn skip_item(tokens: &[TokenTree], mut at: usize, found: &mut References) -> usize {
    while matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == '#') {
        at += 2;
    }
    let is_item = ident(tokens, at).is_some_and(|word| ITEMS.contains(&word.as_str()));
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Ident(word) if *word == "mod" => {
                found.test_modules.extend(ident(tokens, at))
            }
            TokenTree::Punct(it) if it.as_char() == ';' => return at,
            TokenTree::Punct(it) if it.as_char() == ',' && !is_item => return at,
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => return at,
            _ => {}
        }
    }
    at
}

fn is_for_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    text.starts_with("cfg(test") || text.starts_with("cfg(all(test") || text == "test"
}

/// The names of all tests in a source, also those in macro calls.
pub(super) fn tests(tokens: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    let mut is_next = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                let attribute = group(&tokens, at + 1, Delimiter::Bracket);
                is_next |= attribute.is_some_and(makes_a_test);
            }
            TokenTree::Ident(word) if *word == "fn" && is_next => {
                is_next = false;
                found.extend(ident(&tokens, at + 1));
            }
            TokenTree::Group(inner) => found.extend(tests(inner.stream())),
            _ => {}
        }
    }
    found
}

/// Whether an attribute's path ends with `test` or `rstest`.
fn makes_a_test(attribute: &Group) -> bool {
    let path =
        attribute.stream().into_iter().take_while(|token| !matches!(token, TokenTree::Group(_)));
    let last = path.filter(|token| matches!(token, TokenTree::Ident(_))).last();
    last.is_some_and(|word| ["test", "rstest"].contains(&word.to_string().as_str()))
}

fn ident(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

fn group(tokens: &[TokenTree], at: usize, delimiter: Delimiter) -> Option<&Group> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn is_path(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1))
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',')
}

#[cfg(test)]
mod tests_of_tokens {
    use super::*;

    fn names(text: &str, depth: usize) -> Vec<String> {
        references(text.parse().unwrap(), depth).names.into_iter().collect()
    }

    #[test]
    fn paths_from_the_root_are_found() {
        for (case, text, depth, expected) in [
            ("a use", "use crate::a::B;", 1, &["a"][..]),
            ("a group", "use crate::{a::{B, C}, d, E};", 1, &["E", "a", "d"]),
            ("super of a top module", "use super::a::B;", 1, &["a"]),
            ("super inside a module", "use super::a::B;", 2, &[]),
            ("an inline module", "mod x { use super::super::a; }", 1, &["a"]),
            ("a macro call", "say!(\"{}\", crate::a::B)", 1, &["a"]),
            ("a visibility", "pub(in crate::a) fn f() {}", 1, &[]),
            (
                "a test module",
                "#[cfg(test)] mod tests { use crate::a; } fn f() { crate::b::g() }",
                1,
                &["b"],
            ),
            (
                "a field for tests",
                "struct S { #[cfg(test)] a: crate::a::T, b: crate::b::T }",
                1,
                &["b"],
            ),
        ] {
            assert_eq!(names(text, depth), expected, "{case}");
        }
    }

    #[test]
    fn modules_for_tests_are_named() {
        let found = references("#[cfg(test)] pub(crate) mod samples; mod b;".parse().unwrap(), 0);
        assert_eq!(found.test_modules, ["samples".to_owned()].into());
    }

    #[test]
    fn root_names_lead_to_their_modules() {
        let text = "pub use self::a::{B, c::D as E}; use f::G; pub use h::*;";
        let found = root_names(text.parse().unwrap());
        let expected = [("B", "a"), ("E", "a"), ("G", "f")];
        assert_eq!(found, expected.map(|(name, module)| (name.to_owned(), module.to_owned())));
    }

    #[test]
    fn tests_are_found_by_their_attribute() {
        let text = "#[test] fn one() {} #[tokio::test(flavor = \"x\")] async fn two() {} fn no() {}
            each! { #[test] fn three(x in 0..1) {} } #[rstest] #[case(1)] fn four() {}";
        assert_eq!(tests(text.parse().unwrap()), ["one", "two", "three", "four"]);
    }
}
