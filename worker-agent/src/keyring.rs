//! The key of copies: fetched from the hub, and stored in the Secret of the agent's identity.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use kube::Client;
use parking_lot::Mutex;
use switchyard_ledger::Backoff;
use switchyard_proto::copy_key::CopyKey;
use switchyard_proto::v1::{CopyKeyAnswer, CopyKeyRequest};

use crate::enrol::{self, EnrolError};
use crate::identity::{Identity, IdentityError, IdentityStore};
use crate::proof::Keys;
use crate::route::Route;
use crate::signing::{Copies, MarkedObjects as _, Operators, Pace, ScanResult, settle};

/// Entries of the Secret: the key's hub, the key, and `true` once it is enforced.
const HUB_ID: &str = "copies.hub-id";
const KEY: &str = "copies.key";
const IN_FORCE: &str = "copies.in-force";

/// The first delay before the Secret or the hub is tried again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const RETRY: Backoff = Backoff::new(FIRST_RETRY, Duration::from_secs(60));
/// How often a new cluster asks for its key before it starts without. Standby replicas of the hub
/// do not answer.
const FIRST_TRIES: u32 = 10;

/// The keyring of an agent while it leads.
pub(crate) struct Keyring {
    pub(crate) client: Client,
    pub(crate) store: IdentityStore,
    pub(crate) hub: Route,
    pub(crate) identity: Arc<ArcSwap<Identity>>,
    pub(crate) cluster_uid: String,
    pub(crate) frameworks: Vec<String>,
    /// The obstacle that was last logged.
    pub(crate) last_obstacle: Mutex<String>,
}

impl Keyring {
    /// The keys to start with. `is_new`: this process got the cluster's identity, so no earlier
    /// process created copies.
    pub(crate) async fn begin(&self, is_new: bool) -> Keys {
        let stored = self.insist("reading the key of copies", || self.stored()).await;
        match stored {
            Some((key, enforced)) => Keys::new(&key, enforced),
            None if is_new => self.first().await.unwrap_or_else(Keys::none),
            None => Keys::none(),
        }
    }

    /// The key of a new cluster, enforced at once if no object carries the hub's marks.
    async fn first(&self) -> Option<Keys> {
        let key = self.first_key().await?;
        let found = self.copies(Keys::new(&key, true)).scan().await;
        let enforced = found.is_ok_and(|unproved| unproved.count == 0);
        // Without an answer the key may be stored as enforced, and copies created without it would
        // be foreign.
        self.insist("storing the key of copies", || self.save(&key, enforced)).await;
        Some(Keys::new(&key, enforced))
    }

    /// Precedes all creations: copies created without a key have no proof.
    async fn first_key(&self) -> Option<CopyKey> {
        for _ in 0..FIRST_TRIES {
            match self.ask(String::new()).await {
                Ok(answer) => return CopyKey::from_bytes(&answer.key),
                Err(error) => not_given(&error),
            }
            tokio::time::sleep(FIRST_RETRY).await;
        }
        None
    }

    /// Returns once other keys must be used.
    pub(crate) async fn changed(&self, keys: &Keys) {
        if keys.is_enforced() {
            return std::future::pending().await;
        }
        let key = match self.insist("reading the key of copies", || self.stored()).await {
            Some(_) if keys.is_none() => return,
            Some((key, _)) => key,
            None => {
                let key = self.insist("asking for the key of copies", || self.fetch()).await;
                return self.insist("storing the key of copies", || self.save(&key, false)).await;
            }
        };
        settle(&self.copies(keys.clone()), self, Pace::default()).await;
        self.insist("storing the key of copies", || self.save(&key, true)).await;
        tracing::info!(
            "the key of copies is in force: an object without a proof is no copy of the hub's"
        );
    }

    async fn fetch(&self) -> Result<CopyKey, NotGiven> {
        let answer = self.ask("the cluster has no key as yet".to_owned()).await?;
        CopyKey::from_bytes(&answer.key).ok_or(NotGiven::Withheld)
    }

    async fn ask(&self, obstacle: String) -> Result<CopyKeyAnswer, EnrolError> {
        let request = CopyKeyRequest { cluster_uid: self.cluster_uid.clone(), obstacle };
        enrol::copy_key(&self.hub, &self.identity.load_full(), request).await
    }

    fn copies(&self, keys: Keys) -> Copies {
        Copies::new(self.client.clone(), &self.identity.load().hub_id, keys, &self.frameworks)
    }

    /// The stored key. A malformed key, or one of another hub, counts as none.
    async fn stored(&self) -> Result<Option<(CopyKey, bool)>, IdentityError> {
        Ok(read(&self.store.kept().await?, &self.identity.load().hub_id))
    }

    async fn save(&self, key: &CopyKey, enforced: bool) -> Result<(), IdentityError> {
        self.store.keep(write(&self.identity.load().hub_id, key, enforced)).await
    }

    /// Tries until it succeeds, with growing delays.
    async fn insist<T, E, F>(&self, what: &str, mut attempt: impl FnMut() -> F) -> T
    where
        E: std::fmt::Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut failures = 0_u32;
        loop {
            let wait = RETRY.delay(failures);
            match attempt().await {
                Ok(done) => return done,
                Err(error) => tracing::warn!(%error, ?wait, what, "failed, will try again"),
            }
            tokio::time::sleep(wait).await;
            failures = failures.saturating_add(1);
        }
    }
}

impl Operators for Keyring {
    fn report<'a>(&'a self, scan: &'a ScanResult) -> BoxFuture<'a, bool> {
        async move {
            let obstacle = scan.obstacle();
            let before = std::mem::replace(&mut *self.last_obstacle.lock(), obstacle.clone());
            if before != obstacle && !obstacle.is_empty() {
                tracing::warn!(
                    obstacle,
                    "marks alone make a copy here, since what has marks may be the hub's and has no proof; see the condition \
                     CopiesUnproved of its MultiKueueCluster"
                );
            }
            match self.ask(obstacle).await {
                Ok(answer) => answer.trust,
                Err(error) => {
                    not_given(&error);
                    false
                }
            }
        }
        .boxed()
    }
}

fn not_given(error: &EnrolError) {
    // A log entry has one line.
    let error = error.to_string().replace('\n', " ");
    tracing::warn!(error, "the hub was not asked about copies");
}

#[derive(Debug, thiserror::Error)]
enum NotGiven {
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    #[error(
        "the hub gives none: the cluster does not tell its uid, or another MultiKueueCluster leads to it"
    )]
    Withheld,
}

fn read(data: &BTreeMap<String, ByteString>, hub_id: &str) -> Option<(CopyKey, bool)> {
    let entry = |name: &str| data.get(name).map(|bytes| bytes.0.trim_ascii());
    if entry(HUB_ID) != Some(hub_id.as_bytes()) {
        return None;
    }
    let key = CopyKey::parse(entry(KEY)?)?;
    Some((key, entry(IN_FORCE) == Some(b"true")))
}

fn write(hub_id: &str, key: &CopyKey, enforced: bool) -> BTreeMap<String, ByteString> {
    let entry = |name: &str, text: String| (name.to_owned(), ByteString(text.into_bytes()));
    BTreeMap::from([
        entry(HUB_ID, hub_id.to_owned()),
        entry(KEY, key.text()),
        entry(IN_FORCE, enforced.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::tests::key;
    use crate::testing::{FakeHub, api, soon};

    /// An agent of `hub-1` whose identity is stored.
    async fn keyring(hub: &FakeHub) -> Keyring {
        let client = api();
        let store = IdentityStore::new(client.clone(), "switchyard-system");
        let identity = hub.pki.identity("east", -10, 3600);
        store.save(&identity).await.unwrap();
        Keyring {
            client,
            store,
            hub: hub.address.clone(),
            identity: Arc::new(ArcSwap::from_pointee(identity)),
            cluster_uid: "u".to_owned(),
            frameworks: vec!["batch/job".to_owned()],
            last_obstacle: Mutex::default(),
        }
    }

    #[test]
    fn stored_key_is_valid_for_one_hub() {
        let of = |change: &dyn Fn(&mut BTreeMap<String, ByteString>)| {
            let mut data = write("hub", &key(), true);
            change(&mut data);
            read(&data, "hub").map(|(_, enforced)| enforced)
        };
        let set = |name: &'static str, text: &'static str| {
            move |data: &mut BTreeMap<String, ByteString>| {
                data.insert(name.to_owned(), ByteString(text.as_bytes().to_vec()));
            }
        };
        assert_eq!(of(&|_| {}), Some(true));
        assert_eq!(of(&set(IN_FORCE, "false")), Some(false));
        assert_eq!(
            of(&|data| drop(data.remove(IN_FORCE))),
            Some(false),
            "people take it out to begin again"
        );
        assert_eq!(of(&set(HUB_ID, "another")), None);
        assert_eq!(of(&set(KEY, "!")), None);
        assert_eq!(read(&BTreeMap::new(), "hub"), None);
    }

    #[tokio::test]
    async fn new_cluster_enforces_key_at_once_and_keeps_it() {
        let hub = FakeHub::start().await;
        hub.give_key(&key(), false);
        let keyring = keyring(&hub).await;
        let keys = soon("the keys", keyring.begin(true)).await;
        assert!(keys.is_enforced());
        // The identity is renewed, and the process restarts.
        keyring.store.save(&hub.pki.identity("east", -10, 7200)).await.unwrap();
        hub.give_nothing();
        for is_new in [false, true] {
            assert!(soon("the keys", keyring.begin(is_new)).await.is_enforced());
        }
    }

    /// The agent needs neither an available hub nor one of this version.
    #[tokio::test]
    async fn agent_without_key_starts_without() {
        let hub = FakeHub::start().await;
        let keyring = keyring(&hub).await;
        for (case, is_new) in [("the hub gives none", true), ("not a new cluster", false)] {
            assert!(soon("the keys", keyring.begin(is_new)).await.is_none(), "{case}");
        }
        hub.give_key(&key(), false);
        let keys = soon("the keys", keyring.begin(false)).await;
        assert!(keys.is_none(), "what is there may have been made by another process");
        soon("the key", keyring.changed(&keys)).await;
        let keys = soon("the keys", keyring.begin(false)).await;
        assert!(!keys.is_none() && !keys.is_enforced(), "it signs, and demands nothing");
    }

    #[tokio::test]
    async fn findings_are_sent_and_trust_is_returned() {
        let hub = FakeHub::start().await;
        let keyring = keyring(&hub).await;
        let scan = ScanResult::Failed("no answer".to_owned());
        assert!(!soon("the answer", keyring.report(&scan)).await, "the hub gives none");
        for trust in [false, true] {
            hub.give_key(&key(), trust);
            assert_eq!(soon("the answer", keyring.report(&scan)).await, trust);
        }
        assert_eq!(hub.obstacles(), ["no answer", "no answer", "no answer"]);
    }
}
