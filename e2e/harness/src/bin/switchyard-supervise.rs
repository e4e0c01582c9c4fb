//! Runs one program, and kills it when the process that asked for it ends.
//!
//! `switchyard-supervise [--cgroup NAME] PROGRAM [ARG...]` starts the program, prints its process id as one line on standard output,
//! and then waits until the program ends or standard input is closed. The harness holds the other end of that pipe. However
//! the harness ends, also by SIGKILL, the kernel closes the pipe, and the program is killed at once. The program's output
//! goes to this process's standard error. The exit status is the program's.
//!
//! With `--cgroup`, a cgroup of that name is made in every hierarchy before the start, and removed after the end. Nothing else
//! would remove the cgroups that a killed kubelet leaves below it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// How long killed processes may keep their cgroups. The harness waits 10 s for this process.
const CGROUP_TIME: Duration = Duration::from_secs(8);

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    let mut cgroups = Cgroups::default();
    if args.next_if(|arg| arg == "--cgroup").is_some() {
        cgroups = args.next().map(|name| Cgroups::make(Path::new(&name))).unwrap_or_default();
    }
    let Some(program) = args.next() else {
        eprintln!("usage: switchyard-supervise [--cgroup NAME] PROGRAM [ARG...]");
        return ExitCode::from(2);
    };
    let output = Stdio::from(std::io::stderr());
    let child = match Command::new(&program).args(args).stdin(Stdio::null()).stdout(output).spawn()
    {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cannot start {}: {error}", program.display());
            return ExitCode::from(127);
        }
    };
    let pid = child.id();
    let child = Arc::new(Mutex::new(child));
    let mut stdout = std::io::stdout();
    // If the reader has ended already, standard input ends below.
    let _ = writeln!(stdout, "{pid}").and_then(|()| stdout.flush());
    let cgroups = Arc::new(cgroups);
    let waiting = (Arc::clone(&child), Arc::clone(&cgroups));
    std::thread::spawn(move || exit_with_child(pid, &waiting.0, &waiting.1));
    wait_for_end_of_input();
    let mut child = child.lock();
    let _ = child.kill();
    let status = child.wait();
    cgroups.remove();
    ExitCode::from(code(&status))
}

/// The program's cgroup in each hierarchy.
#[derive(Default)]
struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    fn make(name: &Path) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        // The fifth field is the mount point. The file system's type follows a dash.
        let hierarchies = mounts.lines().filter_map(|line| {
            let (fields, kind) = line.split_once(" - ")?;
            kind.starts_with("cgroup").then(|| fields.split(' ').nth(4)).flatten()
        });
        let dirs: Vec<PathBuf> = hierarchies.map(|dir| Path::new(dir).join(name)).collect();
        for dir in &dirs {
            if let Err(error) = fs::create_dir_all(dir) {
                eprintln!("cannot create {}: {error}", dir.display());
            }
            // A new cgroup of version 1 has no processors and no memory nodes, so it gets its parent's.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let above =
                    dir.parent().and_then(|parent| fs::read_to_string(parent.join(file)).ok());
                _ = above.map(|value| fs::write(dir.join(file), value));
            }
        }
        Self(dirs)
    }

    /// Removes the cgroups. The kernel allows that after their last process has ended.
    fn remove(&self) {
        let start = Instant::now();
        for dir in &self.0 {
            while dir.exists() && !remove(dir) && start.elapsed() < CGROUP_TIME {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Removes a cgroup with all cgroups below it. Its files go with it.
fn remove(dir: &Path) -> bool {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    fs::remove_dir(dir).is_ok()
}

/// Ends this process as soon as the program has ended. The program is reaped only under the lock, so that its process id
/// cannot belong to another process while the other thread kills it.
fn exit_with_child(pid: u32, child: &Mutex<Child>, cgroups: &Cgroups) {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    while let Some(id) = id {
        match waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    let status = child.lock().wait();
    cgroups.remove();
    std::process::exit(code(&status).into());
}

fn wait_for_end_of_input() {
    let mut buffer = [0; 64];
    let mut stdin = std::io::stdin();
    loop {
        match stdin.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The exit code as in a shell: the program's, or 128 plus the number of the signal that ended it.
fn code(status: &std::io::Result<ExitStatus>) -> u8 {
    let Ok(status) = status else { return 1 };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
