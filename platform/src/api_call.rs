//! Calls of the API server, with a deadline.

use std::time::Duration;

/// The API server gives up on a request after 60 s. An answer that takes longer means a dead
/// connection.
const ANSWER_DEADLINE: Duration = Duration::from_secs(70);

/// Runs a request with a deadline. A request that missed its deadline may still have taken effect.
pub async fn with_deadline<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    within(ANSWER_DEADLINE, request).await
}

/// As [`with_deadline`], with another deadline.
pub async fn within<T>(
    deadline: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    match tokio::time::timeout(deadline, request).await {
        Ok(answer) => answer,
        Err(_) => {
            let message = format!("no answer from the API server within {} s", deadline.as_secs());
            Err(kube::Error::Service(message.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::WriteError;

    #[tokio::test(start_paused = true)]
    async fn dead_connection_ends_in_an_error() {
        let error = with_deadline(std::future::pending::<kube::Result<()>>()).await.unwrap_err();
        assert_eq!(
            WriteError::from(error).to_string(),
            "ServiceError: no answer from the API server within 70 s"
        );
    }
}
