//! Numbers and switches that are given as text, and what Kueue says of those that are none: in Go's words.

use std::num::IntErrorKind;

/// The whole number.
///
/// # Errors
/// What Go's `strconv.Atoi` says.
pub(super) fn whole(text: &str) -> Result<i32, String> {
    let problem = |error: std::num::ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    text.parse().map_err(|error| format!("strconv.Atoi: parsing {text:?}: {}", problem(error)))
}

/// What Go's `strconv.ParseBool` says of a text that is no switch.
pub(super) fn no_switch(text: &str) -> String {
    format!("strconv.ParseBool: parsing {text:?}: invalid syntax")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_refused_as_go_does() {
        assert_eq!([whole("5"), whole("+5"), whole("-5")], [Ok(5), Ok(5), Ok(-5)]);
        let refused = |text: &str| whole(text).unwrap_err();
        assert_eq!(refused("1h"), r#"strconv.Atoi: parsing "1h": invalid syntax"#);
        assert_eq!(refused(""), r#"strconv.Atoi: parsing "": invalid syntax"#);
        assert_eq!(refused("99999999999"), r#"strconv.Atoi: parsing "99999999999": value out of range"#);
    }
}
