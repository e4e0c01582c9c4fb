//! The first process of a node. It mounts the node's own folders over those of the machine, starts containerd and the kubelet,
//! and ends when either ends.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{WaitOptions, wait};
use switchyard_parts::containers::{COVERED, Containers};

use super::config::{CONTAINERD, KUBELET};

/// How long containerd may take to listen. It takes half a second.
const CONTAINERD_TIME: Duration = Duration::from_secs(60);

/// Settings of the kernel that the kubelet writes. Files are mounted over them, so that the machine's settings stay.
const KERNEL: [(&str, &str); 6] = [
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
];

/// A node's flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of configuration, containers and pods.
    #[arg(long)]
    dir: PathBuf,
    /// Directory of logs.
    #[arg(long)]
    logs: PathBuf,
    /// The kubelet's program.
    #[arg(long)]
    kubelet: PathBuf,
    /// Archives of the images that the node has from its start.
    #[arg(long = "image")]
    images: Vec<PathBuf>,
    /// The kubelet's flags.
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Runs a node until one of its programs ends.
///
/// # Errors
/// Names the program that ended or could not be started.
pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(std::process::id() == 1, "a node needs a process namespace of its own");
    let containers = Containers::find()?;
    cover(args).context("cannot cover the machine's folders")?;
    let mut search = vec![containers.runc()?, containers.containerd()?];
    search.iter_mut().for_each(|path| _ = path.pop());
    search.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(search)?;
    let start = |name: &str, command: &mut Command| -> anyhow::Result<Child> {
        let log = File::create(args.logs.join(format!("{name}.log")))?;
        command.env("PATH", &path).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("cannot start {name}"))
    };
    let mut containerd = Command::new(containers.containerd()?);
    let containerd =
        start("containerd", containerd.arg("--config").arg(args.dir.join("containerd.toml")))?;
    await_containerd()?;
    for image in &args.images {
        import(&containers, image)?;
        // An archive of this node alone is large, and has no further use.
        if image.starts_with(&args.dir) {
            let _ = fs::remove_file(image);
        }
    }
    let kubelet = start("kubelet", Command::new(&args.kubelet).args(&args.flags))?;
    let ended = reap(&[("containerd", &containerd), ("kubelet", &kubelet)])?;
    bail!("{ended}; see its log in {}", args.logs.display())
}

/// Mounts the node's own folders where programs write at fixed paths. Only this process and its children see the mounts.
fn cover(args: &Args) -> anyhow::Result<()> {
    for folder in COVERED {
        mount(&["-t", "tmpfs", "tmpfs", folder])?;
    }
    let kept = [(args.dir.join("kubelet"), KUBELET), (args.logs.join("pods"), "/var/log/pods")];
    for (from, to) in &kept {
        fs::create_dir_all(from)?;
        fs::create_dir_all(to)?;
        bind(from, to)?;
    }
    for (setting, value) in KERNEL {
        let (from, to) = (args.dir.join(setting.replace('/', ".")), format!("/proc/sys/{setting}"));
        fs::write(&from, value)?;
        if Path::new(&to).exists() {
            bind(&from, &to)?;
        }
    }
    Ok(())
}

fn bind(from: &Path, to: &str) -> anyhow::Result<()> {
    mount(&["--bind", &from.display().to_string(), to])
}

fn mount(words: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("mount").args(words).status().context("cannot start mount")?;
    ensure!(status.success(), "mount {words:?} failed");
    Ok(())
}

fn await_containerd() -> anyhow::Result<()> {
    let start = Instant::now();
    while UnixStream::connect(CONTAINERD).is_err() {
        ensure!(
            start.elapsed() < CONTAINERD_TIME,
            "containerd does not listen after {CONTAINERD_TIME:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn import(containers: &Containers, image: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(containers.ctr()?);
    command.args(["--address", CONTAINERD, "--namespace", "k8s.io", "images", "import"]).arg(image);
    let output = command.output().context("cannot start ctr")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot import {}: {}", image.display(), printed.trim());
    Ok(())
}

/// Reaps ended processes, including orphans, until one of the named ones ends.
fn reap(named: &[(&str, &Child)]) -> anyhow::Result<String> {
    loop {
        let ended = match wait(WaitOptions::empty()) {
            Ok(ended) => ended,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error).context("cannot wait for the node's programs"),
        };
        let Some((pid, status)) = ended else { continue };
        let id = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or_default();
        if let Some((name, _)) = named.iter().find(|(_, child)| child.id() == id) {
            return Ok(format!("{name} ended: {status:?}"));
        }
    }
}
