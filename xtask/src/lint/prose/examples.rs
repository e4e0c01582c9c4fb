//! The page of examples: each rule has a section with sentences that it finds and sentences that no rule finds.

use std::collections::BTreeSet;

/// The list that an example belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Finds,
    Leaves,
}

/// Examples that the findings contradict; `found` has lines and rules.
pub(super) fn problems(text: &str, found: &BTreeSet<(u64, String)>) -> Vec<String> {
    let mut problems = Vec::new();
    let (mut rule, mut list) = ("", None);
    for (number, line) in (1..).zip(text.lines()) {
        match line {
            "Finds:" => list = Some(List::Finds),
            "Leaves:" => list = Some(List::Leaves),
            _ => {}
        }
        if let Some(heading) = line.strip_prefix("## ") {
            (rule, list) = (heading, None);
        }
        if !line.starts_with("- ") && !line.starts_with("### ") {
            continue;
        }
        let here: Vec<&str> =
            found.iter().filter(|(at, _)| *at == number).map(|(_, rule)| rule.as_str()).collect();
        match list {
            Some(List::Finds) if !here.contains(&rule) => {
                problems.push(format!("line {number}: {rule} does not find: {line}"));
            }
            Some(List::Leaves) if !here.is_empty() => {
                problems.push(format!("line {number}: {} finds: {line}", here.join(", ")));
            }
            _ => {}
        }
    }
    problems
}

/// Rules without a section.
pub(super) fn missing(text: &str, rules: &[String]) -> Vec<String> {
    let has = |rule: &String| text.lines().any(|line| line.strip_prefix("## ") == Some(rule));
    rules.iter().filter(|rule| !has(rule)).map(|rule| format!("{rule} has no section")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "## Words\nFinds:\n- bad\n- worse\nLeaves:\n- good\n";

    #[test]
    fn contradicted_examples_are_problems() {
        let found = |lines: &[(u64, &str)]| {
            lines.iter().map(|(line, rule)| (*line, (*rule).to_owned())).collect::<BTreeSet<_>>()
        };
        assert_eq!(problems(PAGE, &found(&[(3, "Words"), (4, "Words")])), Vec::<String>::new());
        let problems = problems(PAGE, &found(&[(3, "Words"), (4, "Other"), (6, "Other")]));
        assert_eq!(
            problems,
            ["line 4: Words does not find: - worse", "line 6: Other finds: - good"]
        );
    }

    #[test]
    fn rule_without_a_section_is_missing() {
        assert_eq!(missing(PAGE, &["Words".into(), "Plain".into()]), ["Plain has no section"]);
    }
}
