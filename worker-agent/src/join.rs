//! The sources of join tokens: flags, or the files of a mounted Secret, which change while the
//! agent runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::enrol::{self, EnrolError, Join};
use crate::identity::{Identity, IdentityStore, KeyRequest};
use crate::route::Route;
use crate::session::SessionState;

/// How often the files are read while there is no session.
const LOOK: Duration = Duration::from_secs(10);

/// The files of a join Secret.
const TOKEN: &str = "token";
const PIN: &str = "hub-ca-sha256";

/// The sources of a token.
#[derive(Clone, Debug, Default)]
pub struct JoinSource {
    /// The token of the command line, for the first start.
    pub given: Option<Join>,
    /// A directory with the files `token` and `hub-ca-sha256`, such as a mounted Secret.
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
}

fn read(directory: &Path) -> anyhow::Result<Option<Join>> {
    let file = |name: &str| {
        let path = directory.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    };
    let (Some(token), Some(pin)) = (file(TOKEN)?, file(PIN)?) else { return Ok(None) };
    let pin = pin.parse().with_context(|| format!("{}", directory.join(PIN).display()))?;
    let join = Join::new(token, pin);
    join.cluster().ok_or(EnrolError::BadToken)?;
    Ok(Some(join))
}

/// Waits until a new token has been exchanged for a new, stored identity. Tokens are tried only
/// without a session: with one, the hub accepts the identity.
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
