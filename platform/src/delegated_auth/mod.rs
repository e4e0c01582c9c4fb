//! Who asks, and whether they may: left to the API server, as every server beside it leaves it.
//!
//! A request comes either from the API server, which has authenticated somebody and says so in headers that are believed
//! because of the certificate it shows ([`front_proxy`]), or from anybody else with a bearer token, which is reviewed. Either
//! way the API server is then asked whether that user may do what the request does. Its answers are kept for a short while
//! ([`answers`]), and it is asked a few questions at once at most, so that nobody can have it flooded through us.

mod answers;
pub(crate) mod front_proxy;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::answers::{Answers, Asked};
use self::front_proxy::FrontProxy;
pub(crate) use self::refusal::Refusal;
use switchyard_platform::api_call::with_deadline;

/// May do everything, without being looked up.
const MASTERS: &str = "system:masters";
/// The API server is asked so much at once. More would be somebody's flood, and our own writes go the same way.
const AT_ONCE: usize = 16;
/// A request may wait this long for its turn to be asked about.
const TURN: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
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

/// What a request reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A path that is no object's.
    Path(String),
    /// An object's subresource.
    Subresource {
        group: &'static str,
        version: String,
        resource: &'static str,
        subresource: &'static str,
        /// Empty where there is none.
        namespace: String,
        name: String,
    },
}

impl Wanted {
    /// What the API server is asked.
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

    /// As the API server words it when it refuses.
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

/// Lets requests pass that the API server allows.
#[derive(Clone)]
pub(crate) struct Guard(Arc<Shared>);

struct Shared {
    client: Client,
    /// Whose a token is; none: nobody's.
    users: Mutex<Answers<Option<User>>>,
    allowed: Mutex<Answers<bool>>,
    turns: Semaphore,
}

impl Guard {
    pub(crate) fn new(client: Client) -> Self {
        let (users, allowed) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { client, users, allowed, turns: Semaphore::new(AT_ONCE) }))
    }

    /// Whether a request with these headers may read `wanted`. `proxy` is given where its connection showed the certificate
    /// of the API server's front proxy. A request without credentials is refused without a question.
    ///
    /// # Errors
    /// What to answer instead.
    pub(crate) async fn pass(
        &self,
        headers: &HeaderMap,
        proxy: Option<&FrontProxy>,
        wanted: &Wanted,
    ) -> Result<(), Refusal> {
        let user = match (proxy.and_then(|proxy| proxy.user(headers)), bearer(headers)) {
            (Some(user), _) => user,
            (None, Some(token)) => self.authenticate(token).await?,
            (None, None) => return Err(Refusal::unauthorized()),
        };
        if user.groups.iter().any(|group| group == MASTERS) || self.allows(&user, wanted).await? {
            return Ok(());
        }
        Err(Refusal::new(StatusCode::FORBIDDEN, "Forbidden", wanted.forbidden(&user.name)))
    }

    async fn authenticate(&self, token: &str) -> Result<User, Refusal> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let user = self.ask(&self.0.users, &review, |answer| {
            let status = answer.status.filter(|status| status.authenticated == Some(true));
            status.and_then(|status| status.user).map(User::from)
        });
        user.await?.ok_or_else(Refusal::unauthorized)
    }

    async fn allows(&self, user: &User, wanted: &Wanted) -> Result<bool, Refusal> {
        let allowed = |answer: SubjectAccessReview| {
            answer.status.is_some_and(|status| status.allowed && status.denied != Some(true))
        };
        self.ask(&self.0.allowed, &wanted.review(user), allowed).await
    }

    /// The answer to a review: a kept one, or the API server's.
    async fn ask<K, V: Clone>(
        &self,
        kept: &Mutex<Answers<V>>,
        review: &K,
        read: impl FnOnce(K) -> V,
    ) -> Result<V, Refusal>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let asked = Asked::of(review);
        let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = || asked.and_then(|asked| lock().get(asked, Instant::now()));
        if let Some(answer) = known() {
            return Ok(answer);
        }
        let turn = tokio::time::timeout(TURN, self.0.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(Refusal::busy()) };
        // Somebody may have asked the same meanwhile.
        if let Some(answer) = known() {
            return Ok(answer);
        }
        let api: Api<K> = Api::all(self.0.client.clone());
        let answer = with_deadline(api.create(&PostParams::default(), review))
            .await
            .map_err(|e| Refusal::unknown(&e))?;
        let answer = read(answer);
        if let Some(asked) = asked {
            lock().keep(asked, answer.clone(), Instant::now());
        }
        Ok(answer)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}
