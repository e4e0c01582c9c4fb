//! A program that a test runs: its log and its signals. It never outlives this process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::paths;

/// How long a killed program may take to be gone.
const KILL_TIME: Duration = Duration::from_secs(10);

/// How long the threads of a paused program may run on.
const PAUSE_TIME: Duration = Duration::from_secs(5);

/// A program to run. It can be started again after its end.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    path: PathBuf,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    log: PathBuf,
    cgroup: Option<String>,
}

impl Program {
    /// A program by its path. Its output is appended to `log`, whose directory must exist.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            log: log.into(),
            cgroup: None,
        }
    }

    /// The same program from another directory, such as that of another version.
    #[must_use]
    pub fn from_dir(mut self, dir: &Path) -> Self {
        if let Some(name) = self.path.file_name() {
            self.path = dir.join(name);
        }
        self
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable, in addition to those of this process.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Makes a cgroup of this name for the program's children, and removes it after the program's end.
    #[must_use]
    pub(crate) fn cgroup(mut self, name: &str) -> Self {
        self.cgroup = Some(name.to_owned());
        self
    }

    /// Starts it under `switchyard-supervise`, which ends it when this process ends, however that happens.
    ///
    /// # Errors
    /// When the supervisor is not built, or the program cannot be started; the message has its output.
    pub fn start(&self) -> anyhow::Result<Process> {
        let supervisor = paths::binary("switchyard-supervise")?;
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        if let Ok(log) = &mut log {
            writeln!(log, "--- start: {} {:?}", self.path.display(), self.args)?;
        }
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let cgroup = self.cgroup.iter().flat_map(|name| ["--cgroup", name.as_str()]);
        let mut child = Command::new(supervisor)
            .args(cgroup)
            .arg(&self.path)
            .args(&self.args)
            .envs(&self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C in a terminal reaches this process alone; the supervisors follow when it ends.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("a piped stdout")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let Ok(pid) = line.trim().parse() else {
            let _ = child.wait();
            bail!("cannot start {}: {}", self.name, tail(&self.log, 5));
        };
        tracing::debug!(program = self.name, pid, "started");
        Ok(Process { program: self.clone(), pid, supervisor: Mutex::new(child) })
    }
}

/// A running program. Dropping it kills the program.
#[derive(Debug)]
pub struct Process {
    program: Program,
    pid: u32,
    supervisor: Mutex<Child>,
}

impl Process {
    /// The process id of the program, not of its supervisor.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// The started program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The exit code after its end, as in a shell: 128 plus the signal's number if a signal ended it.
    pub fn exit_code(&self) -> Option<i32> {
        let status = self.supervisor.lock().try_wait().ok().flatten()?;
        Some(code(status))
    }

    /// True until the program has ended.
    pub fn is_running(&self) -> bool {
        matches!(self.supervisor.lock().try_wait(), Ok(None))
    }

    /// Fails if the program has ended, with its exit code and the end of its log.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.exit_code() {
            None => Ok(()),
            Some(code) => {
                bail!("{} ended with exit code {code}:\n{}", self.program.name, self.log_tail(30))
            }
        }
    }

    /// Kills the program (SIGKILL) and waits for its end. Does nothing if it has ended already.
    pub fn kill(&self) {
        self.begin_kill();
        let mut supervisor = self.supervisor.lock();
        let start = Instant::now();
        while let Ok(None) = supervisor.try_wait() {
            if start.elapsed() > KILL_TIME {
                tracing::warn!(
                    program = self.program.name,
                    pid = self.pid,
                    "does not end when killed"
                );
                let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
                let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
                let _ = supervisor.kill();
                // A killed supervisor ends at once.
                let _ = supervisor.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks the supervisor to kill the program, and does not wait.
    pub(crate) fn begin_kill(&self) {
        drop(self.supervisor.lock().stdin.take());
    }

    /// Asks the program to end (SIGTERM), and kills it if it has not ended in time. Returns its exit code.
    pub async fn terminate(&self, within: Duration) -> Option<i32> {
        if self.is_running() {
            // An error means that it has ended meanwhile.
            let _ = self.signal(Signal::TERM);
        }
        let start = Instant::now();
        while self.is_running() && start.elapsed() < within {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if self.is_running() {
            tracing::warn!(
                program = self.program.name,
                ?within,
                "did not end when asked to, killed"
            );
        }
        self.kill();
        self.exit_code()
    }

    /// Pauses it (SIGSTOP). Its connections stay open, as those of a machine that hangs.
    ///
    /// `kill(2)` returns before the program's threads have stopped; on a busy machine they may go on for tens of
    /// milliseconds and answer a request. So this waits until each of them has stopped.
    ///
    /// # Errors
    /// When it has ended, or a thread runs on for 5 s.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        let start = Instant::now();
        while !self.is_paused()? {
            if start.elapsed() > PAUSE_TIME {
                bail!("{} runs on for {PAUSE_TIME:?} after SIGSTOP", self.program.name);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// True while each of its threads is stopped or has ended.
    pub fn is_paused(&self) -> anyhow::Result<bool> {
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid))? {
            // A thread that ends meanwhile has no file any more.
            let Ok(stat) = std::fs::read_to_string(thread?.path().join("stat")) else { continue };
            let state = fields_after_name(&stat)?.first().copied();
            if !state.is_some_and(|state| matches!(state, "T" | "t" | "Z" | "X")) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Continues a paused program (SIGCONT).
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.check()?;
        let pid = Pid::from_raw(i32::try_from(self.pid)?).context("a process id is not 0")?;
        kill_process(pid, signal)
            .with_context(|| format!("signal {signal:?} to {}", self.program.name))
    }

    /// Resident memory in bytes.
    pub fn rss(&self) -> anyhow::Result<u64> {
        self.memory("VmRSS:")
    }

    /// Peak of resident memory, in bytes.
    pub fn peak_rss(&self) -> anyhow::Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let line = line.with_context(|| format!("no {field} line"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kib * 1024)
    }

    /// CPU time used so far, user and system, with a resolution of 10 ms.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // utime and stime are fields 14 and 15.
        let fields = fields_after_name(&stat)?;
        let ticks = |index: usize| {
            fields.get(index).and_then(|field| field.parse::<u64>().ok()).context("short stat")
        };
        Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.program.log, lines)
    }

    /// Its whole log, of all its starts.
    pub fn log(&self) -> String {
        std::fs::read(&self.program.log)
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The fields of a `stat` file in /proc from the third on. The second, the name in parentheses, may hold spaces.
fn fields_after_name(stat: &str) -> anyhow::Result<Vec<&str>> {
    let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
    Ok(rest.split_whitespace().collect())
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// The last lines of a log file, or why they cannot be read.
fn tail(log: &Path, lines: usize) -> String {
    match std::fs::read(log) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("(no log at {}: {error})", log.display()),
    }
}

/// How often a program is started, each time on other ports, before the start fails.
pub const PORT_TRIES: u32 = 5;

/// Whether the program ended because another process had taken its port.
pub fn lost_port(process: &Process) -> bool {
    process.exit_code().is_some() && process.log_tail(50).contains("address already in use")
}
