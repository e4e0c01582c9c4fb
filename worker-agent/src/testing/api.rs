//! An API server with Secrets only, whose watches report nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

type Secrets = Arc<Mutex<BTreeMap<String, Value>>>;

pub(crate) fn api() -> kube::Client {
    let secrets = Secrets::default();
    let service = tower::service_fn(move |request: Request<Body>| answer(secrets.clone(), request));
    kube::Client::new(service, "default")
}

async fn answer(secrets: Secrets, request: Request<Body>) -> Result<Response<Body>, Infallible> {
    if request.uri().query().is_some_and(|query| query.contains("watch=")) {
        return std::future::pending().await;
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if !path.contains("/secrets") {
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
        return Ok(reply(StatusCode::OK, &list));
    }
    let body = request.into_body().collect_bytes().await.unwrap_or_default();
    let mut secrets = secrets.lock().unwrap();
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(match method {
        Method::GET => match secrets.get(&name) {
            Some(secret) => reply(StatusCode::OK, secret),
            None => failure(StatusCode::NOT_FOUND, "NotFound"),
        },
        Method::POST | Method::PUT => {
            let mut secret: Value = serde_json::from_slice(&body).unwrap();
            let name = secret["metadata"]["name"].as_str().unwrap().to_owned();
            if method == Method::POST && secrets.contains_key(&name) {
                return Ok(failure(StatusCode::CONFLICT, "AlreadyExists"));
            }
            secret["metadata"]["resourceVersion"] = "2".into();
            secrets.insert(name, secret.clone());
            reply(StatusCode::CREATED, &secret)
        }
        _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
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
