//! Numbers and booleans in text. Errors have the words of Go's parsers, as Kueue's do.

use std::num::IntErrorKind;

use super::JobError;

/// A number of pods. `pointer` is the JSON pointer of its field.
///
/// # Errors
/// [`JobError::Malformed`] if it is negative or above 32 bits.
pub(super) fn pods(count: i64, pointer: &str) -> Result<i32, JobError> {
    i32::try_from(count).ok().filter(|count| *count >= 0).ok_or_else(|| {
        let problem = format!("gives {count} pods; must be between 0 and {}", i32::MAX);
        JobError::malformed(pointer, problem)
    })
}

/// Parses a whole number.
///
/// # Errors
/// The error of Go's `strconv.Atoi`.
pub(super) fn whole(text: &str) -> Result<i32, String> {
    whole_by("Atoi", text)
}

/// Parses a 32-bit number.
///
/// # Errors
/// The error of Go's `strconv.ParseInt`.
pub(super) fn int32(text: &str) -> Result<i32, String> {
    whole_by("ParseInt", text)
}

fn whole_by(function: &str, text: &str) -> Result<i32, String> {
    let problem = |error: std::num::ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    text.parse()
        .map_err(|error| format!("strconv.{function}: parsing {text:?}: {}", problem(error)))
}

/// Parses a boolean in the spellings of Go's `strconv.ParseBool`.
///
/// # Errors
/// The error of `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(parse_bool_error(text)),
    }
}

/// The error of Go's `strconv.ParseBool`.
pub(super) fn parse_bool_error(text: &str) -> String {
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
        assert_eq!(
            refused("99999999999"),
            r#"strconv.Atoi: parsing "99999999999": value out of range"#
        );
    }
}
