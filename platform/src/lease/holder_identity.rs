//! Holder identities of Leases that let another process on the same machine tell that the holder
//! has ended.
//!
//! An identity holds the boot id, the PID namespace, the process id and the process's start time.
//! Within a boot and a namespace the last two identify a process for good. So if the kernel no
//! longer knows the process, its Lease is free at once. Identities of other machines or other
//! programs tell nothing.

use std::fs;

use rustix::{io::Errno, process::Pid};

/// Identifies a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessIdentity {
    boot: String,
    namespace: String,
    pid: i32,
    start_time: String,
}

impl ProcessIdentity {
    fn own() -> Option<Self> {
        let boot =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().replace('-', "");
        let link = fs::read_link("/proc/self/ns/pid").ok()?;
        let namespace = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.to_owned();
        let pid = i32::try_from(std::process::id()).ok()?;
        Some(Self { boot, namespace, pid, start_time: start_time(pid)? })
    }

    fn parse(name: &str) -> Option<Self> {
        let (_, identity) = name.rsplit_once('_')?;
        let parts: Vec<&str> = identity.split('-').collect();
        let [boot, namespace, pid, start_time] = parts.as_slice() else { return None };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let whole = boot.len() == 32 && digits(namespace) && digits(start_time);
        let (boot, namespace, start_time) =
            ((*boot).to_owned(), (*namespace).to_owned(), (*start_time).to_owned());
        Some(Self { boot, namespace, pid: pid.parse().ok()?, start_time }).filter(|_| whole)
    }
}

/// A process's start time in ticks since boot. `None` if it does not exist or is not visible.
fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses and may hold spaces. Field 22 is the start time.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19).map(str::to_owned)
}

/// A unique identity for this process, prefixed with the host name or else `otherwise`. Without
/// `/proc` it ends in `random`.
#[must_use]
pub fn name(otherwise: &str, random: u64) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => otherwise,
        host => host,
    };
    match ProcessIdentity::own() {
        Some(ProcessIdentity { boot, namespace, pid, start_time }) => {
            format!("{host}_{boot}-{namespace}-{pid}-{start_time}")
        }
        None => format!("{host}_{random:016x}"),
    }
}

/// Whether the process of this identity has certainly ended.
#[must_use]
pub fn has_ended(name: &str) -> bool {
    let Some((their, own)) = ProcessIdentity::parse(name).zip(ProcessIdentity::own()) else {
        return false;
    };
    if (&their.boot, &their.namespace) != (&own.boot, &own.namespace) {
        return false;
    }
    match start_time(their.pid) {
        Some(start_time) => start_time != their.start_time,
        // The process may exist without being visible.
        None => Pid::from_raw(their.pid)
            .is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn process_has_ended_only_after_its_exit() {
        let own = ProcessIdentity::own().unwrap();
        assert_eq!(ProcessIdentity::parse(&name("agent", 7)), Some(own.clone()));
        assert!(!has_ended(&name("agent", 7)));
        let mut other = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(other.id()).unwrap();
        let ProcessIdentity { boot, namespace, .. } = own;
        let theirs =
            format!("host_with_lines_{boot}-{namespace}-{pid}-{}", start_time(pid).unwrap());
        assert!(!has_ended(&theirs));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(has_ended(&theirs));
    }

    #[test]
    fn reused_pid_is_another_process() {
        let ProcessIdentity { boot, namespace, pid, start_time } = ProcessIdentity::own().unwrap();
        let earlier: u64 = start_time.parse::<u64>().unwrap() - 1;
        assert!(has_ended(&format!("host_{boot}-{namespace}-{pid}-{earlier}")));
    }

    #[test]
    fn foreign_identities_have_not_ended() {
        let ProcessIdentity { boot, namespace, .. } = ProcessIdentity::own().unwrap();
        let elsewhere = "0".repeat(32);
        for name in [
            "",
            "agent-7d4b9c-x2x4z",
            "kueue-controller-manager-0_0d9b1a3e-1f7e-4f3e-9c57-1b7b1a1d2c3d",
            &format!("host_{elsewhere}-{namespace}-999999-1"),
            &format!("host_{boot}-1-999999-1"),
            &format!("host_{boot}-{namespace}-x-1"),
        ] {
            assert!(!has_ended(name), "{name}");
        }
    }
}
