//! Where the authority and the tokens are kept: two Secrets in the hub's namespace.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ObjectMeta, PostParams};
use switchyard_agent::proof::RootKey;
use switchyard_api::names;

use super::authority::Authority;
use super::ca::Ca;
use super::token::{Token, TokenBook, TokenError};

/// Holds the authority (`tls.crt`, `tls.key`; [`Authority`] says what is beside them while it is being replaced), `hub-id`
/// and `hub-address`.
pub const CA_SECRET: &str = "switchyard-hub-ca";
/// Holds the join tokens, hashed, one entry each.
pub const TOKEN_SECRET: &str = "switchyard-join-tokens";
/// Key of [`CA_SECRET`]: where agents dial, for people who make tokens.
pub const ADDRESS_KEY: &str = "hub-address";
/// Key of [`CA_SECRET`]: the hub's identity.
pub const HUB_ID_KEY: &str = "hub-id";
/// Key of [`CA_SECRET`]: from it the keys of copies are derived.
pub const COPY_KEY: &str = "copies.key";
/// Key of [`CA_SECRET`]: the uids of kubeconfig workers whose key is in force, one a line.
pub const PROVED_KEY: &str = "copies.in-force";

/// Uids that [`PROVED_KEY`] holds. The oldest go first, which has those workers looked at again.
const MAX_PROVED: usize = 4096;

/// Writers of the same Secret that may win before us, one after another, until we give up.
const ATTEMPTS: usize = 16;
const FIELD_MANAGER: &str = "switchyard";

/// The authority and the identity that goes with it.
#[derive(Debug)]
pub struct Stored {
    /// The authority.
    pub authority: Authority,
    /// The hub's identity.
    pub hub_id: String,
    /// Since when the hub remembers what it has done; none if it has never forgotten anything.
    pub memory_since: Option<Timestamp>,
    /// From it the keys of copies are derived.
    pub copy_key: RootKey,
}

/// Reads the authority, or makes it. Of several replicas that try at once, one creates it and all use that one.
///
/// `hub_id` is used only for a new authority; a Secret that holds one keeps it. `address` is written when it changed.
///
/// # Errors
/// When the API refuses, or the Secret holds something unusable: it is never overwritten, since every agent's trust
/// hangs on it.
pub async fn load_or_create(
    secrets: &Api<Secret>,
    hub_id: &str,
    address: Option<&str>,
    now: Timestamp,
) -> anyhow::Result<Stored> {
    for _ in 0..ATTEMPTS {
        if let Some(secret) = secrets.get_opt(CA_SECRET).await.context("reading the CA Secret")? {
            let memory = memory_since(&secret, hub_id, now)?;
            if let Some((since, true)) = memory {
                match secrets.replace(CA_SECRET, &post(), &remembering(secret, since)).await {
                    // Read again what it says now.
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.is_conflict() => {}
                    Err(error) => {
                        return Err(error)
                            .context("writing to the CA Secret since when the hub remembers");
                    }
                }
                continue;
            }
            let Some(copy_key) = copy_key(&secret)? else {
                match secrets.replace(CA_SECRET, &post(), &with_copy_key(secret)).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.is_conflict() => {}
                    Err(error) => {
                        return Err(error).context("writing the key of copies to the CA Secret");
                    }
                }
                continue;
            };
            let Identity { authority, hub_id } = read(&secret)?;
            publish_address(secrets, secret, address).await?;
            return Ok(Stored {
                authority,
                hub_id,
                memory_since: memory.map(|(since, _)| since),
                copy_key,
            });
        }
        let authority = Authority::new(Ca::generate(hub_id, now)?);
        let mut data =
            BTreeMap::from([(HUB_ID_KEY.to_owned(), ByteString(hub_id.as_bytes().to_vec()))]);
        authority.write(&mut data);
        if let Some(address) = address {
            data.insert(ADDRESS_KEY.to_owned(), ByteString(address.as_bytes().to_vec()));
        }
        let secret = with_copy_key(Secret {
            metadata: named(CA_SECRET),
            data: Some(data),
            ..Secret::default()
        });
        match secrets.create(&post(), &secret).await {
            // Read again, as the other replicas do.
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error).context("creating the CA Secret"),
        }
    }
    bail!("the Secret {CA_SECRET} appears and disappears; another program fights over it")
}

/// The authority, and whose it is.
struct Identity {
    authority: Authority,
    hub_id: String,
}

/// The root of the keys of copies; none in a Secret of an earlier version.
fn copy_key(secret: &Secret) -> anyhow::Result<Option<RootKey>> {
    let Some(text) = secret.data.as_ref().and_then(|data| data.get(COPY_KEY)) else {
        return Ok(None);
    };
    let key = RootKey::parse(&text.0);
    let key = key
        .with_context(|| format!("the Secret {CA_SECRET}: {COPY_KEY} is not 32 bytes in base64"))?;
    Ok(Some(key))
}

/// With a new one. Of what was said to be in force, nothing is by it.
fn with_copy_key(mut secret: Secret) -> Secret {
    let data = secret.data.get_or_insert_default();
    data.insert(COPY_KEY.to_owned(), ByteString(RootKey::generate().text().into_bytes()));
    data.remove(PROVED_KEY);
    secret
}

/// The uids of kubeconfig workers whose key is in force, oldest first.
fn proved(secret: &Secret) -> Vec<String> {
    let text = secret.data.as_ref().and_then(|data| data.get(PROVED_KEY));
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Whether the key of the kubeconfig worker with this uid is in force.
///
/// # Errors
/// When the API refuses, or the Secret is gone.
pub async fn is_proved(secrets: &Api<Secret>, uid: &str) -> anyhow::Result<bool> {
    Ok(proved(&existing(secrets).await?).iter().any(|known| known == uid))
}

/// Notes that the key of the kubeconfig worker with this uid is in force.
///
/// # Errors
/// As [`is_proved`]; or others wrote the Secret each time.
pub async fn note_proved(secrets: &Api<Secret>, uid: &str) -> anyhow::Result<()> {
    for _ in 0..ATTEMPTS {
        let secret = existing(secrets).await?;
        let uids = proved(&secret);
        if uids.iter().any(|known| known == uid) {
            return Ok(());
        }
        match secrets.replace(CA_SECRET, &post(), &with_proved(secret, uids, uid)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error).context("writing the CA Secret"),
        }
    }
    bail!("the Secret {CA_SECRET} kept changing")
}

fn with_proved(mut secret: Secret, mut uids: Vec<String>, uid: &str) -> Secret {
    uids.push(uid.to_owned());
    let kept = &uids[uids.len().saturating_sub(MAX_PROVED)..];
    let text = kept.join("\n") + "\n";
    secret
        .data
        .get_or_insert_default()
        .insert(PROVED_KEY.to_owned(), ByteString(text.into_bytes()));
    secret
}

fn read(secret: &Secret) -> anyhow::Result<Identity> {
    let data = secret.data.clone().unwrap_or_default();
    let id = data
        .get(HUB_ID_KEY)
        .with_context(|| format!("the Secret {CA_SECRET} has no key \"{HUB_ID_KEY}\""))?;
    let hub_id = String::from_utf8(id.0.clone())
        .with_context(|| format!("{CA_SECRET}: {HUB_ID_KEY} is not text"))?;
    let authority = Authority::read(&data)
        .with_context(|| format!("the Secret {CA_SECRET} is kept as it is; mend or delete it"))?;
    Ok(Identity { authority, hub_id: hub_id.trim().to_owned() })
}

/// Since when the hub of this cluster, whose id would be `own` if it were new, remembers what it has done; and whether that is
/// to be written down.
///
/// People say it by an annotation. If they do not, an identity that is not this cluster's own was brought here from a backup,
/// and the hub remembers nothing from before it first began here. That it writes down as the annotation; one that is older than
/// the Secret came with the backup, from an earlier loss.
fn memory_since(
    secret: &Secret,
    own: &str,
    now: Timestamp,
) -> anyhow::Result<Option<(Timestamp, bool)>> {
    let said = match secret.annotations().get(names::MEMORY_SINCE) {
        None => None,
        Some(said) => Some(said.parse::<Timestamp>().with_context(|| {
            format!(
                "the Secret {CA_SECRET}: annotation {} is {said:?}, not a time in RFC 3339",
                names::MEMORY_SINCE
            )
        })?),
    };
    if read(secret)?.hub_id == own {
        return Ok(said.map(|since| (since, false)));
    }
    let created =
        secret.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |created| created.0);
    Ok(Some(match said.filter(|since| *since >= created) {
        Some(since) => (since, false),
        None => (now.max(created), true),
    }))
}

/// Reads the authority again. With `step`, the next step of a replacement is taken if it is due; of several writers, one
/// takes it.
///
/// # Errors
/// When the API refuses, or the Secret is gone or holds something unusable.
pub async fn look(secrets: &Api<Secret>, step: bool, now: Timestamp) -> anyhow::Result<Authority> {
    let secret = existing(secrets).await?;
    let authority = read(&secret)?.authority;
    match authority.step(now).filter(|_| step) {
        None => Ok(authority),
        Some(next) => {
            put(secrets, secret, &next).await?;
            Ok(next)
        }
    }
}

/// Begins to replace the authority by a new one; see [`Authority::replace`].
///
/// # Errors
/// When it is being replaced already, the API refuses, or there is none yet.
pub async fn replace(secrets: &Api<Secret>, now: Timestamp) -> anyhow::Result<Authority> {
    let secret = existing(secrets).await?;
    let Identity { authority, hub_id } = read(&secret)?;
    let next = authority.replace(Ca::generate(&hub_id, now)?)?;
    put(secrets, secret, &next).await?;
    Ok(next)
}

/// Says that the hub remembers nothing from before `since`. Where there is no authority, makes a new one for the hub of this
/// id. Returns the hub's id, and whether its authority is new.
///
/// # Errors
/// When the API refuses, there is neither authority nor id, or the authority is another hub's.
pub async fn recover(
    secrets: &Api<Secret>,
    hub_id: Option<&str>,
    since: Timestamp,
) -> anyhow::Result<(String, bool)> {
    let found = secrets.get_opt(CA_SECRET).await.context("reading the CA Secret")?;
    if let Some(secret) = found {
        let there = read(&secret)?.hub_id;
        if let Some(id) = hub_id.filter(|id| *id != there) {
            bail!(
                "the Secret {CA_SECRET} is hub {there}'s, not {id}'s; delete it if it is the one of a new hub"
            );
        }
        secrets
            .replace(CA_SECRET, &post(), &remembering(secret, since))
            .await
            .context("writing the CA Secret")?;
        return Ok((there, false));
    }
    let Some(id) = hub_id else {
        bail!(
            "there is no Secret {CA_SECRET}: restore it from a backup, or name the hub's id with --hub-id"
        );
    };
    let mut data = BTreeMap::from([(HUB_ID_KEY.to_owned(), ByteString(id.as_bytes().to_vec()))]);
    Authority::new(Ca::generate(id, since)?).write(&mut data);
    let secret = Secret { metadata: named(CA_SECRET), data: Some(data), ..Secret::default() };
    secrets.create(&post(), &remembering(secret, since)).await.context("creating the CA Secret")?;
    Ok((id.to_owned(), true))
}

/// With the annotation that says since when the hub remembers.
fn remembering(mut secret: Secret, since: Timestamp) -> Secret {
    secret.annotations_mut().insert(names::MEMORY_SINCE.to_owned(), since.to_string());
    secret
}

async fn existing(secrets: &Api<Secret>) -> anyhow::Result<Secret> {
    let secret = secrets.get_opt(CA_SECRET).await.context("reading the CA Secret")?;
    secret.with_context(|| format!("there is no Secret {CA_SECRET}; start the hub once"))
}

async fn put(
    secrets: &Api<Secret>,
    mut secret: Secret,
    authority: &Authority,
) -> anyhow::Result<()> {
    authority.write(secret.data.get_or_insert_default());
    secrets.replace(CA_SECRET, &post(), &secret).await.context("writing the CA Secret").map(drop)
}

/// Best effort under the resource version: another replica writes the same.
async fn publish_address(
    secrets: &Api<Secret>,
    mut secret: Secret,
    address: Option<&str>,
) -> anyhow::Result<()> {
    let Some(address) = address else { return Ok(()) };
    let data = secret.data.get_or_insert_default();
    if data.get(ADDRESS_KEY).is_some_and(|known| known.0 == address.as_bytes()) {
        return Ok(());
    }
    data.insert(ADDRESS_KEY.to_owned(), ByteString(address.as_bytes().to_vec()));
    match secrets.replace(CA_SECRET, &post(), &secret).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
        Err(error) => Err(error).context("writing the hub's address to the CA Secret"),
    }
}

/// Why a token was not redeemed.
#[derive(Debug, thiserror::Error)]
pub enum RedeemError {
    /// It is not good.
    #[error(transparent)]
    Refused(#[from] TokenError),
    /// The API did not let us find out.
    #[error("the token Secret could not be read or written: {0}")]
    Api(#[from] kube::Error),
    /// The API server did not answer.
    #[error("the token Secret was not read in time")]
    Late,
    /// Others wrote the Secret each time we tried.
    #[error("the token Secret is too contended")]
    Contended,
}

/// All join tokens.
///
/// # Errors
/// When the API refuses.
pub async fn tokens(secrets: &Api<Secret>) -> Result<TokenBook, kube::Error> {
    Ok(secrets.get_opt(TOKEN_SECRET).await?.as_ref().map(book).unwrap_or_default())
}

/// Uses `token` up for a signing request. When this returns `Ok`, it is marked as used in the API, and by that request alone.
///
/// # Errors
/// [`RedeemError`]; the token is then not used up, except when the API failed while it may have written. The same request may then
/// be repeated.
pub async fn redeem(
    secrets: &Api<Secret>,
    token: &Token,
    csr: &[u8],
    now: Timestamp,
) -> Result<(), RedeemError> {
    for _ in 0..ATTEMPTS {
        let Some(secret) = secrets.get_opt(TOKEN_SECRET).await? else {
            return Err(TokenError::Unknown.into());
        };
        let mut book = book(&secret);
        if !book.redeem(token, csr, now.as_second())? {
            return Ok(());
        }
        match write(secrets, secret, &book).await {
            Ok(()) => return Ok(()),
            // Another token was made or used meanwhile, or this one by another caller: look again.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(RedeemError::Contended)
}

/// Adds a token, for the command line.
///
/// # Errors
/// As [`redeem`].
pub async fn add(
    secrets: &Api<Secret>,
    token: &Token,
    ttl_seconds: i64,
    now: Timestamp,
) -> Result<(), RedeemError> {
    for _ in 0..ATTEMPTS {
        let found = secrets.get_opt(TOKEN_SECRET).await?;
        let mut book = found.as_ref().map(book).unwrap_or_default();
        book.add(token, ttl_seconds, now.as_second())?;
        let written = match found {
            Some(secret) => write(secrets, secret, &book).await,
            None => {
                let secret = Secret {
                    metadata: named(TOKEN_SECRET),
                    data: Some(data(&book)),
                    ..Secret::default()
                };
                secrets.create(&post(), &secret).await.map(drop)
            }
        };
        match written {
            Ok(()) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(RedeemError::Contended)
}

/// Drops expired tokens. Returns how many; a conflict leaves them for the next time.
///
/// # Errors
/// When the API refuses.
pub async fn sweep(secrets: &Api<Secret>, now: Timestamp) -> Result<usize, kube::Error> {
    let Some(secret) = secrets.get_opt(TOKEN_SECRET).await? else { return Ok(0) };
    let mut book = book(&secret);
    let swept = book.sweep(now.as_second());
    if swept == 0 {
        return Ok(0);
    }
    match write(secrets, secret, &book).await {
        Ok(()) => Ok(swept),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(0),
        Err(error) => Err(error),
    }
}

fn book(secret: &Secret) -> TokenBook {
    let entries = secret.data.iter().flatten().map(|(id, json)| (id.as_str(), json.0.as_slice()));
    TokenBook::from_entries(entries)
}

fn data(book: &TokenBook) -> BTreeMap<String, ByteString> {
    book.entries().map(|(id, json)| (id, ByteString(json))).collect()
}

/// Replaces under the resource version that was read: the precondition of "once".
async fn write(
    secrets: &Api<Secret>,
    mut secret: Secret,
    book: &TokenBook,
) -> Result<(), kube::Error> {
    secret.data = Some(data(book));
    secrets.replace(TOKEN_SECRET, &post(), &secret).await.map(drop)
}

fn named(name: &str) -> ObjectMeta {
    let labels =
        BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "switchyard".to_owned())]);
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_with_a_key_in_force_are_noted_up_to_a_bound() {
        let mut secret = with_copy_key(Secret::default());
        assert!(copy_key(&secret).unwrap().is_some());
        for index in 0..MAX_PROVED + 2 {
            let uids = proved(&secret);
            secret = with_proved(secret, uids, &format!("uid-{index}"));
        }
        let uids = proved(&secret);
        assert_eq!((uids.len(), uids[0].as_str()), (MAX_PROVED, "uid-2"));
        assert_eq!(proved(&with_copy_key(secret)), [""; 0], "nothing is in force by another key");
    }

    #[test]
    fn secret_with_no_key_of_copies_is_told_from_one_that_is_broken() {
        let with = |text: &str| {
            let data =
                BTreeMap::from([(COPY_KEY.to_owned(), ByteString(text.as_bytes().to_vec()))]);
            copy_key(&Secret { data: Some(data), ..Secret::default() })
        };
        assert!(copy_key(&Secret::default()).unwrap().is_none());
        assert_eq!(
            with("?").unwrap_err().to_string(),
            "the Secret switchyard-hub-ca: copies.key is not 32 bytes in base64"
        );
    }

    #[test]
    fn a_hub_remembers_since_it_first_began_with_a_brought_identity_or_since_people_say() {
        let at = |day: i8| {
            jiff::civil::date(2026, 1, day).to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp()
        };
        let (created, now) = (at(2), at(9));
        let mut data = BTreeMap::from([(HUB_ID_KEY.to_owned(), ByteString(b"old".to_vec()))]);
        Authority::new(Ca::generate("old", created).unwrap()).write(&mut data);
        let secret = |annotation: Option<&str>| {
            let mut metadata = named(CA_SECRET);
            metadata.creation_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
            metadata.annotations = annotation
                .map(|it| BTreeMap::from([(names::MEMORY_SINCE.to_owned(), it.to_owned())]));
            Secret { metadata, data: Some(data.clone()), ..Secret::default() }
        };
        for (case, own, annotation, expected) in [
            ("its own", "old", None, None),
            (
                "its own, whose store people have restored",
                "old",
                Some("2026-01-03T00:00:00Z"),
                Some((at(3), false)),
            ),
            ("brought here, perhaps long before it begins", "new", None, Some((now, true))),
            ("that was written down", "new", Some("2026-01-03T00:00:00Z"), Some((at(3), false))),
            (
                "an earlier loss, from the backup",
                "new",
                Some("2026-01-01T00:00:00Z"),
                Some((now, true)),
            ),
        ] {
            assert_eq!(memory_since(&secret(annotation), own, now).unwrap(), expected, "{case}");
        }
        let written = remembering(secret(None), now);
        assert_eq!(
            memory_since(&written, "new", at(12)).unwrap(),
            Some((now, false)),
            "written down once"
        );
        let error = memory_since(&secret(Some("yesterday")), "old", now).unwrap_err().to_string();
        assert!(
            error.contains("switchyard.dev/memory-since is \"yesterday\", not a time in RFC 3339"),
            "{error}"
        );
    }
}
