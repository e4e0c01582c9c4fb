//! Join tokens: the printed form, the stored form, and the rules of their use. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use switchyard_api::validate::is_subdomain;
use thiserror::Error;

/// Longest lifetime of a token, in seconds: a week.
pub const MAX_TTL_SECONDS: i64 = 7 * 24 * 3600;
/// Most tokens stored at once. A Secret holds 1 MiB, an entry takes about 200 bytes.
pub const MAX_TOKENS: usize = 1000;

/// For this many seconds, the signing request that used a token gets its answer again, as the first
/// may be lost. The certificate is for that request's key, so no one else gains by it.
pub const REPEAT_SECONDS: i64 = 600;

const SECRET_BYTES: usize = 32;

/// A join token as a person passes it on: `<cluster>.<id>.<secret>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The only `MultiKueueCluster` that the token can enrol.
    pub cluster: String,
    /// The key of the token's record.
    pub id: String,
    /// 32 random bytes in URL-safe base64.
    pub secret: String,
}

impl Token {
    /// A token for `cluster` from the given random bytes.
    pub fn from_random(cluster: &str, id: [u8; 8], secret: [u8; SECRET_BYTES]) -> Self {
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { cluster: cluster.to_owned(), id, secret: URL_SAFE_NO_PAD.encode(secret) }
    }

    /// SHA-256 of the secret, hex. The secret has 256 random bits, so a slow hash would add
    /// nothing.
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(self.secret.as_bytes()))
    }
}

// Keeps the secret out of logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}.{}.…)", self.cluster, self.id)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.cluster, self.id, self.secret)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    /// Parses from the right: cluster names may contain dots, the other parts do not.
    fn from_str(text: &str) -> Result<Self, TokenError> {
        if text.len() > 512 {
            return Err(TokenError::Malformed);
        }
        let mut parts = text.trim().rsplitn(3, '.');
        let (Some(secret), Some(id), Some(cluster)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed);
        };
        // Other characters would be unsafe in a lookup or a log line.
        let is_word = |text: &str| {
            text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_')
        };
        if secret.is_empty()
            || id.is_empty()
            || !is_word(secret)
            || !is_word(id)
            || !is_subdomain(cluster)
        {
            return Err(TokenError::Malformed);
        }
        Ok(Self { cluster: cluster.into(), id: id.into(), secret: secret.into() })
    }
}

/// Why a token was refused. It goes to the log only; the caller hears "refused".
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum TokenError {
    #[error("malformed token")]
    Malformed,
    /// The token was never made, or was removed after it expired.
    #[error("unknown token")]
    Unknown,
    #[error("wrong token secret")]
    WrongSecret,
    #[error("token is for cluster \"{0}\"")]
    OtherCluster(String),
    #[error("token expired")]
    Expired,
    #[error("token already used")]
    Used,
    #[error(
        "{MAX_TOKENS} join tokens are outstanding; wait for some to expire, or delete the Secret"
    )]
    Full,
    #[error("a token's TTL must be between 1 s and {MAX_TTL_SECONDS} s")]
    BadTtl,
}

/// The stored form of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    pub cluster: String,
    /// [`Token::hash`].
    pub hash: String,
    /// Seconds since the Unix epoch.
    pub expires: i64,
    /// When the token was used, in seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<i64>,
    /// SHA-256 (hex) of the signing request that used the token. The same request may be repeated
    /// for [`REPEAT_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

/// The tokens of a hub by id: the content of the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenBook {
    records: BTreeMap<String, TokenRecord>,
    unreadable: usize,
}

impl TokenBook {
    /// Reads the Secret's data. Unreadable entries are left out and counted in
    /// [`Self::unreadable`].
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut book = Self::default();
        for (id, json) in entries {
            match serde_json::from_slice(json) {
                Ok(record) => {
                    book.records.insert(id.to_owned(), record);
                }
                Err(_) => book.unreadable += 1,
            }
        }
        book
    }

    /// The Secret's data.
    pub fn entries(&self) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
        self.records
            .iter()
            .filter_map(|(id, record)| Some((id.clone(), serde_json::to_vec(record).ok()?)))
    }

    /// The number of unreadable entries. The next write drops them.
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// The number of tokens, used ones included.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Removes tokens that expired before `now` (seconds). A used token stays until then, so that
    /// its reuse is reported as such.
    pub fn sweep(&mut self, now: i64) -> usize {
        let before = self.records.len();
        self.records.retain(|_, record| record.expires > now);
        before - self.records.len()
    }

    /// Adds a token.
    ///
    /// # Errors
    /// [`TokenError::Full`] and [`TokenError::BadTtl`].
    pub fn add(&mut self, token: &Token, ttl_seconds: i64, now: i64) -> Result<(), TokenError> {
        if !(1..=MAX_TTL_SECONDS).contains(&ttl_seconds) {
            return Err(TokenError::BadTtl);
        }
        self.sweep(now);
        if self.records.len() >= MAX_TOKENS {
            return Err(TokenError::Full);
        }
        let record = TokenRecord {
            cluster: token.cluster.clone(),
            hash: token.hash(),
            expires: now.saturating_add(ttl_seconds),
            used: None,
            used_by: None,
        };
        self.records.insert(token.id.clone(), record);
        Ok(())
    }

    /// Whether a signing request may use a token now.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn check(&self, token: &Token, csr: &[u8], now: i64) -> Result<(), TokenError> {
        let record = self.records.get(&token.id).ok_or(TokenError::Unknown)?;
        if !constant_time_eq(record.hash.as_bytes(), token.hash().as_bytes()) {
            return Err(TokenError::WrongSecret);
        }
        if record.cluster != token.cluster {
            return Err(TokenError::OtherCluster(record.cluster.clone()));
        }
        if record.expires <= now {
            return Err(TokenError::Expired);
        }
        let repeats = || record.used_by.as_deref() == Some(hash_of(csr).as_str());
        match record.used {
            Some(used) if now >= used.saturating_add(REPEAT_SECONDS) || !repeats() => {
                Err(TokenError::Used)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Uses up a token for a signing request. The caller must write the book under its resource
    /// version before the certificate leaves the hub. Returns whether the book has changed: a
    /// repeated request changes nothing.
    ///
    /// # Errors
    /// The reason for a refusal. The book is unchanged.
    pub fn redeem(&mut self, token: &Token, csr: &[u8], now: i64) -> Result<bool, TokenError> {
        self.check(token, csr, now)?;
        let Some(record) = self.records.get_mut(&token.id).filter(|record| record.used.is_none())
        else {
            return Ok(false);
        };
        (record.used, record.used_by) = (Some(now), Some(hash_of(csr)));
        Ok(true)
    }
}

/// Identifies a signing request.
fn hash_of(csr: &[u8]) -> String {
    hex(&Sha256::digest(csr))
}

/// Takes the same time for all texts of one length.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn token(cluster: &str) -> Token {
        Token::from_random(cluster, [7; 8], [9; SECRET_BYTES])
    }

    fn book(cluster: &str) -> TokenBook {
        let mut book = TokenBook::default();
        book.add(&token(cluster), 60, NOW).unwrap();
        book
    }

    #[test]
    fn token_round_trips_with_dots_in_the_cluster_name() {
        let token = token("eu.west-1");
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(&token.secret));
    }

    #[test]
    fn token_book_round_trips_without_the_token_secret() {
        let book = book("a");
        let entries: Vec<_> = book.entries().collect();
        let text = String::from_utf8(entries[0].1.clone()).unwrap();
        assert!(!text.contains(&token("a").secret), "{text}");
        let again = TokenBook::from_entries(
            entries.iter().map(|(id, json)| (id.as_str(), json.as_slice())),
        );
        assert_eq!(again, book);
        assert_eq!(TokenBook::from_entries([("x", b"junk".as_slice())]).unreadable(), 1);
    }

    #[test]
    fn token_is_redeemed_once() {
        let mut book = book("a");
        assert_eq!(book.redeem(&token("a"), b"one", NOW + 1), Ok(true));
        assert_eq!(book.redeem(&token("a"), b"another", NOW + 1), Err(TokenError::Used));
    }

    #[test]
    fn used_token_accepts_the_same_request_for_a_while() {
        let mut book = TokenBook::default();
        book.add(&token("a"), 3600, NOW).unwrap();
        assert_eq!(book.redeem(&token("a"), b"one", NOW), Ok(true));
        assert_eq!(book.redeem(&token("a"), b"one", NOW + REPEAT_SECONDS - 1), Ok(false));
        assert_eq!(book.redeem(&token("a"), b"one", NOW + REPEAT_SECONDS), Err(TokenError::Used));
        assert_eq!(book.redeem(&token("a"), b"another", NOW + 1), Err(TokenError::Used));
    }

    #[test]
    fn token_with_invalid_characters_is_malformed() {
        for text in [
            "?watch=true.aa.bb",
            "a/b.aa.bb",
            "a\nb.aa.bb",
            "..aa.bb",
            "A.aa.bb",
            "a.a?.bb",
            "a.aa.b/b",
            "a.aa.b\nb",
        ] {
            assert_eq!(text.parse::<Token>(), Err(TokenError::Malformed), "{text:?}");
        }
        assert!("eu.west-1.aa.b_B-b".parse::<Token>().is_ok());
    }

    #[test]
    fn token_refusals_have_their_reasons() {
        let wrong = Token { secret: "x".repeat(43), ..token("a") };
        let unknown = Token { id: "00".into(), ..token("a") };
        let other = Token { cluster: "b".into(), ..token("a") };
        for (case, token, at, reason) in [
            ("expired at its last second", token("a"), NOW + 60, TokenError::Expired),
            ("wrong secret", wrong, NOW, TokenError::WrongSecret),
            ("unknown id", unknown, NOW, TokenError::Unknown),
            ("renamed for another cluster", other, NOW, TokenError::OtherCluster("a".into())),
        ] {
            let mut book = book("a");
            let before = book.clone();
            assert_eq!(book.redeem(&token, b"one", at), Err(reason), "{case}");
            assert_eq!(book, before, "{case}: the book is unchanged");
        }
        for text in ["", "a", "a.b", "a..c", ".b.c", "a.b."] {
            assert_eq!(text.parse::<Token>(), Err(TokenError::Malformed), "{text:?}");
        }
        assert_eq!("x".repeat(600).parse::<Token>(), Err(TokenError::Malformed));
    }

    #[test]
    fn token_book_is_bounded_and_swept() {
        let mut book = TokenBook::default();
        for number in 0..MAX_TOKENS as u64 {
            let token = Token::from_random("a", number.to_be_bytes(), [1; SECRET_BYTES]);
            book.add(&token, 60, NOW).unwrap();
        }
        assert_eq!(book.add(&token("a"), 60, NOW + 59), Err(TokenError::Full));
        assert_eq!(book.add(&token("a"), 60, NOW + 60), Ok(()));
        assert_eq!(book.len(), 1, "the expired ones were swept");
        assert_eq!(book.add(&token("a"), 0, NOW), Err(TokenError::BadTtl));
        assert_eq!(book.add(&token("a"), MAX_TTL_SECONDS + 1, NOW), Err(TokenError::BadTtl));
    }
}
