//! Conversion reviews over HTTP: Kueue's kinds in another version. See [`switchyard_api::v1beta1`].

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use kube::core::{
    Status,
    conversion::{ConversionRequest, ConversionResponse, ConversionReview},
};
use serde_json::Value;
use switchyard_api::v1beta1::{ConversionError, convert};
use tokio::sync::Semaphore;
use tower_http::timeout::TimeoutLayer;

use super::body;

pub(super) const PATH: &str = "/convert";
/// Bytes of a review. An object has at most 3 MiB, and API servers convert list items one by one.
const BODY_LIMIT: usize = 16 << 20;
/// Reviews that are converted at once; others wait.
const AT_ONCE: usize = 4;
/// For a review with its wait. API servers give up after 30 s.
const TIMEOUT: Duration = Duration::from_secs(25);

pub(super) fn router() -> Router {
    Router::new()
        .route(PATH, post(handle).with_state(Arc::new(Semaphore::new(AT_ONCE))))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, TIMEOUT))
}

async fn handle(State(turns): State<Arc<Semaphore>>, request: Request) -> Response {
    // Before taking a turn, so that a slow sender delays no other review.
    let body = match body::read(request.into_body(), BODY_LIMIT).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let Ok(turn) = turns.acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let answered = tokio::task::spawn_blocking(move || {
        let answered = review(&body.bytes);
        drop(turn);
        answered
    });
    match answered.await {
        Ok(Ok(review)) => Json(review).into_response(),
        Ok(Err(problem)) => {
            tracing::warn!(problem, "conversion review not understood");
            (StatusCode::BAD_REQUEST, problem).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Converts all objects of a review in order; one failure fails the review.
fn review(body: &[u8]) -> Result<ConversionReview, String> {
    let review: ConversionReview = serde_json::from_slice(body)
        .map_err(|error| format!("not a ConversionReview of apiextensions.k8s.io/v1: {error}"))?;
    let mut request = ConversionRequest::from_review(review)
        .map_err(|_| "the ConversionReview has no request".to_owned())?;
    let desired = request.desired_api_version.clone();
    let objects = std::mem::take(&mut request.objects);
    let converted: Result<Vec<Value>, ConversionError> =
        objects.into_iter().map(|object| convert(object, &desired)).collect();
    let response = ConversionResponse::for_request(request);
    Ok(match converted {
        Ok(objects) => response.success(objects),
        Err(error) => {
            tracing::warn!(%error, "not converted");
            response.failure(Status::failure(&error.to_string(), "Invalid").with_code(422))
        }
    }
    .into_review())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(objects: &Value) -> Value {
        let request =
            json!({"uid": "u1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": objects});
        let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
        serde_json::to_value(review(body.to_string().as_bytes()).unwrap()).unwrap()
    }

    fn queue(name: &str) -> Value {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {"cohort": name},
        })
    }

    #[test]
    fn objects_are_converted_in_order() {
        let got = ask(&json!([queue("a"), queue("b")]));
        assert_eq!(
            (&got["apiVersion"], &got["kind"]),
            (&json!("apiextensions.k8s.io/v1"), &json!("ConversionReview"))
        );
        let response = &got["response"];
        assert_eq!(
            (&response["uid"], &response["result"]["status"]),
            (&json!("u1"), &json!("Success"))
        );
        let cohorts: Vec<&Value> = response["convertedObjects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["spec"]["cohortName"])
            .collect();
        assert_eq!(cohorts, ["a", "b"]);
    }

    /// Requests whose bodies never end.
    #[tokio::test(start_paused = true)]
    async fn slow_bodies_delay_no_other_review() {
        use axum::body::Body;
        use tower::ServiceExt as _;
        let router = router();
        let ask = |body: Body| router.clone().oneshot(Request::post(PATH).body(body).unwrap());
        let trickle =
            || Body::from_stream(futures::stream::pending::<Result<String, std::io::Error>>());
        let mut slow: Vec<_> = (0..4 * AT_ONCE).map(|_| Box::pin(ask(trickle()))).collect();
        for request in &mut slow {
            assert!(futures::poll!(request).is_pending());
        }
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [queue("a")]},
        });
        let answer = ask(Body::from(review.to_string())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let waiting = slow.iter_mut().filter_map(futures::FutureExt::now_or_never).count();
        assert_eq!(waiting, 0, "none of them had ended before");
    }

    #[test]
    fn unconvertible_object_fails_the_review_by_name() {
        let mut unknown = queue("b");
        unknown["kind"] = json!("Queue");
        let response = &ask(&json!([queue("a"), unknown]))["response"];
        assert_eq!(
            (&response["uid"], &response["result"]["status"]),
            (&json!("u1"), &json!("Failure"))
        );
        assert_eq!(response["convertedObjects"], json!([]));
        let message = response["result"]["message"].as_str().unwrap();
        let start = "Queue b cannot be converted to kueue.x-k8s.io/v1beta2: kind: Unsupported value: \"Queue\"";
        assert!(message.starts_with(start), "{message}");
    }

    #[test]
    fn invalid_review_is_rejected_with_reason() {
        assert!(
            review(b"{}")
                .unwrap_err()
                .starts_with("not a ConversionReview of apiextensions.k8s.io/v1")
        );
        let empty = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"})
            .to_string();
        assert_eq!(review(empty.as_bytes()).unwrap_err(), "the ConversionReview has no request");
    }
}
