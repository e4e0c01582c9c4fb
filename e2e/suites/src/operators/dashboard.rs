//! Ray's dashboard, from which KubeRay reads the state of a job. It runs in the container of a cluster's head, which is only
//! played here. This one reports each job as running for a while, and then as succeeded.
//!
//! KubeRay calls it by the name of a Service, which does not resolve here. So it gets this as its proxy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use switchyard_e2e::ports;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// How long a job runs after the first request for it.
const WHILE: Duration = Duration::from_secs(6);
/// How long a request may take to come, and how long it may be.
const TIME: Duration = Duration::from_secs(5);
const LENGTH: usize = 16 << 10;
/// The served path, of any host.
const JOBS: &str = "/api/jobs/";

/// When each job was first asked for.
type Jobs = Arc<Mutex<BTreeMap<String, Instant>>>;

/// The dashboard of all clusters. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Dashboard {
    port: u16,
    serving: JoinHandle<()>,
}

impl Dashboard {
    pub(super) async fn open() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", ports::free()?)).await?;
        let port = listener.local_addr()?.port();
        let serving = tokio::spawn(async move {
            let (jobs, mut connections) = (Jobs::default(), JoinSet::new());
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((caller, _)) = accepted {
                        connections.spawn(tokio::time::timeout(TIME, serve(caller, Arc::clone(&jobs))));
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { port, serving })
    }

    /// Its URL, as a proxy.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(mut caller: TcpStream, jobs: Jobs) -> std::io::Result<()> {
    let (mut request, mut piece) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < LENGTH {
        match caller.read(&mut piece).await? {
            0 => return Ok(()),
            length => request.extend(piece.iter().take(length)),
        }
    }
    let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
    let (status, body) = {
        let mut jobs = jobs.lock();
        answer(&line, &mut jobs, Instant::now())
    };
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    caller.write_all((head + &body).as_bytes()).await?;
    caller.shutdown().await
}

/// The status and the body for the first line of a request.
fn answer(
    line: &str,
    jobs: &mut BTreeMap<String, Instant>,
    now: Instant,
) -> (&'static str, String) {
    let mut words = line.split_whitespace();
    let (method, url) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let Some((_, job)) = url.split_once(JOBS).filter(|(_, job)| method == "GET" && !job.is_empty())
    else {
        return ("404 Not Found", String::new());
    };
    let began = *jobs.entry(job.to_owned()).or_insert(now);
    let status = if now.duration_since(began) < WHILE { "RUNNING" } else { "SUCCEEDED" };
    (
        "200 OK",
        json!({"submission_id": job, "job_id": job, "status": status, "entrypoint": "python"})
            .to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_runs_for_a_while_and_has_then_succeeded() {
        let (mut jobs, start) = (BTreeMap::new(), Instant::now());
        let line = "GET http://head.ns.svc.cluster.local:8265/api/jobs/one HTTP/1.1";
        for (after, said) in [(0, "RUNNING"), (5, "RUNNING"), (6, "SUCCEEDED")] {
            let (status, body) = answer(line, &mut jobs, start + Duration::from_secs(after));
            assert_eq!(status, "200 OK");
            assert!(body.contains(said), "after {after} s: {body}");
        }
        for line in [
            "",
            "GET /",
            "POST http://head/api/jobs/one HTTP/1.1",
            "GET http://head/api/jobs/ HTTP/1.1",
        ] {
            assert_eq!(answer(line, &mut jobs, start).0, "404 Not Found", "{line}");
        }
    }
}
