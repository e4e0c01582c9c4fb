//! Reads the clock of the hub's API server.
//!
//! The clocks of hub replicas may be wrong in different ways. A time that outlives a process and is
//! compared with times of API servers must come from the API server.

use anyhow::Context as _;
use http::header::DATE;
use http::{HeaderMap, Request};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;

/// A difference of this many seconds is logged: certificates and Leases depend on clocks.
const NOTABLE: i64 = 60;

/// The API server's time in whole seconds. `own` if the answer has none: some proxies remove it.
///
/// # Errors
/// The API server does not answer.
pub(crate) async fn now(client: &Client, own: impl Fn() -> Timestamp) -> anyhow::Result<Timestamp> {
    let request =
        Request::get("/version").body(Body::empty()).context("making a request for the time")?;
    let response = client.send(request).await.context("asking the API server for the time")?;
    let own = own();
    let Some(at) = date(response.headers()) else { return Ok(own) };
    let ahead = own.as_second() - at.as_second();
    if ahead.abs() > NOTABLE {
        tracing::warn!(seconds_ahead = ahead, "this machine's clock differs from the API server's");
    }
    Ok(at)
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(headers.get(DATE)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::go_format(Some("Wed, 25 Nov 2026 13:20:44 GMT"), Some("2026-11-25T13:20:44Z"))]
    #[case::not_a_date(Some("yesterday"), None)]
    #[case::missing(None, None)]
    fn date_header_is_parsed_or_ignored(
        #[case] header: Option<&'static str>,
        #[case] expected: Option<&str>,
    ) {
        let headers =
            header.map(|value| (DATE, HeaderValue::from_static(value))).into_iter().collect();
        assert_eq!(date(&headers), expected.map(|at| at.parse().unwrap()));
    }
}
