//! Join tokens: what is printed, what is stored, and who may use one once. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use switchyard_api::validate::is_subdomain;
use thiserror::Error;

/// The longest life that may be asked for, in seconds: a week.
pub const MAX_TTL_SECONDS: i64 = 7 * 24 * 3600;
/// How many tokens are kept at once; a Secret holds 1 MiB, an entry is about 200 bytes.
pub const MAX_TOKENS: usize = 1000;

/// The answer to the request that used a token up may be lost. For so long it gets one again: the certificate is for its own
/// key, so nobody else gains by it.
pub const REPEAT_SECONDS: i64 = 600;

/// Bytes of randomness in a token's secret.
const SECRET_BYTES: usize = 32;

/// A token as a person passes it on: `<cluster>.<id>.<secret>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The only `MultiKueueCluster` that it can enrol.
    pub cluster: String,
    /// Under which its record is kept.
    pub id: String,
    /// 32 random bytes, URL-safe base64.
    pub secret: String,
}

impl Token {
    /// A token for `cluster` made of the given randomness.
    pub fn from_random(cluster: &str, id: [u8; 8], secret: [u8; SECRET_BYTES]) -> Self {
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { cluster: cluster.to_owned(), id, secret: URL_SAFE_NO_PAD.encode(secret) }
    }

    /// SHA-256 of the secret, hex. The secret has 256 random bits, so a plain hash is as good as a slow one.
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(self.secret.as_bytes()))
    }
}

// A token must not reach a log by accident.
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

    /// Cluster names may hold dots, the other parts never do: so it is read from the right.
    fn from_str(text: &str) -> Result<Self, TokenError> {
        if text.len() > 512 {
            return Err(TokenError::Malformed);
        }
        let mut parts = text.trim().rsplitn(3, '.');
        let (Some(secret), Some(id), Some(cluster)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed);
        };
        // Nothing else is safe in a lookup and in a log line.
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

/// Why a token was refused. For the hub's log only: the caller hears "refused".
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum TokenError {
    /// Not of the form of a token.
    #[error("malformed token")]
    Malformed,
    /// No such token: never made, or swept after it expired.
    #[error("unknown token")]
    Unknown,
    /// The secret is not the one that was printed.
    #[error("wrong token secret")]
    WrongSecret,
    /// Made for another cluster.
    #[error("token is for cluster \"{0}\"")]
    OtherCluster(String),
    /// Its time is over.
    #[error("token expired")]
    Expired,
    /// It has been used.
    #[error("token already used")]
    Used,
    /// No room for another.
    #[error(
        "{MAX_TOKENS} join tokens are outstanding; wait for some to expire, or delete the Secret"
    )]
    Full,
    /// The life asked for is not allowed.
    #[error("a token's TTL must be between 1 s and {MAX_TTL_SECONDS} s")]
    BadTtl,
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The cluster it is for.
    pub cluster: String,
    /// [`Token::hash`].
    pub hash: String,
    /// Seconds since the Unix epoch.
    pub expires: i64,
    /// When it was used, seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<i64>,
    /// By which signing request: SHA-256 of it, hex. That one may be repeated for [`REPEAT_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

/// All tokens of a hub, by id: the content of the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenBook {
    records: BTreeMap<String, Record>,
    unreadable: usize,
}

impl TokenBook {
    /// Reads the Secret's data. Entries that cannot be read are left out, and counted in [`Self::unreadable`].
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

    /// How many entries could not be read. They are dropped at the next write.
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// How many tokens are kept, used ones included.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Drops what expired before `now` (seconds). Used tokens stay until then, so that reuse is told from ignorance.
    pub fn sweep(&mut self, now: i64) -> usize {
        let before = self.records.len();
        self.records.retain(|_, record| record.expires > now);
        before - self.records.len()
    }

    /// Takes a new token in.
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
        let record = Record {
            cluster: token.cluster.clone(),
            hash: token.hash(),
            expires: now.saturating_add(ttl_seconds),
            used: None,
            used_by: None,
        };
        self.records.insert(token.id.clone(), record);
        Ok(())
    }

    /// Whether a token may be used now for this signing request.
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self, token: &Token, csr: &[u8], now: i64) -> Result<(), TokenError> {
        let record = self.records.get(&token.id).ok_or(TokenError::Unknown)?;
        if !same(record.hash.as_bytes(), token.hash().as_bytes()) {
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

    /// Uses a token up for a signing request. The book must then be written under its resource version before anything is given
    /// for it. Returns whether the book has changed: a repeated request changes nothing.
    ///
    /// # Errors
    /// Says why not; the book is unchanged then.
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

/// By which a signing request is known again.
fn hash_of(csr: &[u8]) -> String {
    hex(&Sha256::digest(csr))
}

/// Compares without telling by its time where two texts differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

/// Lower-case hex.
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
    fn a_token_survives_printing_even_with_dots_in_the_name() {
        let token = token("eu.west-1");
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(&token.secret));
    }

    #[test]
    fn the_book_survives_the_secret_and_never_holds_the_secret_itself() {
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
    fn a_token_is_good_once() {
        let mut book = book("a");
        assert_eq!(book.redeem(&token("a"), b"one", NOW + 1), Ok(true));
        assert_eq!(book.redeem(&token("a"), b"another", NOW + 1), Err(TokenError::Used));
    }

    #[test]
    fn used_token_answers_the_same_request_for_a_while() {
        let mut book = TokenBook::default();
        book.add(&token("a"), 3600, NOW).unwrap();
        assert_eq!(book.redeem(&token("a"), b"one", NOW), Ok(true));
        assert_eq!(book.redeem(&token("a"), b"one", NOW + REPEAT_SECONDS - 1), Ok(false));
        assert_eq!(book.redeem(&token("a"), b"one", NOW + REPEAT_SECONDS), Err(TokenError::Used));
        assert_eq!(book.redeem(&token("a"), b"another", NOW + 1), Err(TokenError::Used));
    }

    #[test]
    fn token_names_a_cluster_and_nothing_else() {
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
    fn each_refusal_has_its_reason() {
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
    fn the_book_is_bounded_and_swept() {
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
