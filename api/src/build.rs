//! Version, commit and date of a program's build.

use std::sync::LazyLock;

/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of the build. Empty if the build did not know it.
pub const COMMIT: &str = match option_env!("SWITCHYARD_GIT_COMMIT") {
    Some(commit) => commit,
    None => "",
};

/// Time of the commit, or of the build if the commit is unknown. Empty if neither is known.
pub const DATE: &str = match option_env!("SWITCHYARD_BUILD_DATE") {
    Some(date) => date,
    None => "",
};

/// The text of `--version` after the program's name: the version, with commit and date if known.
#[must_use]
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| describe(VERSION, COMMIT, DATE));
    &TEXT
}

fn describe(version: &str, commit: &str, date: &str) -> String {
    let known: Vec<String> = [("commit ", commit), ("", date)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(title, value)| format!("{title}{value}"))
        .collect();
    if known.is_empty() { version.to_owned() } else { format!("{version} ({})", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn unknown_commit_and_date_are_left_out() {
        assert_eq!(describe("0.1.0", "", ""), "0.1.0");
        assert_eq!(describe("0.1.0", "", "2026-11-26T04:38:18Z"), "0.1.0 (2026-11-26T04:38:18Z)");
        assert_eq!(
            describe("0.1.0", "5b11d5f", "2026-11-26T04:38:18Z"),
            "0.1.0 (commit 5b11d5f, 2026-11-26T04:38:18Z)"
        );
    }
}
