//! The client of a command: a person waits for its answers.

use std::time::Duration;

use kube::client::ClientBuilder;
use kube::client::retry::RetryPolicy;
use kube::{Client, Config};
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;

/// Longest silence within an answer of the API server.
pub(crate) const READ_TIME: Duration = Duration::from_secs(60);
/// Most requests in the queue of a client.
const WAITING: usize = 256;

/// A client that repeats a request up to three times, within four seconds, after an answer of 429,
/// 503 or 504. The default of kube is minutes, which an unavailable aggregated API would add to each
/// command.
///
/// # Errors
/// The configuration cannot be used, or its credential program fails.
pub(crate) fn new(mut config: Config) -> kube::Result<Client> {
    config.read_timeout = Some(READ_TIME);
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config)?;
    let builder = builder.with_layer(&BufferLayer::new(WAITING));
    Ok(builder.with_layer(&RetryLayer::new(RetryPolicy::default())).build())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::Api;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn unavailable_server_is_asked_four_times() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = [0; 4096];
                if socket.read(&mut request).await.unwrap() > 0 {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\naway";
                socket.write_all(answer).await.unwrap();
            }
        });
        let client = new(Config::new(address)).unwrap();
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::all(client);
        match pods.get("any").await.unwrap_err() {
            kube::Error::Api(status) => assert_eq!(status.code, 503),
            error => panic!("{error}"),
        }
        assert_eq!(requests.load(Ordering::Relaxed), 4);
    }
}
