//! Colours in texts that are whole: facts such as `State: Running`, tables with a column STATE, and
//! the lines of a check.

use clap::ValueEnum as _;

use crate::color::{Color, ColorChoice};
use crate::job_row::JobState;

/// Facts whose value begins with a state.
const FACTS: [&str; 3] = ["State:", "Connected:", "Verdict:"];
/// The column with a state.
const COLUMN: &str = "STATE";

/// Colours the outcomes at the beginning of a check's lines.
pub(crate) fn outcomes(choice: ColorChoice, text: &str) -> String {
    const WORDS: [(&str, Color); 3] =
        [("ok", Color::Good), ("warning", Color::Waiting), ("FAILURE", Color::Bad)];
    by_line(
        text,
        |line| {
            let rest = line.strip_prefix("  ")?;
            let (word, color) = WORDS.iter().find(|(word, _)| {
                rest.strip_prefix(word).is_some_and(|after| after.starts_with(' '))
            })?;
            Some((2, word.len(), *color))
        },
        choice,
    )
}

/// Colours states in facts and tables.
pub(crate) fn states(choice: ColorChoice, text: &str) -> String {
    // Where the column is, in characters, until the table ends.
    let mut column = None;
    by_line(
        text,
        |line| {
            if let Some(fact) = FACTS.iter().find(|fact| line.starts_with(**fact)) {
                let value = line.get(fact.len()..)?;
                let start = fact.len() + value.len() - value.trim_start().len();
                let word = word(line.get(start..)?);
                return Some((start, word.len(), of_fact(word)));
            }
            if let Some(at) = heading(line) {
                column = Some(at);
                return None;
            }
            if line.is_empty() {
                column = None;
            }
            let (start, _) = line.char_indices().nth(column?)?;
            let word = word(line.get(start..)?);
            Some((start, word.len(), of_state(word)?))
        },
        choice,
    )
}

/// Where the heading of the column begins, in characters.
fn heading(line: &str) -> Option<usize> {
    if line.chars().any(char::is_lowercase) {
        return None;
    }
    let (at, _) = line.match_indices(COLUMN).find(|(at, _)| {
        let is_bound = |it: Option<char>| it.is_none_or(char::is_whitespace);
        let before = line.get(..*at).and_then(|it| it.chars().next_back());
        let after = line.get(at + COLUMN.len()..).and_then(|it| it.chars().next());
        is_bound(before) && is_bound(after)
    })?;
    line.get(..at).map(|before| before.chars().count())
}

/// Letters up to a space or a mark.
fn word(text: &str) -> &str {
    text.split(|it: char| !it.is_alphanumeric()).next().unwrap_or_default()
}

/// The colour of a fact's first word. A queue names why it is stopped.
fn of_fact(word: &str) -> Color {
    of_state(word).unwrap_or(match word {
        "yes" | "Active" => Color::Good,
        _ => Color::Bad,
    })
}

/// The colour of a job's or an admission check's state.
fn of_state(word: &str) -> Option<Color> {
    let of_check = match word {
        "Ready" => Some(Color::Good),
        "Retry" => Some(Color::Waiting),
        "Rejected" => Some(Color::Bad),
        _ => None,
    };
    JobState::from_str(word, false).ok().map(JobState::color).or(of_check)
}

/// Colours one part of each line for which `part` gives it: start, length, colour.
fn by_line(
    text: &str,
    mut part: impl FnMut(&str) -> Option<(usize, usize, Color)>,
    choice: ColorChoice,
) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end_matches('\n');
        let painted = part(bare).and_then(|(start, length, color)| {
            let (before, word) = (line.get(..start)?, line.get(start..start + length)?);
            let after = line.get(start + length..)?;
            Some(format!("{before}{}{after}", choice.paint(color, word)))
        });
        match painted {
            Some(painted) => out.push_str(&painted),
            None => out.push_str(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colours as marks that are easy to read.
    fn shown(painted: &str) -> String {
        [("\x1b[31m", "<bad "), ("\x1b[32m", "<good "), ("\x1b[33m", "<wait "), ("\x1b[0m", ">")]
            .iter()
            .fold(painted.to_owned(), |text, (code, mark)| text.replace(code, mark))
    }

    #[test]
    fn outcomes_of_a_check_are_coloured() {
        let text = "Cluster: hub\n  ok       crds: okay\n  warning  clocks: ok\n  FAILURE  pods: a\n           mend: b\n";
        assert_eq!(
            shown(&outcomes(ColorChoice::Always, text)),
            "Cluster: hub\n  <good ok>       crds: okay\n  <wait warning>  clocks: ok\n  <bad FAILURE>  pods: a\n           mend: b\n"
        );
        assert_eq!(outcomes(ColorChoice::Never, text), text);
    }

    #[test]
    fn states_in_facts_and_tables_are_coloured() {
        let text = "Job:       team/train\nState:     Running\nConnected: no, for 5m\nVerdict:   Pending: it waits\n\n\
            JOB           PRIORITY   STATE       CLUSTER\n\
            team/größe    0          Failed      east\n\
            team/Running  0          Succeeded   east\n\n\
            AGE    CONDITION   STATUS   REASON\n\
            5m0s   Failed      True     Running\n";
        insta::assert_snapshot!(shown(&states(ColorChoice::Always, text)), @r"
        Job:       team/train
        State:     <good Running>
        Connected: <bad no>, for 5m
        Verdict:   <wait Pending>: it waits

        JOB           PRIORITY   STATE       CLUSTER
        team/größe    0          <bad Failed>      east
        team/Running  0          <good Succeeded>   east

        AGE    CONDITION   STATUS   REASON
        5m0s   Failed      True     Running
        ");
        assert_eq!(states(ColorChoice::Never, text), text);
    }

    #[test]
    fn stopped_queue_is_bad_and_an_active_one_good() {
        for (text, expected) in [
            ("State: HoldAndDrain\n", "State: <bad HoldAndDrain>\n"),
            ("State: Active", "State: <good Active>"),
        ] {
            assert_eq!(shown(&states(ColorChoice::Always, text)), expected);
        }
    }
}
