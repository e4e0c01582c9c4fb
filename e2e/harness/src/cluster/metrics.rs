//! Requests to an API server, from its own metrics, and by user from its audit log.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use serde_json::Value;

use super::Cluster;

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY` (in audit logs `PATCH`), `DELETE`, `DELETECOLLECTION`,
    /// `CONNECT`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, plural; empty for other paths, such as `/readyz`.
    pub resource: String,
    /// For example `status` or `token`; empty for the object itself.
    pub subresource: String,
    /// The HTTP status code.
    pub code: u16,
}

/// Answered requests of each kind, of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub BTreeMap<Request, u64>);

impl Requests {
    /// The increase since an earlier count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let grown = |(request, count): (&Request, &u64)| {
            let more = count.saturating_sub(before.0.get(request).copied().unwrap_or(0));
            (more > 0).then(|| (request.clone(), more))
        };
        Self(self.0.iter().filter_map(grown).collect())
    }

    /// Requests that are not events.
    #[must_use]
    pub fn without_events(&self) -> Self {
        self.only(|request| request.resource != "events")
    }

    /// Requests that a predicate picks.
    #[must_use]
    pub fn only(&self, mut pick: impl FnMut(&Request) -> bool) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(request, _)| pick(request))
                .map(|(key, count)| (key.clone(), *count))
                .collect(),
        )
    }

    /// Writes, including refused ones (conflicts, validation), because they cost the server as much.
    #[must_use]
    pub fn writes(&self) -> Self {
        let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
        // Access reviews and token requests are POSTs that store nothing.
        self.only(|request| {
            verbs.contains(&request.verb.as_str())
                && !request.group.starts_with("auth")
                && request.subresource != "token"
        })
    }

    /// Requests for one resource and its subresources; the group is empty for the core group.
    #[must_use]
    pub fn of(&self, group: &str, resource: &str) -> Self {
        self.only(|request| request.group == group && request.resource == resource)
    }

    /// The number of all requests.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Reads the requests of one user from an audit log, with the verbs of the metrics.
    pub fn parse_audit(log: &str, user: &str) -> Self {
        let mut requests = BTreeMap::new();
        for line in log.lines() {
            // The last line may be incomplete, because the server still writes it.
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            if event["user"]["username"] != user
                || event["requestURI"].as_str().is_some_and(is_dry_run)
            {
                continue;
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &event["objectRef"];
            let verb = match event["verb"].as_str().unwrap_or_default() {
                "create" => "POST".to_owned(),
                "update" => "PUT".to_owned(),
                other => other.to_uppercase(),
            };
            let request = Request {
                verb,
                group: text(&object["apiGroup"]),
                resource: text(&object["resource"]),
                subresource: text(&object["subresource"]),
                code: event["responseStatus"]["code"]
                    .as_u64()
                    .and_then(|code| code.try_into().ok())
                    .unwrap_or(0),
            };
            *requests.entry(request).or_insert(0) += 1;
        }
        Self(requests)
    }

    /// Reads `apiserver_request_total` out of a metrics page; dry runs are left out.
    pub fn parse(page: &str) -> Self {
        let mut requests = BTreeMap::new();
        for line in page.lines() {
            let Some((labels, value)) = line
                .strip_prefix("apiserver_request_total{")
                .and_then(|rest| rest.rsplit_once("} "))
            else {
                continue;
            };
            let labels = labels_of(labels);
            let get = |name: &str| labels.get(name).copied().unwrap_or_default().to_owned();
            let Ok(count) = value.trim().parse::<f64>() else { continue };
            if !get("dry_run").is_empty() {
                continue;
            }
            let request = Request {
                verb: get("verb"),
                group: get("group"),
                resource: get("resource"),
                subresource: get("subresource"),
                code: get("code").parse().unwrap_or(0),
            };
            // Counters are whole numbers, small enough to be exact in floating point.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let count = count as u64;
            *requests.entry(request).or_insert(0) += count;
        }
        Self(requests)
    }
}

/// A table, the most frequent requests first, for the message of an exceeded write budget.
impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (request, count) in rows {
            let Request { verb, group, resource, subresource, code } = request;
            let dot = if group.is_empty() { "" } else { "." };
            let slash = if subresource.is_empty() { "" } else { "/" };
            writeln!(f, "{count:>7} {verb:<7} {code} {resource}{dot}{group}{slash}{subresource}")?;
        }
        write!(f, "{:>7} in all", self.total())
    }
}

fn is_dry_run(uri: &str) -> bool {
    uri.contains("dryRun=")
}

/// Parses `a="x",b="y"`. The values of this metric contain no quotes and no commas.
fn labels_of(text: &str) -> BTreeMap<&str, &str> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name, value.trim_matches('"'))).collect()
}

impl Cluster {
    /// The requests that the API server has answered since it started.
    pub async fn requests(&self) -> anyhow::Result<Requests> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(Requests::parse(&self.admin.request_text(request).await?))
    }

    /// The requests of one user since the cluster's start, for clusters that are
    /// [`crate::ClusterSpec::audited`]. A service account's user name is `system:serviceaccount:NAMESPACE:NAME`.
    pub fn requests_by(&self, user: &str) -> anyhow::Result<Requests> {
        let path = self.files.audit_log();
        let log = std::fs::read_to_string(&path)
            .with_context(|| format!("{} is not audited", self.name()))?;
        Ok(Requests::parse_audit(&log, user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="status",verb="PATCH",version="v1"} 4
apiserver_request_total{code="200",component="apiserver",dry_run="",group="batch",resource="jobs",scope="resource",subresource="",verb="PUT",version="v1"} 7
apiserver_request_total{code="409",component="apiserver",dry_run="",group="batch",resource="jobs",scope="resource",subresource="",verb="PUT",version="v1"} 1
apiserver_request_total{code="201",component="apiserver",dry_run="All",group="batch",resource="jobs",scope="resource",subresource="",verb="POST",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="batch",resource="jobs",scope="cluster",subresource="",verb="LIST",version="v1"} 3
apiserver_request_total{code="201",component="apiserver",dry_run="",group="authorization.k8s.io",resource="subjectaccessreviews",scope="resource",subresource="",verb="POST",version="v1"} 5
apiserver_request_duration_seconds_count{verb="GET"} 12
"#;

    #[test]
    fn writes_are_counted_by_resource_without_dry_runs_and_reviews() {
        let requests = Requests::parse(PAGE);
        assert_eq!(requests.writes().total(), 12);
        assert_eq!(requests.writes().of("batch", "jobs").total(), 8);
        assert_eq!(requests.of("", "pods").total(), 4);
    }

    #[test]
    fn an_audit_log_tells_whose_requests_they_were() {
        let log = r#"{"user":{"username":"us"},"verb":"create","requestURI":"/x","objectRef":{"resource":"jobs","apiGroup":"batch"},"responseStatus":{"code":201}}
{"user":{"username":"us"},"verb":"patch","requestURI":"/x?dryRun=All","objectRef":{"resource":"jobs","apiGroup":"batch"},"responseStatus":{"code":200}}
{"user":{"username":"them"},"verb":"create","requestURI":"/x","objectRef":{"resource":"pods"},"responseStatus":{"code":201}}
{"user":{"username":"us"},"verb":"upd"#;
        let ours = Requests::parse_audit(log, "us");
        assert_eq!(ours.to_string(), "      1 POST    201 jobs.batch\n      1 in all");
    }

    #[test]
    fn a_difference_has_only_what_grew() {
        let before = Requests::parse(PAGE);
        let after = Requests::parse(&PAGE.replace("} 7", "} 9"));
        let more = after.since(&before);
        assert_eq!(more.to_string(), "      2 PUT     200 jobs.batch\n      2 in all");
    }
}
