//! Commands with a deadline.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
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
    // A program that prints more than a pipe holds waits for its reader.
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("{name} was not done within {deadline:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let printed = [stdout, stderr].map(|part| part.join().unwrap_or_default()).concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    ensure!(status.success(), "{name} failed ({status}):\n{printed}");
    Ok(printed)
}

/// Reads a pipe to its end, in a thread.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut printed = Vec::new();
        if let Some(mut pipe) = pipe {
            // The bytes before an error are shown.
            _ = pipe.read_to_end(&mut printed);
        }
        printed
    })
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
        let mut long = Command::new("sh");
        long.args(["-c", "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2"]);
        assert_eq!(output(&mut long, Duration::from_secs(60)).unwrap().len(), 400_000);
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo no room >&2; exit 3"]);
        let fails = output(&mut failing, Duration::from_secs(60)).unwrap_err().to_string();
        assert!(fails.contains("no room") && fails.contains('3'), "{fails}");
    }
}
