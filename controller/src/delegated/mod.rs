//! Who asks, and whether they may: left to the API server, as every server beside it leaves it.
//!
//! A request comes either from the API server, which has authenticated somebody and says so in headers that are believed
//! because of the certificate it shows ([`front_proxy`]), or from anybody else with a bearer token, which is reviewed. Either
//! way the API server is then asked whether that user may do what the request does.

pub(crate) mod front_proxy;
mod refusal;

use std::collections::BTreeMap;

use axum::http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use self::front_proxy::FrontProxy;
pub(crate) use self::refusal::Refusal;
use crate::write::answered;

/// May do everything, without being looked up.
const MASTERS: &str = "system:masters";

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
                spec.non_resource_attributes = Some(NonResourceAttributes { path: Some(path.clone()), verb });
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
pub(crate) struct Guard {
    client: Client,
}

impl Guard {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Whether a request with these headers may read `wanted`. `proxy` is given where its connection showed the certificate
    /// of the API server's front proxy.
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
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = answered(api.create(&PostParams::default(), &review)).await.map_err(|e| Refusal::unknown(&e))?;
        let status = answer.status.filter(|status| status.authenticated == Some(true));
        status.and_then(|status| status.user).map(User::from).ok_or_else(Refusal::unauthorized)
    }

    async fn allows(&self, user: &User, wanted: &Wanted) -> Result<bool, Refusal> {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = wanted.review(user);
        let answer = answered(api.create(&PostParams::default(), &review)).await.map_err(|e| Refusal::unknown(&e))?;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(namespace: &str) -> Wanted {
        let (resource, subresource) = ("localqueues", "pendingworkloads");
        let (version, name) = ("v1beta2".to_owned(), "q".to_owned());
        Wanted::Subresource {
            group: "example.org",
            version,
            resource,
            subresource,
            namespace: namespace.to_owned(),
            name,
        }
    }

    #[test]
    fn the_api_server_is_asked_about_the_user_and_what_is_read() {
        let user = User { name: "ann".to_owned(), groups: vec!["dev".to_owned()], ..User::default() };
        let spec = wanted("team").review(&user).spec;
        let asked = spec.resource_attributes.unwrap();
        assert_eq!((asked.verb.as_deref(), asked.namespace.as_deref()), (Some("get"), Some("team")));
        assert_eq!((asked.subresource.as_deref(), asked.name.as_deref()), (Some("pendingworkloads"), Some("q")));
        assert_eq!((spec.user.as_deref(), spec.groups), (Some("ann"), Some(vec!["dev".to_owned()])));
        assert_eq!(wanted("").review(&user).spec.resource_attributes.unwrap().namespace, None);
        let path = Wanted::Path("/metrics".to_owned()).review(&user).spec;
        assert_eq!(path.non_resource_attributes.unwrap().path.as_deref(), Some("/metrics"));
        assert_eq!(path.resource_attributes, None);
    }

    #[test]
    fn a_refusal_says_who_may_not_do_what() {
        assert_eq!(
            wanted("team").forbidden("ann"),
            "localqueues.example.org \"q\" is forbidden: User \"ann\" cannot get resource \
             \"localqueues/pendingworkloads\" in API group \"example.org\" in the namespace \"team\""
        );
        assert!(wanted("").forbidden("ann").ends_with("at the cluster scope"));
    }

    #[test]
    fn a_token_is_what_follows_bearer() {
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        assert_eq!(bearer(&with("Bearer abc")), Some("abc"));
        assert_eq!(bearer(&with("bearer  abc ")), Some("abc"));
        for none in ["Bearer ", "Basic abc", "abc"] {
            assert_eq!(bearer(&with(none)), None, "{none}");
        }
    }
}
