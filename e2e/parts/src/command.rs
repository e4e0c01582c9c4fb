//! Commands with a deadline.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// Runs a command and returns what it printed. Blocks.
///
/// # Errors
/// When it fails, with what it printed, or takes longer than `deadline`.
pub fn output(command: &mut Command, deadline: Duration) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start {name}"))?;
    while child.try_wait()?.is_none() {
        if start.elapsed() > deadline {
            child.kill()?;
            bail!("{name} was not done within {deadline:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let Output { status, stdout, stderr } = child.wait_with_output()?;
    let printed = [stdout, stderr].map(|part| String::from_utf8_lossy(&part).into_owned()).concat();
    ensure!(status.success(), "{name} failed ({status}):\n{printed}");
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_ended_and_what_fails_says_why() {
        let slow = output(Command::new("sleep").arg("60"), Duration::from_millis(50))
            .unwrap_err()
            .to_string();
        assert!(slow.starts_with("sleep was not done within"), "{slow}");
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo no room >&2; exit 3"]);
        let fails = output(&mut failing, Duration::from_secs(60)).unwrap_err().to_string();
        assert!(fails.contains("no room") && fails.contains('3'), "{fails}");
    }
}
