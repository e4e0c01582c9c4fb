//! Shared fixtures of tests, and their isolation.

use std::future::Future;
use std::io::IsTerminal;
use std::sync::{Once, OnceLock};

use futures::future::LocalBoxFuture;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::paths::keep_logs_of;
use crate::{auditor, nodes};

pub use crate::names::unique;

/// Runs a test on the one runtime of this process. Clients of a shared environment keep tasks on the runtime they
/// are used from, so tests that share one must also share the runtime; `#[tokio::test]` gives each its own.
///
/// Logs go to the test's output as `RUST_LOG` says (default `info`, and this crate's `debug`). If the test panics, the logs of
/// all programs that this process has started are kept.
///
/// # Panics
/// When no runtime can be made, when the [`auditor`] has a lasting finding, and when tests of another file have run in this
/// process, because the files' shared environments would mix.
#[expect(clippy::expect_used, reason = "nothing can be tested without a runtime")]
pub fn run<F: Future>(test: F) -> F::Output {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    init_logs();
    short_panics();
    one_file();
    let build = || {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a tokio runtime")
    };
    let _keep_logs = KeepLogs;
    let runtime = RUNTIME.get_or_init(build);
    auditor::start(runtime);
    let output = runtime.block_on(test);
    let outlasted = auditor::outlasted();
    assert!(outlasted.is_empty(), "the auditor found, and it lasted:\n{}", outlasted.join("\n"));
    output
}

/// Runs a test that starts real nodes. Outside of a network of its own, the test program starts itself again inside of one
/// for this test.
///
/// # Panics
/// When real nodes cannot run here. `cargo xtask test` checks this first and records the tests as skipped.
#[expect(clippy::expect_used, clippy::panic, reason = "a test that cannot run fails")]
pub fn run_on_real_nodes<F: Future>(test: F) {
    if nodes::is_isolated() {
        nodes::raise_loopback().expect("loopback");
        run(test);
        return;
    }
    let thread = std::thread::current();
    let name = thread.name().expect("a test's thread has its name");
    let mut command = nodes::again_for(name)
        .unwrap_or_else(|error| panic!("real nodes cannot run here: {error:#}"));
    let status = command.status().expect("unshare starts");
    assert!(
        status.success(),
        "{name} failed in a network of its own ({status}); its output is above"
    );
}

/// Panics if a test of another file has run in this process. The name of a test's thread is its path, `FILE::TEST`.
fn one_file() {
    static FIRST: OnceLock<String> = OnceLock::new();
    let thread = std::thread::current();
    let Some((file, _)) = thread.name().and_then(|name| name.split_once("::")) else { return };
    let first = FIRST.get_or_init(|| file.to_owned());
    assert!(
        first == file,
        "the tests of {first} and of {file} need a process each: name a file, `--test cluster {file}::`, or run all with \
         `cargo xtask test --only cluster`"
    );
}

/// Sends logs to the test's output. Only the first call has an effect.
pub fn init_logs() {
    init_logs_of(
        "info,switchyard_e2e=debug,kube_client::client::builder=off,kube=warn,tower=warn,hyper=warn,rustls=warn",
    );
}

/// [`init_logs`] with another filter, which applies if `RUST_LOG` is not set. Logs have colours on a terminal only.
pub fn init_logs_of(filter: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = tracing_subscriber::EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(filter));
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(std::io::stdout().is_terminal());
        let _ = log.with_test_writer().try_init();
    });
}

/// Makes a panic print only its place and its message. Backtraces through the runtime, and those that `anyhow` adds, would
/// hide the message of a failed test. `RUST_BACKTRACE=full` shows them.
fn short_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|wanted| wanted == "full") {
            return;
        }
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let said = message(panic.payload());
            // The test harness captures the output of `eprintln!`.
            eprintln!(
                "thread '{}' panicked at {place}:\n{said}",
                thread.name().unwrap_or_default()
            );
        }));
    });
}

/// The message of a panic, without the backtrace of an unwrapped error.
fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("(not a text)");
    text.split_once("\n\nStack backtrace:").map_or(text, |(said, _)| said)
}

/// Holds an [`crate::Environment`] or a [`crate::fleet::Fleet`] that all tests of a file share. The first test starts it. Make
/// it a `static`:
///
/// ```no_run
/// use switchyard_e2e::{ClusterSpec, Environment, fixture};
/// static ENVIRONMENT: fixture::Shared<Environment> = fixture::Shared::new(|| {
///     Box::pin(Environment::builder("single").cluster(ClusterSpec::new("one")).start())
/// });
/// fixture::run(async {
///     let environment = ENVIRONMENT.get().await.unwrap();
///     let namespace = environment.cluster("one").namespace("quota").await.unwrap();
/// });
/// ```
///
/// It ends with the process; its files go with the next environment that is started on this machine.
pub struct Shared<T: 'static> {
    cell: OnceCell<Result<T, String>>,
    start: fn() -> LocalBoxFuture<'static, anyhow::Result<T>>,
}

impl<T: Send + Sync> Shared<T> {
    /// Nothing is started yet.
    pub const fn new(start: fn() -> LocalBoxFuture<'static, anyhow::Result<T>>) -> Self {
        Self { cell: OnceCell::const_new(), start }
    }

    /// The shared value, started by the first call.
    ///
    /// # Errors
    /// When it could not be started; every later call fails too.
    pub async fn get(&'static self) -> anyhow::Result<&'static T> {
        let start = async || (self.start)().await.map_err(|error| format!("{error:#}"));
        match self.cell.get_or_init(start).await {
            Ok(shared) => Ok(shared),
            Err(error) => Err(anyhow::anyhow!("{error}")),
        }
    }
}

/// Keeps the logs of all programs that this process has started, if the test panics.
struct KeepLogs;

impl Drop for KeepLogs {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for dir in keep_logs_of(std::process::id()) {
                eprintln!("logs kept in {}", dir.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn a_panic_says_what_the_error_said() {
        let unwrapped =
            "called `Result::unwrap()`: waited 1s\n\nStack backtrace:\n   0: anyhow".to_owned();
        for (case, payload, said) in [
            (
                "an error's backtrace",
                Box::new(unwrapped) as Box<dyn std::any::Any + Send>,
                "called `Result::unwrap()`: waited 1s",
            ),
            ("a plain text", Box::new("left is right"), "left is right"),
            ("no text", Box::new(7), "(not a text)"),
        ] {
            assert_eq!(message(&*payload), said, "{case}");
        }
    }
}
