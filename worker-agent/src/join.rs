//! The sources of join tokens and of the hub's address: flags, or the files of a mounted Secret,
//! which change while the agent runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::enrol::{self, EnrolError, Join};
use crate::hub_address::HubAddress;
use crate::identity::{Identity, IdentityStore, KeyRequest};
use crate::route::Route;
use crate::session::SessionState;

/// How often the files are read while there is no session.
const LOOK: Duration = Duration::from_secs(10);

/// The files of a join Secret.
const TOKEN: &str = "token";
const PIN: &str = "hub-ca-sha256";
const HUB: &str = "hub";

/// The sources of a token and of the hub's address.
#[derive(Clone, Debug, Default)]
pub struct JoinSource {
    /// The token of the command line, for the first start.
    pub given: Option<Join>,
    /// A directory with the files `hub`, `token` and `hub-ca-sha256`, such as a mounted Secret.
    pub directory: Option<PathBuf>,
    last: Arc<Mutex<Option<TokenRequest>>>,
}

/// The certificate request of a token, with the token's digest.
#[derive(Debug)]
struct TokenRequest {
    digest: String,
    request: Arc<KeyRequest>,
}

impl JoinSource {
    pub fn new(given: Option<Join>, directory: Option<PathBuf>) -> Self {
        Self { given, directory, last: Arc::default() }
    }

    /// The certificate request for a token. All tries of a token use one key: if an answer was
    /// lost, the hub repeats it only for the same request.
    pub(crate) fn request(&self, join: &Join) -> Result<Arc<KeyRequest>, EnrolError> {
        let mut last = self.last.lock();
        if let Some(known) = last.as_ref().filter(|known| known.digest == join.digest()) {
            return Ok(known.request.clone());
        }
        let request = Arc::new(KeyRequest::generate()?);
        *last = Some(TokenRequest { digest: join.digest(), request: request.clone() });
        Ok(request)
    }

    /// The current token, if any. The directory takes precedence, because it may be newer.
    ///
    /// # Errors
    ///
    /// A file exists, but holds no token or no hash.
    pub fn current(&self) -> anyhow::Result<Option<Join>> {
        let of_directory = self.directory.as_deref().map(read).transpose()?.flatten();
        Ok(of_directory.or_else(|| self.given.clone()))
    }

    /// The hub's address of the directory, if it has one. It may be newer than that of the command
    /// line.
    ///
    /// # Errors
    ///
    /// The file exists, but holds no address.
    pub fn hub(&self) -> anyhow::Result<Option<HubAddress>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let Some(text) = file(directory, HUB)? else { return Ok(None) };
        let address = text.parse();
        address.map(Some).with_context(|| format!("{}", directory.join(HUB).display()))
    }

    /// Whether the directory has another address than the one in use.
    fn leads_elsewhere(&self, hub: &HubAddress) -> bool {
        match self.hub() {
            Ok(found) => found.is_some_and(|found| found != *hub),
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the hub's address is not read, will try again"
                );
                false
            }
        }
    }

    /// Waits until the directory has another address or another token than these.
    pub(crate) async fn changed(&self, hub: &HubAddress, token: Option<&Join>) {
        let digest = token.map(Join::digest);
        let has_other_token = || match self.current() {
            Ok(found) => found.is_some_and(|found| Some(found.digest()) != digest),
            Err(_) => false,
        };
        loop {
            tokio::time::sleep(LOOK).await;
            if self.leads_elsewhere(hub) || has_other_token() {
                return;
            }
        }
    }
}

/// The text of a file; `None` if it is missing or empty.
fn file(directory: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let path = directory.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn read(directory: &Path) -> anyhow::Result<Option<Join>> {
    let (Some(token), Some(pin)) = (file(directory, TOKEN)?, file(directory, PIN)?) else {
        return Ok(None);
    };
    let pin = pin.parse().with_context(|| format!("{}", directory.join(PIN).display()))?;
    let join = Join::new(token, pin);
    join.cluster().ok_or(EnrolError::BadToken)?;
    Ok(Some(join))
}

/// Waits until a new token has been exchanged for a new, stored identity, or until the directory
/// has another address of the hub. Both count only without a session: with one, the hub accepts the
/// identity at the present address.
pub(crate) async fn renewed(
    source: JoinSource,
    store: IdentityStore,
    hub: Route,
    current: impl Fn() -> Arc<Identity>,
    state: watch::Receiver<SessionState>,
    stop: CancellationToken,
) {
    let mut refused: Option<String> = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if state.borrow().is_up() {
            continue;
        }
        if source.leads_elsewhere(&hub.hub) {
            return;
        }
        let join = match source.current() {
            Ok(Some(join)) if refused.as_ref() != Some(&join.digest()) => join,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "join token not read, will try again");
                continue;
            }
        };
        let enrolled = match source.request(&join) {
            Ok(request) => enrol::again(&store, &hub, &join, &request, &current()).await,
            Err(error) => Err(error),
        };
        match enrolled {
            Ok(Some(_)) => return,
            Ok(None) => {}
            Err(error) => {
                if matches!(error, EnrolError::Refused { .. }) {
                    refused = Some(join.digest());
                }
                tracing::warn!(
                    error = error.to_string().replace('\n', " "),
                    "new join token of no use"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn directory_leads_to_another_address() {
        let dir = tempfile::tempdir().unwrap();
        let source = JoinSource::new(None, Some(dir.path().to_owned()));
        let first: HubAddress = "https://hub:7443".parse().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let is_changed = async |join: Option<&Join>| {
            tokio::time::timeout(3 * LOOK, source.changed(&first, join)).await.is_ok()
        };
        assert_eq!(source.hub().unwrap(), None);
        assert!(!is_changed(None).await);
        write(HUB, "https://hub:7443\n");
        assert_eq!(source.hub().unwrap(), Some(first.clone()));
        assert!(!is_changed(None).await);
        write(HUB, "hub:8443");
        let error = format!("{:#}", source.hub().unwrap_err());
        assert!(error.contains("/hub: ") && error.contains("is not https://HOST"), "{error}");
        assert!(!is_changed(None).await, "a malformed address is not followed");
        write(HUB, "https://hub:8443");
        assert!(is_changed(None).await);
        write(HUB, "https://hub:7443");
        write(TOKEN, "east.1.given");
        write(PIN, &"0".repeat(64));
        assert!(is_changed(None).await, "a token appears");
        assert!(!is_changed(source.current().unwrap().as_ref()).await);
    }

    #[test]
    fn mounted_token_precedes_flag() {
        let dir = tempfile::tempdir().unwrap();
        let given = Join::new("east.1.given", "0".repeat(64).parse().unwrap());
        let source = JoinSource::new(Some(given.clone()), Some(dir.path().to_owned()));
        let current = || {
            source
                .current()
                .map(|join| join.map(|join| join.digest()))
                .map_err(|error| error.to_string())
        };
        assert_eq!(current(), Ok(Some(given.digest())), "an empty directory counts as none");
        std::fs::write(dir.path().join(TOKEN), "east.2.mounted\n").unwrap();
        std::fs::write(dir.path().join(PIN), "1".repeat(64)).unwrap();
        let mounted = Join::new("east.2.mounted", "1".repeat(64).parse().unwrap());
        assert_eq!(current(), Ok(Some(mounted.digest())));
        std::fs::write(dir.path().join(TOKEN), "garbage").unwrap();
        assert!(current().unwrap_err().starts_with("--join is not a join token"));
        std::fs::write(dir.path().join(PIN), "12").unwrap();
        assert!(current().unwrap_err().contains("hub-ca-sha256"));
    }
}
