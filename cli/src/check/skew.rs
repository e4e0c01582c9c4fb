//! Clocks that differ: certificates that are out of date, and agents of which the hub reports it.

use kube::ResourceExt as _;
use switchyard_api::conditions;
use switchyard_api::v1beta2::MultiKueueCluster;

use super::explain::CheckName;
use super::report::Line;

/// Whether a TLS error means that a certificate is out of date by this machine's clock.
pub(super) fn is_out_of_date(error: &str) -> bool {
    ["certificate expired", "certificate not valid yet", "NotValidYet", "Expired"]
        .iter()
        .any(|text| error.contains(text))
}

/// The line for a certificate that is out of date by this machine's clock.
pub(super) fn certificate_out_of_date(check: CheckName, address: &str, error: &str) -> Line {
    Line::failure(
        check,
        format!(
            "by the clock of this machine, the certificate of {address} is out of date: {error}"
        ),
        "set the clock of this machine by NTP, and see `clocks`. If it is right, the hub's clock was wrong when it made \
         the certificate: set that one, and restart the hub",
    )
}

/// The difference between the clocks of an agent and of the hub, as the hub reports it.
pub(super) fn check_agent_clock(cluster: &MultiKueueCluster) -> Option<Line> {
    let known = cluster.status.as_ref()?;
    let skewed = conditions::find(&known.conditions, conditions::CLOCK_SKEWED)?;
    let name = cluster.name_any();
    if skewed.status != conditions::TRUE {
        return Some(Line::ok(CheckName::Clocks, format!("{name}: {}", skewed.message)));
    }
    Some(Line::failure(
        CheckName::Clocks,
        format!("{name}: {}", skewed.message),
        format!("synchronize the clocks of the hub's nodes and of {name}'s nodes with NTP"),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::report::Outcome;

    #[test]
    fn certificate_of_another_time_names_the_clock() {
        use rustls::CertificateError::{ExpiredContext, NotValidYetContext};
        use rustls::pki_types::UnixTime;
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let early = NotValidYetContext { time: at(1), not_before: at(3601) };
        let late = ExpiredContext { time: at(3601), not_after: at(1) };
        for error in [early, late] {
            let error = rustls::Error::InvalidCertificate(error).to_string();
            assert!(is_out_of_date(&error), "{error}");
            let line = certificate_out_of_date(CheckName::AgentsDoor, "https://hub", &error);
            assert!(line.mend.unwrap().starts_with("set the clock of this machine"));
        }
        assert!(!is_out_of_date("invalid peer certificate: UnknownIssuer"));
    }

    #[test]
    fn skewed_agent_is_a_failure_until_it_is_not() {
        let cluster = |status: &str| -> MultiKueueCluster {
            let condition = json!({"type": "ClockSkewed", "status": status, "reason": "X", "message": "words",
                "lastTransitionTime": "2026-11-21T10:00:00Z"});
            serde_json::from_value(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "east"},
                "spec": {"clusterSource": {"agent": {}}}, "status": {"conditions": [condition]},
            }))
            .unwrap()
        };
        let line = check_agent_clock(&cluster("True")).unwrap();
        assert_eq!((line.outcome, &*line.message), (Outcome::Failure, "east: words"));
        assert_eq!(check_agent_clock(&cluster("False")).unwrap().outcome, Outcome::Ok);
        let mut never = cluster("True");
        never.status = None;
        assert_eq!(check_agent_clock(&never), None);
    }
}
