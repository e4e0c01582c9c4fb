//! A worker's API server: stores Secrets, echoes other creations, and never sends a watch event.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

#[derive(Default)]
struct State {
    secrets: BTreeMap<String, Value>,
    made: u64,
}

/// A client of a new API server.
pub(crate) fn api() -> kube::Client {
    let state = Arc::new(Mutex::new(State::default()));
    kube::Client::new(
        tower::service_fn(move |request: Request<Body>| answer(state.clone(), request)),
        "default",
    )
}

async fn answer(
    state: Arc<Mutex<State>>,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    if request.uri().query().is_some_and(|query| query.contains("watch=")) {
        return std::future::pending().await;
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let body = request.into_body().collect_bytes().await.unwrap_or_default();
    let mut state = state.lock().unwrap();
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let secret = path.contains("/secrets");
    Ok(match method {
        Method::GET if secret => match state.secrets.get(&name) {
            Some(secret) => reply(StatusCode::OK, secret),
            None => failure(StatusCode::NOT_FOUND, "NotFound"),
        },
        Method::POST | Method::PUT => {
            let mut object: Value = serde_json::from_slice(&body).unwrap();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if secret && method == Method::POST && state.secrets.contains_key(&name) {
                return Ok(failure(StatusCode::CONFLICT, "AlreadyExists"));
            }
            state.made += 1;
            object["metadata"]["resourceVersion"] = state.made.to_string().into();
            object["metadata"]["uid"] = format!("made-{}", state.made).into();
            if secret {
                state.secrets.insert(name, object.clone());
            }
            reply(StatusCode::CREATED, &object)
        }
        _ => {
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
            reply(StatusCode::OK, &list)
        }
    })
}

fn reply(code: StatusCode, value: &Value) -> Response<Body> {
    let body = Body::from(value.to_string().into_bytes());
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason,
        "code": code.as_u16(),
    });
    reply(code, &status)
}
