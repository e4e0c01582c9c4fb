//! Delegated authentication and authorization, as in every aggregated API server.
//!
//! A request comes from the API server or from another client. The API server has authenticated the
//! user and shows its own client certificate ([`front_proxy`]). Another client sends a bearer
//! token, which a TokenReview checks. A SubjectAccessReview then decides whether the user may do
//! what the request does. Answers are cached briefly ([`answers`]), and few reviews run at once, so
//! that no client can flood the API server through this process.

mod answers;
pub mod front_proxy;
mod status_error;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::answers::{AnswerCache, QuestionDigest};
use self::front_proxy::FrontProxy;
pub use self::status_error::StatusError;
use crate::api_call::with_deadline;

/// Members may do everything, without a review.
const MASTERS: &str = "system:masters";
/// Reviews that run at once. The process's own writes share the API server with them.
const AT_ONCE: usize = 16;
/// How long a request waits for its review to start.
const TURN: Duration = Duration::from_secs(5);

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: Option<String>,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl From<UserInfo> for User {
    fn from(info: UserInfo) -> Self {
        Self {
            name: info.username.unwrap_or_default(),
            uid: info.uid,
            groups: info.groups.unwrap_or_default(),
            extra: info.extra.unwrap_or_default(),
        }
    }
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// A path that is not an object's.
    Path(String),
    /// A subresource of an object.
    Subresource {
        group: &'static str,
        version: String,
        resource: &'static str,
        subresource: &'static str,
        /// Empty for cluster-scoped objects.
        namespace: String,
        name: String,
    },
}

impl AccessTarget {
    /// The review that decides whether `user` may read this.
    fn review(&self, user: &User) -> SubjectAccessReview {
        let mut spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        let verb = Some("get".to_owned());
        match self {
            Self::Path(path) => {
                spec.non_resource_attributes =
                    Some(NonResourceAttributes { path: Some(path.clone()), verb });
            }
            Self::Subresource { group, version, resource, subresource, namespace, name } => {
                spec.resource_attributes = Some(ResourceAttributes {
                    group: Some((*group).to_owned()),
                    version: Some(version.clone()),
                    resource: Some((*resource).to_owned()),
                    subresource: Some((*subresource).to_owned()),
                    namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
                    name: Some(name.clone()),
                    verb,
                    ..ResourceAttributes::default()
                });
            }
        }
        SubjectAccessReview { spec, ..SubjectAccessReview::default() }
    }

    /// The API server's wording of a refusal.
    fn forbidden(&self, user: &str) -> String {
        match self {
            Self::Path(path) => format!("forbidden: User {user:?} cannot get path {path:?}"),
            Self::Subresource { group, resource, subresource, namespace, name, .. } => {
                let place = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                format!(
                    "{resource}.{group} {name:?} is forbidden: User {user:?} cannot get resource \
                     \"{resource}/{subresource}\" in API group {group:?} {place}"
                )
            }
        }
    }
}

/// Authenticates and authorizes requests.
#[derive(Clone)]
pub struct Guard(Arc<Shared>);

struct Shared {
    client: Client,
    /// Users by token. `None`: the token is not valid.
    users: Mutex<AnswerCache<Option<User>>>,
    allowed: Mutex<AnswerCache<bool>>,
    turns: Semaphore,
}

impl Guard {
    pub fn new(client: Client) -> Self {
        let (users, allowed) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { client, users, allowed, turns: Semaphore::new(AT_ONCE) }))
    }

    /// Decides whether a request with these headers may read `target`. `proxy` is set if the
    /// connection showed the front proxy's certificate. A request without credentials is refused
    /// without a review.
    ///
    /// # Errors
    ///
    /// The response to send instead.
    pub async fn authorize(
        &self,
        headers: &HeaderMap,
        proxy: Option<&FrontProxy>,
        target: &AccessTarget,
    ) -> Result<(), StatusError> {
        let user = match (proxy.and_then(|proxy| proxy.user(headers)), bearer(headers)) {
            (Some(user), _) => user,
            (None, Some(token)) => self.authenticate(token).await?,
            (None, None) => return Err(StatusError::unauthorized()),
        };
        if user.groups.iter().any(|group| group == MASTERS) || self.allows(&user, target).await? {
            return Ok(());
        }
        Err(StatusError::new(StatusCode::FORBIDDEN, "Forbidden", target.forbidden(&user.name)))
    }

    async fn authenticate(&self, token: &str) -> Result<User, StatusError> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let user = self.cached_review(&self.0.users, &review, |answer| {
            let status = answer.status.filter(|status| status.authenticated == Some(true));
            status.and_then(|status| status.user).map(User::from)
        });
        user.await?.ok_or_else(StatusError::unauthorized)
    }

    async fn allows(&self, user: &User, target: &AccessTarget) -> Result<bool, StatusError> {
        let allowed = |answer: SubjectAccessReview| {
            answer.status.is_some_and(|status| status.allowed && status.denied != Some(true))
        };
        self.cached_review(&self.0.allowed, &target.review(user), allowed).await
    }

    /// The answer to a review, cached or from the API server.
    async fn cached_review<K, V: Clone>(
        &self,
        kept: &Mutex<AnswerCache<V>>,
        review: &K,
        read: impl FnOnce(K) -> V,
    ) -> Result<V, StatusError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let asked = QuestionDigest::of(review);
        let known = || asked.and_then(|asked| kept.lock().get(asked, Instant::now()));
        if let Some(answer) = known() {
            return Ok(answer);
        }
        let turn = tokio::time::timeout(TURN, self.0.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(StatusError::busy()) };
        // Another request may have asked the same in the meantime.
        if let Some(answer) = known() {
            return Ok(answer);
        }
        let api: Api<K> = Api::all(self.0.client.clone());
        let answer = with_deadline(api.create(&PostParams::default(), review))
            .await
            .map_err(|e| StatusError::unknown(&e))?;
        let answer = read(answer);
        if let Some(asked) = asked {
            kept.lock().keep(asked, answer.clone(), Instant::now());
        }
        Ok(answer)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}
