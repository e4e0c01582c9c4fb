//! Names of processes that compete for a Lease, by which another process on the same machine can tell that one has ended.
//!
//! A name holds the machine's boot, the PID namespace, the process id and when the process began. Within one boot and one
//! namespace no two processes have the last two in common, so that a name that the kernel does not know any more is one
//! of a process that is gone for good: its Lease needs no waiting for. Of names that others gave, and of other machines,
//! nothing is said.

use std::fs;

use rustix::{io::Errno, process::Pid};

/// Where a process is, and which it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    boot: String,
    namespace: String,
    pid: i32,
    began: String,
}

impl Place {
    fn own() -> Option<Self> {
        let boot =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().replace('-', "");
        let link = fs::read_link("/proc/self/ns/pid").ok()?;
        let namespace = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.to_owned();
        let pid = i32::try_from(std::process::id()).ok()?;
        Some(Self { boot, namespace, pid, began: began(pid)? })
    }

    fn parse(name: &str) -> Option<Self> {
        let (_, place) = name.rsplit_once('_')?;
        let parts: Vec<&str> = place.split('-').collect();
        let [boot, namespace, pid, began] = parts.as_slice() else { return None };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let whole = boot.len() == 32 && digits(namespace) && digits(began);
        let (boot, namespace, began) =
            ((*boot).to_owned(), (*namespace).to_owned(), (*began).to_owned());
        Some(Self { boot, namespace, pid: pid.parse().ok()?, began }).filter(|_| whole)
    }
}

/// When a process began, in ticks since the boot. None if it is not there, or not to be seen.
fn began(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses and may hold spaces; the 22nd is the time.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19).map(str::to_owned)
}

/// A name for this process that no other has, after the host's (or `otherwise`). `random` serves where there is no `/proc`.
#[must_use]
pub fn name(otherwise: &str, random: u64) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => otherwise,
        host => host,
    };
    match Place::own() {
        Some(Place { boot, namespace, pid, began }) => {
            format!("{host}_{boot}-{namespace}-{pid}-{began}")
        }
        None => format!("{host}_{random:016x}"),
    }
}

/// Whether the process of this name has ended, for certain.
#[must_use]
pub fn has_ended(name: &str) -> bool {
    let Some((their, own)) = Place::parse(name).zip(Place::own()) else { return false };
    if (&their.boot, &their.namespace) != (&own.boot, &own.namespace) {
        return false;
    }
    match began(their.pid) {
        Some(began) => began != their.began,
        // Perhaps it only cannot be seen.
        None => Pid::from_raw(their.pid)
            .is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_known_by_its_name_until_it_has_ended() {
        let own = Place::own().unwrap();
        assert_eq!(Place::parse(&name("agent", 7)), Some(own.clone()));
        assert!(!has_ended(&name("agent", 7)));
        let mut other = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(other.id()).unwrap();
        let Place { boot, namespace, .. } = own;
        let theirs = format!("host_with_lines_{boot}-{namespace}-{pid}-{}", began(pid).unwrap());
        assert!(!has_ended(&theirs));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(has_ended(&theirs));
    }

    #[test]
    fn another_process_of_the_same_number_is_not_taken_for_the_first() {
        let Place { boot, namespace, pid, began } = Place::own().unwrap();
        let earlier: u64 = began.parse::<u64>().unwrap() - 1;
        assert!(has_ended(&format!("host_{boot}-{namespace}-{pid}-{earlier}")));
    }

    #[test]
    fn nothing_is_said_of_other_machines_and_other_names() {
        let Place { boot, namespace, .. } = Place::own().unwrap();
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
