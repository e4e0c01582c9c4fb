//! Admission reviews over HTTP: reads a request, calls its rule, writes the answer.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::future::BoxFuture;
use kube::core::{
    DynamicObject,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use serde_json::Value;
use tower_http::timeout::TimeoutLayer;

use super::{body, json_patch::json_patch, operator_requests};
use switchyard_platform::object::Object;

/// Bytes of a review. An update carries the object twice, and an object has at most 3 MiB.
pub(super) const BODY_LIMIT: usize = 8 << 20;
/// For a request. API servers give up after [`super::configuration::TIMEOUT_SECONDS`].
const TIMEOUT: Duration = Duration::from_secs(8);

pub(super) struct ReviewRequest<'a> {
    /// Empty for cluster-scoped kinds.
    pub(super) namespace: &'a str,
    /// The new object; on deletion the old one.
    pub(super) object: &'a Value,
    /// The stored object, on updates.
    pub(super) old: Option<&'a Value>,
}

pub(super) enum ReviewOutcome {
    Allow,
    /// Allow, with warnings for the user.
    Warn(Vec<String>),
    /// Allow with these changes.
    Mutate(Box<Value>),
    /// Deny, for these reasons.
    Deny(Vec<String>),
    /// The API server must be read first.
    Deferred(BoxFuture<'static, Self>),
}

/// The webhook of one path.
pub(super) type Handler = Arc<dyn Fn(&ReviewRequest<'_>) -> ReviewOutcome + Send + Sync>;

pub(super) fn router(handlers: Vec<(String, Handler)>) -> Router {
    let mut router = Router::new();
    for (path, handler) in handlers {
        router = router.route(&path, post(handle).with_state(handler));
    }
    router.layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, TIMEOUT))
}

async fn handle(State(handler): State<Handler>, request: Request) -> Response {
    let body = match body::read(request.into_body(), BODY_LIMIT).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    match review(&handler, &body.bytes).await {
        Ok(review) => Json(review).into_response(),
        Err(problem) => {
            tracing::warn!(problem, "admission review not understood");
            (StatusCode::BAD_REQUEST, problem).into_response()
        }
    }
}

/// Answers one review. The patch is in base64, as Go encodes bytes.
async fn review(handler: &Handler, body: &[u8]) -> Result<Value, String> {
    let answer = respond(handler, body).await?;
    let patch = answer
        .response
        .as_ref()
        .and_then(|response| response.patch.as_ref())
        .map(|patch| STANDARD.encode(patch));
    let mut review = serde_json::to_value(answer).map_err(|error| error.to_string())?;
    if let (Some(patch), Some(response)) =
        (patch, review.get_mut("response").and_then(Value::as_object_mut))
    {
        response.insert("patch".to_owned(), Value::from(patch));
    }
    Ok(review)
}

async fn respond(handler: &Handler, body: &[u8]) -> Result<AdmissionReview<DynamicObject>, String> {
    let review: AdmissionReview<Object> = serde_json::from_slice(body)
        .map_err(|error| format!("not an AdmissionReview of admission.k8s.io/v1: {error}"))?;
    let request: AdmissionRequest<Object> =
        review.try_into().map_err(|_| "the AdmissionReview has no request".to_owned())?;
    let mut response = AdmissionResponse::from(&request);
    // A deletion has no new object.
    let object = request.object.as_ref().or(request.old_object.as_ref());
    let Some(object) = object else { return Ok(response.into_review()) };
    let (object, old) = (object.value(), request.old_object.as_ref().map(Object::value));
    let reviewed = ReviewRequest {
        namespace: request.namespace.as_deref().unwrap_or_default(),
        object: &object,
        old: old.as_deref(),
    };
    let mut answer = handler(&reviewed);
    while let ReviewOutcome::Deferred(later) = answer {
        answer = later.await;
    }
    let response = match answer {
        ReviewOutcome::Allow | ReviewOutcome::Deferred(_) => response,
        ReviewOutcome::Warn(warnings) => {
            response.warnings = Some(warnings);
            response
        }
        ReviewOutcome::Deny(reasons) => deny(response, &reasons),
        ReviewOutcome::Mutate(wanted) => mutate(response, &object, &wanted)?,
    };
    if response.allowed && !request.dry_run && request.object.is_some() {
        let user = request.user_info.username.as_deref().unwrap_or_default();
        operator_requests::audit(user, &object, old.as_deref());
    }
    Ok(response.into_review())
}

/// Joins the errors as Kubernetes does for one object: a single one as it is, several in brackets.
/// The code is 403 even for invalid objects, as from Kueue's webhooks.
fn deny(response: AdmissionResponse, reasons: &[String]) -> AdmissionResponse {
    let message = match reasons {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let mut response = response.deny(message);
    response.result.code = 403;
    response.result.reason = "Forbidden".into();
    response
}

fn mutate(
    response: AdmissionResponse,
    from: &Value,
    to: &Value,
) -> Result<AdmissionResponse, String> {
    let operations = json_patch(from, to);
    if operations.is_empty() {
        return Ok(response);
    }
    let patch =
        serde_json::from_value(Value::Array(operations)).map_err(|error| error.to_string())?;
    response.with_patch(patch).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::needless_pass_by_value, reason = "literals read better by value")]

    use serde_json::json;

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn ask(
        handler: impl Fn(&ReviewRequest<'_>) -> ReviewOutcome + Send + Sync + 'static,
        request: Value,
    ) -> Value {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let handler: Handler = Arc::new(handler);
        now(review(&handler, body.to_string().as_bytes())).unwrap()
    }

    fn create() -> Value {
        json!({
            "uid": "u1", "operation": "CREATE", "namespace": "ns", "name": "a", "dryRun": false, "userInfo": {},
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "object": {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"x": 1}},
        })
    }

    #[test]
    fn change_returns_a_patch() {
        let got = ask(
            |request| {
                let mut wanted = request.object.clone();
                wanted["spec"]["suspend"] = json!(true);
                ReviewOutcome::Mutate(Box::new(wanted))
            },
            create(),
        );
        let patch = STANDARD.decode(got["response"]["patch"].as_str().unwrap());
        assert_eq!(
            String::from_utf8(patch.unwrap()).unwrap(),
            r#"[{"op":"add","path":"/spec/suspend","value":true}]"#
        );
        assert_eq!(
            (got["response"]["uid"].as_str(), got["response"]["allowed"].as_bool()),
            (Some("u1"), Some(true))
        );
    }

    #[test]
    fn no_change_returns_no_patch() {
        let got = ask(|request| ReviewOutcome::Mutate(Box::new(request.object.clone())), create());
        assert!(got["response"].get("patch").is_none_or(Value::is_null));
    }

    #[test]
    fn deferred_decision_is_awaited() {
        let got = ask(
            |_| {
                ReviewOutcome::Deferred(Box::pin(async {
                    ReviewOutcome::Deny(vec!["a: bad".into()])
                }))
            },
            create(),
        );
        assert_eq!(got["response"]["allowed"], false);
    }

    #[test]
    fn warning_allows_the_request() {
        let got = ask(|_| ReviewOutcome::Warn(vec!["odd".into()]), create());
        assert_eq!(
            (&got["response"]["allowed"], &got["response"]["warnings"]),
            (&json!(true), &json!(["odd"]))
        );
    }

    #[test]
    fn denial_carries_all_reasons() {
        let got = ask(|_| ReviewOutcome::Deny(vec!["a: bad".into(), "b: worse".into()]), create());
        assert_eq!(got["response"]["allowed"], false);
        assert_eq!(got["response"]["status"]["message"], "[a: bad, b: worse]");
        assert_eq!(got["response"]["status"]["code"], 403);
    }

    #[test]
    fn invalid_review_is_rejected_with_reason() {
        let handler: Handler = Arc::new(|_| ReviewOutcome::Allow);
        assert!(now(review(&handler, b"{}")).unwrap_err().starts_with("not an AdmissionReview"));
        let empty =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string();
        assert_eq!(
            now(review(&handler, empty.as_bytes())).unwrap_err(),
            "the AdmissionReview has no request"
        );
    }
}
