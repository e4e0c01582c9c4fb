//! Keeps the join tokens in a Secret of the hub's namespace.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;

use super::store::{CONFLICT_RETRIES, named, post};
use super::token::{Token, TokenBook, TokenError};

/// Holds the join tokens as hashes, one entry each.
pub const TOKEN_SECRET: &str = "switchyard-join-tokens";

/// Why a token was not redeemed.
#[derive(Debug, thiserror::Error)]
pub enum RedeemError {
    /// The token is not valid.
    #[error(transparent)]
    Refused(#[from] TokenError),
    #[error("the token Secret could not be read or written: {0}")]
    Api(#[from] kube::Error),
    #[error("the token Secret was not read in time")]
    Late,
    /// Every write met a conflict.
    #[error("the token Secret is too contended")]
    Contended,
}

/// All join tokens.
///
/// # Errors
/// The API refuses.
pub async fn tokens(secrets: &Api<Secret>) -> Result<TokenBook, kube::Error> {
    Ok(secrets.get_opt(TOKEN_SECRET).await?.as_ref().map(book).unwrap_or_default())
}

/// Uses up a token for a signing request. `Ok` means that the API shows it as used, by this
/// request.
///
/// # Errors
/// [`RedeemError`]. The token is then not used up, unless a failed API call took effect. The same
/// request may be repeated.
pub async fn redeem(
    secrets: &Api<Secret>,
    token: &Token,
    csr: &[u8],
    now: Timestamp,
) -> Result<(), RedeemError> {
    for _ in 0..CONFLICT_RETRIES {
        let Some(secret) = secrets.get_opt(TOKEN_SECRET).await? else {
            return Err(TokenError::Unknown.into());
        };
        let mut book = book(&secret);
        if !book.redeem(token, csr, now.as_second())? {
            return Ok(());
        }
        match write(secrets, secret, &book).await {
            Ok(()) => return Ok(()),
            // Another token was added or used, or another caller used this one: read again.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(RedeemError::Contended)
}

/// Adds a token.
///
/// # Errors
/// As [`redeem`].
pub async fn add(
    secrets: &Api<Secret>,
    token: &Token,
    ttl_seconds: i64,
    now: Timestamp,
) -> Result<(), RedeemError> {
    for _ in 0..CONFLICT_RETRIES {
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

/// Removes expired tokens and returns their number. After a conflict they stay for the next time.
///
/// # Errors
/// The API refuses.
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

/// Replaces the resource version that was read. This makes a token usable once only.
async fn write(
    secrets: &Api<Secret>,
    mut secret: Secret,
    book: &TokenBook,
) -> Result<(), kube::Error> {
    secret.data = Some(data(book));
    secrets.replace(TOKEN_SECRET, &post(), &secret).await.map(drop)
}
