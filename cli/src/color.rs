//! Colour on terminals.

use clap::ValueEnum;

/// When states are coloured.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal. The program resolves this; the library, which does not know where its text goes, uses no colours.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    /// Replaces `Auto`: `Always` on a terminal, unless $NO_COLOR is set, else `Never`.
    #[must_use]
    pub fn resolved(self, is_terminal: bool) -> Self {
        let is_wanted = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        match self {
            Self::Auto if is_wanted => Self::Always,
            Self::Auto => Self::Never,
            decided => decided,
        }
    }

    /// The text in this colour, if colours are on.
    #[must_use]
    pub fn paint(self, color: Color, text: &str) -> String {
        if self != Self::Always || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", color.code())
    }
}

/// Meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// As it should be.
    Good,
    /// It waits.
    Waiting,
    /// Something is wrong.
    Bad,
}

impl Color {
    const fn code(self) -> u8 {
        match self {
            Self::Good => 32,
            Self::Waiting => 33,
            Self::Bad => 31,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_without_a_terminal_leaves_text() {
        let never = ColorChoice::Auto.resolved(false);
        assert_eq!(never.paint(Color::Bad, "Failed"), "Failed");
        let always = ColorChoice::Always.resolved(false);
        assert_eq!(always.paint(Color::Bad, "Failed"), "\x1b[31mFailed\x1b[0m");
    }
}
