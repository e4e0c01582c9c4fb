use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::{Request, Response};
use axum::response::IntoResponse;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

fn target(namespace: &str) -> AccessTarget {
    let (resource, subresource) = ("localqueues", "pendingworkloads");
    let (version, name) = ("v1beta2".to_owned(), "q".to_owned());
    AccessTarget::Subresource {
        group: "example.org",
        version,
        resource,
        subresource,
        namespace: namespace.to_owned(),
        name,
    }
}

#[test]
fn review_names_user_and_resource() {
    let user = User { name: "ann".to_owned(), groups: vec!["dev".to_owned()], ..User::default() };
    let spec = target("team").review(&user).spec;
    let asked = spec.resource_attributes.unwrap();
    assert_eq!((asked.verb.as_deref(), asked.namespace.as_deref()), (Some("get"), Some("team")));
    assert_eq!(
        (asked.subresource.as_deref(), asked.name.as_deref()),
        (Some("pendingworkloads"), Some("q"))
    );
    assert_eq!((spec.user.as_deref(), spec.groups), (Some("ann"), Some(vec!["dev".to_owned()])));
    assert_eq!(target("").review(&user).spec.resource_attributes.unwrap().namespace, None);
    let path = AccessTarget::Path("/metrics".to_owned()).review(&user).spec;
    assert_eq!(path.non_resource_attributes.unwrap().path.as_deref(), Some("/metrics"));
    assert_eq!(path.resource_attributes, None);
}

#[test]
fn refusal_names_user_and_resource() {
    assert_eq!(
        target("team").forbidden("ann"),
        "localqueues.example.org \"q\" is forbidden: User \"ann\" cannot get resource \
         \"localqueues/pendingworkloads\" in API group \"example.org\" in the namespace \"team\""
    );
    assert!(target("").forbidden("ann").ends_with("at the cluster scope"));
}

#[test]
fn bearer_token_is_parsed() {
    let with =
        |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
    assert_eq!(bearer(&with("Bearer abc")), Some("abc"));
    assert_eq!(bearer(&with("bearer  abc ")), Some("abc"));
    for none in ["Bearer ", "Basic abc", "abc"] {
        assert_eq!(bearer(&with(none)), None, "{none}");
    }
}

/// An API server that counts reviews, allows ann everything, and answers slowly.
#[derive(Default)]
struct Server {
    asked: AtomicUsize,
    at_once: AtomicUsize,
    most: AtomicUsize,
}

impl Server {
    fn guard(self: &Arc<Self>) -> Guard {
        let server = self.clone();
        let answer =
            tower::service_fn(move |request: Request<Body>| answer(server.clone(), request));
        Guard::new(Client::new(answer, "default"))
    }

    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }
}

async fn answer(server: Arc<Server>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
    server.asked.fetch_add(1, Ordering::SeqCst);
    server.most.fetch_max(server.at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.at_once.fetch_sub(1, Ordering::SeqCst);
    let mut review: Value =
        serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
    let known = review["spec"]["token"].as_str().map(|token| token.starts_with("ann"));
    review["status"] = match known {
        Some(known) => json!({"authenticated": known, "user": {"username": "ann"}}),
        None => {
            json!({"allowed": review["spec"]["user"] == "ann" && review["spec"]["nonResourceAttributes"]["path"] == "/metrics"})
        }
    };
    Ok(Response::builder().status(201).body(Body::from(review.to_string().into_bytes())).unwrap())
}

async fn authorize(guard: &Guard, token: &str, path: &str) -> StatusCode {
    let mut headers = HeaderMap::new();
    if !token.is_empty() {
        headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    }
    let passed = guard.authorize(&headers, None, &AccessTarget::Path(path.to_owned())).await;
    passed.map_or_else(|refusal| refusal.into_response().status(), |()| StatusCode::OK)
}

#[tokio::test(start_paused = true)]
async fn reviews_are_cached_and_skipped_without_credentials() {
    let server = Arc::new(Server::default());
    let guard = server.guard();
    for (sentence, token, path, code, questions) in [
        ("whose the token is, and whether that is allowed", "ann-1", "/metrics", 200, 2),
        ("nothing more", "ann-1", "/metrics", 200, 0),
        ("whether something else is allowed", "ann-1", "/other", 403, 1),
        ("nothing of what is refused either", "ann-1", "/other", 403, 0),
        ("whose another token is", "ann-2", "/metrics", 200, 1),
        ("whose an unknown token is", "bob", "/metrics", 401, 1),
        ("not again", "bob", "/metrics", 401, 0),
        ("nothing where there is no token", "", "/metrics", 401, 0),
    ] {
        assert_eq!(authorize(&guard, token, path).await.as_u16(), code, "{sentence}");
        assert_eq!(server.asked(), questions, "{sentence}");
    }
    tokio::time::advance(answers::KEPT).await;
    assert_eq!((authorize(&guard, "ann-1", "/metrics").await.as_u16(), server.asked()), (200, 2));
}

#[tokio::test(start_paused = true)]
async fn token_flood_is_bounded_and_rest_is_refused_as_busy() {
    let server = Arc::new(Server::default());
    let guard = server.guard();
    let tokens: Vec<String> = (0..2000).map(|number| format!("bob-{number}")).collect();
    let answers =
        futures::future::join_all(tokens.iter().map(|token| authorize(&guard, token, "/metrics")))
            .await;
    assert_eq!(server.most.load(Ordering::SeqCst), AT_ONCE);
    let busy = answers.iter().filter(|code| **code == StatusCode::TOO_MANY_REQUESTS).count();
    let asked = server.asked();
    assert!(
        (1..=AT_ONCE * 50 + AT_ONCE).contains(&asked),
        "{asked} in five seconds of a tenth each"
    );
    assert_eq!(busy + asked, 2000);
}

#[tokio::test(start_paused = true)]
async fn concurrent_equal_requests_share_one_review() {
    let server = Arc::new(Server::default());
    let guard = server.guard();
    let answers =
        futures::future::join_all((0..500).map(|_| authorize(&guard, "ann", "/metrics"))).await;
    assert!(answers.iter().all(|code| *code == StatusCode::OK));
    assert!(server.asked() <= 2 * AT_ONCE);
}
