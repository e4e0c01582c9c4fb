//! Join tokens in memory, so that a caller without a good token costs a comparison.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use switchyard_hub_pki::token::{Token, TokenBook};
use switchyard_hub_pki::token_store::{self, RedeemError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::enrolment::Tokens;

/// Least time between two reads of the Secret for unknown tokens, over all callers.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Deadline of one API call.
const ANSWER: Duration = Duration::from_secs(5);

/// The tokens in the Secret as last read.
pub struct TokenCache {
    secrets: Api<Secret>,
    memory: Mutex<TokenMemory>,
}

#[derive(Default)]
struct TokenMemory {
    book: TokenBook,
    read: Option<Instant>,
    /// The Secret refused a token that this cache holds as good.
    is_stale: bool,
    /// The last read failed.
    has_failed: bool,
}

impl TokenCache {
    /// An empty cache.
    pub fn new(secrets: Api<Secret>) -> Self {
        Self { secrets, memory: Mutex::default() }
    }

    /// Checks a token. An unknown token may be newer than the cache: its caller waits for the next
    /// read.
    async fn check(&self, token: &Token, csr: &[u8], now: Timestamp) -> Result<(), RedeemError> {
        let arrived = Instant::now();
        loop {
            let mut memory = self.memory.lock().await;
            let known = memory.book.check(token, csr, now.as_second());
            let was_read_since = memory.read.is_some_and(|read| read >= arrived);
            if was_read_since && memory.has_failed && known.is_err() {
                return Err(RedeemError::Late);
            }
            if was_read_since || (known.is_ok() && !memory.is_stale) {
                return Ok(known?);
            }
            let next =
                memory.read.map(|read| read + READ_EVERY).filter(|next| *next > Instant::now());
            if let Some(next) = next {
                drop(memory);
                tokio::time::sleep_until(next).await;
                continue;
            }
            (memory.read, memory.is_stale, memory.has_failed) = (Some(Instant::now()), false, true);
            let read = timeout(ANSWER, token_store::tokens(&self.secrets)).await;
            memory.book = read.map_err(|_| RedeemError::Late)??;
            memory.has_failed = false;
            return Ok(memory.book.check(token, csr, now.as_second())?);
        }
    }

    async fn use_up(&self, token: &Token, csr: &[u8], now: Timestamp) -> Result<(), RedeemError> {
        let redeemed = token_store::redeem(&self.secrets, token, csr, now).await;
        if matches!(redeemed, Err(RedeemError::Refused(_))) {
            self.memory.lock().await.is_stale = true;
        }
        redeemed
    }
}

impl Tokens for TokenCache {
    fn is_known<'a>(
        &'a self,
        token: &'a Token,
        csr: &'a [u8],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), RedeemError>> {
        Box::pin(self.check(token, csr, now))
    }

    fn redeem<'a>(
        &'a self,
        token: &'a Token,
        csr: &'a [u8],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), RedeemError>> {
        Box::pin(self.use_up(token, csr, now))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A Secret with these tokens, and the number of reads.
    fn secret(book: &TokenBook) -> (TokenCache, Arc<AtomicUsize>) {
        let data: serde_json::Map<String, serde_json::Value> = book
            .entries()
            .map(|(id, json)| (id, serde_json::to_value(k8s_openapi::ByteString(json)).unwrap()))
            .collect();
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t"}, "data": data});
        let (asked, body) = (Arc::new(AtomicUsize::new(0)), secret.to_string());
        let count = asked.clone();
        let server = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = Response::new(Body::from(body.clone().into_bytes()));
            async move { Ok::<_, Infallible>(answer) }
        });
        (TokenCache::new(Api::namespaced(kube::Client::new(server, "ns"), "ns")), asked)
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// A token, the Secret with it, and the number of reads.
    fn with_token() -> (Token, TokenCache, Arc<AtomicUsize>) {
        let good = Token::from_random("east", [1; 8], [1; 32]);
        let mut book = TokenBook::default();
        book.add(&good, 3600, NOW.as_second()).unwrap();
        let (tokens, asked) = secret(&book);
        (good, tokens, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_tokens_read_the_secret_once_a_second() {
        let (good, tokens, asked) = with_token();
        let ask = async |number: u64| {
            tokio::time::sleep(Duration::from_millis(number)).await;
            let stranger = Token::from_random("east", number.to_be_bytes(), [2; 32]);
            assert!(tokens.is_known(&stranger, b"csr", NOW).await.is_err());
        };
        futures::future::join_all((0..2_000).map(ask)).await;
        assert_eq!(asked.load(Ordering::Relaxed), 3, "at once, and after one second and two");
        for _ in 0..100 {
            assert!(tokens.is_known(&good, b"csr", NOW).await.is_ok());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 3, "it is in memory");
    }

    #[tokio::test(start_paused = true)]
    async fn token_made_after_the_last_read_is_accepted() {
        let (good, tokens, asked) = with_token();
        // The Secret was read just before the token was made.
        tokens.memory.lock().await.read = Some(Instant::now());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(tokens.is_known(&good, b"csr", NOW).await.is_ok());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
