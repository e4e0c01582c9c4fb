//! A minimal HTTP client, for readiness probes.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long an answer may take.
const TIME: Duration = Duration::from_secs(5);

/// The body of `http://127.0.0.1:PORT/PATH` if the status is 200.
///
/// # Errors
/// The status and the body otherwise.
pub async fn get(port: u16, path: &str) -> anyhow::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        // HTTP 1.0, so that the body comes in one piece and the connection is closed.
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(TIME, exchange).await.context("no answer in time")??;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.lines().next().unwrap_or_default();
    if !status.contains(" 200 ") {
        bail!("{path}: {status}: {body}");
    }
    Ok(body.to_owned())
}
