//! Keeps the CA, the hub's id and what belongs to them in a Secret of the hub's namespace.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ObjectMeta, PostParams};
use switchyard_api::names;
use switchyard_proto::copy_key::RootKey;

use super::authority::Authority;
use super::ca::Ca;

/// Holds the CA (`tls.crt`, `tls.key`, and the keys of a rotation; see [`Authority`]), `hub-id` and
/// `hub-address`.
pub const CA_SECRET: &str = "switchyard-hub-ca";
/// Key of [`CA_SECRET`]: the address that agents dial, for join tokens.
pub const ADDRESS_KEY: &str = "hub-address";
/// Key of [`CA_SECRET`]: the hub's id.
pub const HUB_ID_KEY: &str = "hub-id";
/// Key of [`CA_SECRET`]: the root of the keys that prove copies.
pub const COPY_KEY: &str = "copies.key";
/// Key of [`CA_SECRET`]: the uids of kubeconfig workers that enforce their key, one a line.
pub const PROVED_KEY: &str = "copies.in-force";

/// Uids in [`PROVED_KEY`]. Dropping the oldest makes the hub check those workers again.
const MAX_PROVED: usize = 4096;

/// Retries after conflicts with other writers of the same Secret.
pub(crate) const CONFLICT_RETRIES: usize = 16;
const FIELD_MANAGER: &str = "switchyard";

/// The hub's id, its CA, and what belongs to it.
#[derive(Debug)]
pub struct HubIdentity {
    pub authority: Authority,
    pub hub_id: String,
    /// From when on the hub remembers its actions. None if it never lost its store.
    pub memory_since: Option<Timestamp>,
    /// The root of the keys that prove copies.
    pub copy_key: RootKey,
}

/// Reads the CA, or creates it. If several replicas try at once, all use the one that was created.
///
/// `hub_id` is for a new CA only; a Secret keeps its own. `address` is written if it changed.
///
/// # Errors
/// The API refuses, or the Secret is unusable. It is never overwritten: every agent's trust depends
/// on it.
pub async fn load_or_create(
    secrets: &Api<Secret>,
    hub_id: &str,
    address: Option<&str>,
    now: Timestamp,
) -> anyhow::Result<HubIdentity> {
    for _ in 0..CONFLICT_RETRIES {
        if let Some(secret) = secrets.get_opt(CA_SECRET).await.context("reading the CA Secret")? {
            let memory = memory_since(&secret, hub_id, now)?;
            if let Some((since, true)) = memory {
                match secrets.replace(CA_SECRET, &post(), &remembering(secret, since)).await {
                    // Read what was written.
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
            let StoredAuthority { authority, hub_id } = read(&secret)?;
            publish_address(secrets, secret, address).await?;
            return Ok(HubIdentity {
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
            // Read what was created, as the other replicas do.
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error).context("creating the CA Secret"),
        }
    }
    bail!("the Secret {CA_SECRET} appears and disappears; another program fights over it")
}

struct StoredAuthority {
    authority: Authority,
    hub_id: String,
}

/// The root key. None in a Secret of an earlier version.
fn copy_key(secret: &Secret) -> anyhow::Result<Option<RootKey>> {
    let Some(text) = secret.data.as_ref().and_then(|data| data.get(COPY_KEY)) else {
        return Ok(None);
    };
    let key = RootKey::parse(&text.0);
    let key = key
        .with_context(|| format!("the Secret {CA_SECRET}: {COPY_KEY} is not 32 bytes in base64"))?;
    Ok(Some(key))
}

/// With a new root key. No worker enforces a key derived from it yet.
fn with_copy_key(mut secret: Secret) -> Secret {
    let data = secret.data.get_or_insert_default();
    data.insert(COPY_KEY.to_owned(), ByteString(RootKey::generate().text().into_bytes()));
    data.remove(PROVED_KEY);
    secret
}

/// The uids of kubeconfig workers that enforce their key, oldest first.
fn proved(secret: &Secret) -> Vec<String> {
    let text = secret.data.as_ref().and_then(|data| data.get(PROVED_KEY));
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Whether the kubeconfig worker with this uid enforces its key.
///
/// # Errors
/// The API refuses, or the Secret is gone.
pub async fn is_proved(secrets: &Api<Secret>, uid: &str) -> anyhow::Result<bool> {
    Ok(proved(&existing(secrets).await?).iter().any(|known| known == uid))
}

/// Records that the kubeconfig worker with this uid enforces its key.
///
/// # Errors
/// As [`is_proved`], or every write met a conflict.
pub async fn note_proved(secrets: &Api<Secret>, uid: &str) -> anyhow::Result<()> {
    for _ in 0..CONFLICT_RETRIES {
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

fn read(secret: &Secret) -> anyhow::Result<StoredAuthority> {
    let data = secret.data.clone().unwrap_or_default();
    let id = data
        .get(HUB_ID_KEY)
        .with_context(|| format!("the Secret {CA_SECRET} has no key \"{HUB_ID_KEY}\""))?;
    let hub_id = String::from_utf8(id.0.clone())
        .with_context(|| format!("{CA_SECRET}: {HUB_ID_KEY} is not text"))?;
    let authority = Authority::read(&data)
        .with_context(|| format!("the Secret {CA_SECRET} is kept as it is; mend or delete it"))?;
    Ok(StoredAuthority { authority, hub_id: hub_id.trim().to_owned() })
}

/// From when on the hub remembers its actions, and whether that has to be written. `own` is the id
/// of a new hub in this cluster.
///
/// An operator may set it by the annotation. Without it, a hub id of another cluster came from a
/// backup. The hub then remembers nothing from before its first start here, and records that as the
/// annotation. An annotation older than the Secret came with the backup, from an earlier loss.
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

/// Reads the CA. With `step`, also takes the next step of a rotation if it is due; one of several
/// writers succeeds.
///
/// # Errors
/// The API refuses, or the Secret is gone or unusable.
pub async fn load(secrets: &Api<Secret>, step: bool, now: Timestamp) -> anyhow::Result<Authority> {
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

/// Reads the hub's id.
///
/// # Errors
/// The API refuses, or the hub has never started.
pub async fn hub_id(secrets: &Api<Secret>) -> anyhow::Result<String> {
    Ok(read(&existing(secrets).await?)?.hub_id)
}

/// Starts a CA rotation; see [`Authority::replace`].
///
/// # Errors
/// A rotation is under way, the API refuses, or there is no CA yet.
pub async fn replace(secrets: &Api<Secret>, now: Timestamp) -> anyhow::Result<Authority> {
    let secret = existing(secrets).await?;
    let StoredAuthority { authority, hub_id } = read(&secret)?;
    let next = authority.replace(Ca::generate(&hub_id, now)?)?;
    put(secrets, secret, &next).await?;
    Ok(next)
}

/// Records that the hub remembers nothing from before `since`. Creates a CA for `hub_id` if there
/// is none. Returns the hub's id, and whether the CA is new.
///
/// # Errors
/// The API refuses, there is neither CA nor id, or the CA belongs to another hub.
pub async fn recover(
    secrets: &Api<Secret>,
    hub_id: Option<&str>,
    since: Timestamp,
) -> anyhow::Result<(String, bool)> {
    let (id, found) = recovered_id(secrets, hub_id).await?;
    if let Some(secret) = found {
        secrets
            .replace(CA_SECRET, &post(), &remembering(secret, since))
            .await
            .context("writing the CA Secret")?;
        return Ok((id, false));
    }
    let mut data = BTreeMap::from([(HUB_ID_KEY.to_owned(), ByteString(id.as_bytes().to_vec()))]);
    Authority::new(Ca::generate(&id, since)?).write(&mut data);
    let secret = Secret { metadata: named(CA_SECRET), data: Some(data), ..Secret::default() };
    secrets.create(&post(), &remembering(secret, since)).await.context("creating the CA Secret")?;
    Ok((id, true))
}

/// The result that [`recover`] would have. Writes nothing.
///
/// # Errors
/// As [`recover`].
pub async fn recoverable(
    secrets: &Api<Secret>,
    hub_id: Option<&str>,
) -> anyhow::Result<(String, bool)> {
    let (id, found) = recovered_id(secrets, hub_id).await?;
    Ok((id, found.is_none()))
}

/// The id of the hub to recover, and its CA Secret if that still exists.
async fn recovered_id(
    secrets: &Api<Secret>,
    hub_id: Option<&str>,
) -> anyhow::Result<(String, Option<Secret>)> {
    let found = secrets.get_opt(CA_SECRET).await.context("reading the CA Secret")?;
    let Some(secret) = found else {
        let Some(id) = hub_id else {
            bail!(
                "there is no Secret {CA_SECRET}: restore it from a backup, or name the hub's id with --hub-id"
            );
        };
        return Ok((id.to_owned(), None));
    };
    let there = read(&secret)?.hub_id;
    if let Some(id) = hub_id.filter(|id| *id != there) {
        bail!(
            "the Secret {CA_SECRET} is hub {there}'s, not {id}'s; delete it if it is the one of a new hub"
        );
    }
    Ok((there, Some(secret)))
}

/// With the annotation that says from when on the hub remembers.
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

/// Best effort: on a conflict, another replica writes the same.
async fn publish_address(
    secrets: &Api<Secret>,
    secret: Secret,
    address: Option<&str>,
) -> anyhow::Result<()> {
    let Some(secret) = with_address(secret, address) else { return Ok(()) };
    match secrets.replace(CA_SECRET, &post(), &secret).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
        Err(error) => Err(error).context("writing the hub's address to the CA Secret"),
    }
}

/// Sets or removes the published address, which precedes the Service's. `None` if nothing changes.
fn with_address(mut secret: Secret, address: Option<&str>) -> Option<Secret> {
    let data = secret.data.get_or_insert_default();
    let known = data.get(ADDRESS_KEY).map(|known| known.0.as_slice());
    if known == address.map(str::as_bytes) {
        return None;
    }
    match address {
        Some(address) => {
            data.insert(ADDRESS_KEY.to_owned(), ByteString(address.as_bytes().to_vec()))
        }
        None => data.remove(ADDRESS_KEY),
    };
    Some(secret)
}

pub(crate) fn named(name: &str) -> ObjectMeta {
    let labels =
        BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "switchyard".to_owned())]);
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

pub(crate) fn post() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforced_workers_are_recorded_up_to_a_bound() {
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
    fn advertised_address_is_replaced_and_cleared() {
        let address = |secret: &Secret| {
            let found = secret.data.as_ref()?.get(ADDRESS_KEY)?;
            Some(String::from_utf8(found.0.clone()).unwrap())
        };
        assert!(with_address(Secret::default(), None).is_none(), "nothing to write");
        let first = with_address(Secret::default(), Some("https://a")).unwrap();
        assert_eq!(address(&first).as_deref(), Some("https://a"));
        assert!(with_address(first.clone(), Some("https://a")).is_none(), "nothing to write");
        let second = with_address(first, Some("https://b")).unwrap();
        assert_eq!(address(&second).as_deref(), Some("https://b"));
        assert_eq!(address(&with_address(second, None).unwrap()), None);
    }

    #[test]
    fn missing_copy_key_differs_from_an_invalid_one() {
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
    fn memory_starts_at_first_start_or_at_the_annotation() {
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
