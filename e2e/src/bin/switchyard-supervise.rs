//! Runs one program and ends it when whoever asked for it is gone.
//!
//! `switchyard-supervise PROGRAM [ARG...]` starts the program, prints its process id as one line on standard output,
//! and then waits for one of two things: the program ends, or standard input is closed. The harness holds the other
//! end of that pipe, so the kernel closes it whichever way the harness ends, a SIGKILL included; the program is then
//! killed at once. The program's output goes to this process's standard error. The exit status is the program's.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(program) = args.next() else {
        eprintln!("usage: switchyard-supervise PROGRAM [ARG...]");
        return ExitCode::from(2);
    };
    let output = Stdio::from(std::io::stderr());
    let child = match Command::new(&program).args(args).stdin(Stdio::null()).stdout(output).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cannot start {}: {error}", program.display());
            return ExitCode::from(127);
        }
    };
    let pid = child.id();
    let child = Arc::new(Mutex::new(child));
    let mut stdout = std::io::stdout();
    // A reader that is already gone shows as the end of standard input below.
    let _ = writeln!(stdout, "{pid}").and_then(|()| stdout.flush());
    let waiting = Arc::clone(&child);
    std::thread::spawn(move || exit_with_child(pid, &waiting));
    wait_for_end_of_input();
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill();
    ExitCode::from(code(&child.wait()))
}

/// Ends this process as soon as the program has ended. The program is only collected under the lock, so that its
/// process id cannot belong to somebody else while the other thread kills it.
fn exit_with_child(pid: u32, child: &Mutex<Child>) {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    while let Some(id) = id {
        match waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    let status = child.lock().unwrap_or_else(PoisonError::into_inner).wait();
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

/// As a shell has it: the program's own code, or 128 and the signal that ended it.
fn code(status: &std::io::Result<ExitStatus>) -> u8 {
    let Ok(status) = status else { return 1 };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
