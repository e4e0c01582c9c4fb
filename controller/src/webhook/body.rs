//! Request bodies, read within a bounded time and a bounded memory before the request gets its
//! turn.

use std::time::Duration;

use axum::{
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::StreamExt as _;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// API servers send a body at once.
const DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of all bodies in memory at once.
const MAX_BYTES: usize = 256 << 20;

static MEMORY: Semaphore = Semaphore::const_new(MAX_BYTES);

/// A body with its share of [`MAX_BYTES`], which dropping it returns.
#[derive(Debug)]
pub(super) struct BufferedBody {
    pub(super) bytes: Vec<u8>,
    _permit: Option<SemaphorePermit<'static>>,
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read(body: Body, limit: usize) -> Result<BufferedBody, Response> {
    let late = || (StatusCode::REQUEST_TIMEOUT, "the body did not come in time").into_response();
    timeout(DEADLINE, read_all(body, limit)).await.map_err(|_| late())?
}

async fn read_all(body: Body, limit: usize) -> Result<BufferedBody, Response> {
    let mut parts = body.into_data_stream();
    let mut buffered = BufferedBody { bytes: Vec::new(), _permit: None };
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()).into_response())?;
        if buffered.bytes.len() + part.len() > limit {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "length limit exceeded").into_response());
        }
        let busy = |_| {
            (StatusCode::SERVICE_UNAVAILABLE, "too much is being read; try again").into_response()
        };
        let permit =
            MEMORY.try_acquire_many(u32::try_from(part.len()).unwrap_or(u32::MAX)).map_err(busy)?;
        match &mut buffered._permit {
            Some(all) => all.merge(permit),
            None => buffered._permit = Some(permit),
        }
        buffered.bytes.extend_from_slice(&part);
    }
    Ok(buffered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bodies_are_bounded_in_length_and_time() {
        let ok = read(Body::from("abc"), 3).await.unwrap();
        assert_eq!(ok.bytes, b"abc");
        for (case, body, status) in [
            ("longer than it may be", Body::from("abcd"), StatusCode::PAYLOAD_TOO_LARGE),
            (
                "never ends",
                Body::from_stream(futures::stream::pending::<Result<String, std::io::Error>>()),
                StatusCode::REQUEST_TIMEOUT,
            ),
        ] {
            assert_eq!(read(body, 3).await.unwrap_err().status(), status, "{case}");
        }
    }
}
