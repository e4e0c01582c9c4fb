//! Error responses as a Kubernetes Status, like the API server's.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusError {
    code: StatusCode,
    reason: &'static str,
    message: String,
}

impl StatusError {
    pub fn new(code: StatusCode, reason: &'static str, message: String) -> Self {
        Self { code, reason, message }
    }

    /// The request has no valid credentials.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".to_owned())
    }

    /// The API server did not answer the review.
    pub fn unknown(error: &kube::Error) -> Self {
        tracing::warn!(%error, "a request cannot be authorized");
        Self::internal("the API server does not say whether this is allowed".to_owned())
    }

    /// Too many reviews are running.
    pub fn busy() -> Self {
        let message = "too many requests wait to be authorized; try again in a few seconds";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.to_owned())
    }

    pub fn internal(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    fn body(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        })
    }
}

impl IntoResponse for StatusError {
    fn into_response(self) -> Response {
        (self.code, Json(self.body())).into_response()
    }
}
