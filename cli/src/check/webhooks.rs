//! Checks the webhooks: registered, reachable, with a valid certificate.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::dry_run::Denial;
use super::explain::CheckName;
use super::facts::ClusterFacts;
use super::mode::Mode;
use super::report::Line;

pub(super) fn check_webhooks(facts: &ClusterFacts, mode: Mode) -> Vec<Line> {
    let mut lines = vec![check_registration(facts, mode)];
    lines.extend(check_conversion(facts));
    lines.push(check_certificate(facts));
    lines.extend(check_reachability(facts));
    lines
}

/// Checks that the configurations have webhooks, each with a CA bundle.
fn check_registration(facts: &ClusterFacts, mode: Mode) -> Line {
    let (mutating, validating) = match (&facts.mutating, &facts.validating) {
        (Ok(mutating), Ok(validating)) => (mutating, validating),
        (Err(error), _) | (_, Err(error)) => return Line::unread(CheckName::Webhooks, error),
    };
    let (Some(mutating), Some(validating)) = (mutating, validating) else {
        let mend =
            format!("helm upgrade, or kubectl apply --server-side --filename {}", mode.manifest());
        return Line::failure(
            CheckName::Webhooks,
            "the webhook configurations \"switchyard\" are missing",
            mend,
        );
    };
    let bundles: Vec<(&str, Option<&ByteString>)> = mutating
        .webhooks
        .iter()
        .flatten()
        .map(|it| (it.name.as_str(), it.client_config.ca_bundle.as_ref()))
        .chain(
            validating
                .webhooks
                .iter()
                .flatten()
                .map(|it| (it.name.as_str(), it.client_config.ca_bundle.as_ref())),
        )
        .collect();
    if bundles.is_empty() {
        return Line::failure(
            CheckName::Webhooks,
            "the webhook configurations are empty: jobs are neither suspended nor sent",
            "the leader fills them in: see `leader` and `rights`, and whether it is started with --webhook-listen",
        );
    }
    match bundles
        .iter()
        .find(|(_, bundle)| bundle.is_none_or(|bundle| last_second(&bundle.0).is_none()))
    {
        Some((name, _)) => Line::failure(
            CheckName::Webhooks,
            format!("webhook {name} has no CA bundle that can be read"),
            "restart the program: the leader writes its own; with cert-manager, see whether its Certificate is ready",
        ),
        None => Line::ok(CheckName::Webhooks, format!("{} are registered", bundles.len())),
    }
}

/// Checks that the API server converts through a webhook if v1beta1 is served.
fn check_conversion(facts: &ClusterFacts) -> Option<Line> {
    let crds = facts.crds.as_ref().ok()?;
    let kueue_crds: Vec<&CustomResourceDefinition> =
        crds.iter().filter(|it| it.spec.group == "kueue.x-k8s.io").collect();
    let converted = |crd: &&&CustomResourceDefinition| {
        crd.spec.versions.iter().filter(|version| version.served).count() > 1
            && crd
                .spec
                .conversion
                .as_ref()
                .is_some_and(|conversion| conversion.strategy == "Webhook")
    };
    let has_bundle = |crd: &CustomResourceDefinition| {
        let webhook =
            crd.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
        let bundle = webhook.and_then(|it| it.client_config.as_ref()?.ca_bundle.as_ref());
        bundle.is_some_and(|bundle| !bundle.0.is_empty())
    };
    let all: Vec<_> = kueue_crds.iter().filter(converted).collect();
    let without: Vec<String> =
        all.iter().filter(|crd| !has_bundle(crd)).map(|crd| crd.name_any()).collect();
    Some(match (all.len(), without.as_slice()) {
        (0, _) => return None,
        (count, []) => {
            Line::ok(CheckName::Conversion, format!("v1beta1 of {count} kinds is converted"))
        }
        (_, without) => Line::failure(
            CheckName::Conversion,
            format!(
                "no CA bundle for the conversion of {}: reading v1beta1 fails",
                super::cluster::shorten(without)
            ),
            "the leader writes it: see `leader` and `rights`",
        ),
    })
}

/// Checks the serving certificate. It is renewed in the last third of its lifetime, so the warning
/// in the last tenth means that renewal is overdue.
fn check_certificate(facts: &ClusterFacts) -> Line {
    let now = facts.server.as_ref().map_or_else(|_| Timestamp::now(), |server| server.now);
    let mend = "the leader renews it: see `leader` and `rights`; with cert-manager, see whether its Certificate is ready";
    let secret = match &facts.certificate {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            return Line::failure(
                CheckName::WebhookCertificate,
                "the Secret switchyard-webhook-cert is missing",
                mend,
            );
        }
        Err(error) => return Line::unread(CheckName::WebhookCertificate, error),
    };
    let pem = secret.data.as_ref().and_then(|data| data.get("tls.crt"));
    let Some((from, to)) = pem.and_then(|pem| validity(&pem.0)) else {
        let message = "the Secret switchyard-webhook-cert has no certificate in tls.crt";
        return Line::failure(CheckName::WebhookCertificate, message, mend);
    };
    let (left, whole) = (to - now.as_second(), to - from);
    let until = Timestamp::from_second(to).map_or_else(|_| String::new(), |it| it.to_string());
    if now.as_second() < from {
        let mend = "synchronize the clocks: see `clocks`";
        return Line::failure(
            CheckName::WebhookCertificate,
            "the webhooks' certificate is not valid yet",
            mend,
        );
    }
    match left {
        ..=0 => Line::failure(
            CheckName::WebhookCertificate,
            format!("the webhooks' certificate ended at {until}"),
            mend,
        ),
        left if left * 10 < whole => Line::warning(
            CheckName::WebhookCertificate,
            format!("renewal is overdue: it ends at {until}"),
            mend,
        ),
        _ => Line::ok(CheckName::WebhookCertificate, format!("valid until {until}")),
    }
}

/// First and last second of a PEM certificate's validity.
fn validity(pem: &[u8]) -> Option<(i64, i64)> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

fn last_second(pem: &[u8]) -> Option<i64> {
    validity(pem).map(|(_, to)| to)
}

/// Checks the API server's answers to the dry runs.
fn check_reachability(facts: &ClusterFacts) -> Vec<Line> {
    let check = CheckName::WebhooksReachable;
    let mend = "see whether pods are ready, and whether the API server reaches them: NetworkPolicies, firewalls between control \
                plane and nodes (port 9443), hostNetwork where the network of pods cannot be reached";
    let flavor = match &facts.dry_run.flavor {
        None => Line::ok(check, "a ResourceFlavor was accepted by dry run"),
        Some(Denial::Webhook(message)) => Line::failure(check, message.clone(), mend),
        Some(Denial::Forbidden) => Line::unread(
            check,
            "creating a ResourceFlavor by dry run takes the right to create one",
        ),
        Some(Denial::Other(message)) => Line::warning(
            check,
            format!("a ResourceFlavor was refused by dry run: {message}"),
            "see what refuses it",
        ),
    };
    let framework = facts
        .config()
        .is_none_or(|config| config.all_frameworks().iter().any(|it| it == "batch/job"));
    let job = facts.dry_run.job.as_ref().filter(|_| framework).map(|job| match job {
        Ok(true) => Line::ok(check, "a Job with a queue is suspended when it is created"),
        Ok(false) => Line::failure(
            check,
            "a Job with a queue is not suspended when it is created: it would run at once",
            mend,
        ),
        Err(Denial::Webhook(message)) => Line::failure(check, message.clone(), mend),
        Err(Denial::Forbidden) => {
            Line::unread(check, "creating a Job by dry run takes the right to create one")
        }
        Err(Denial::Other(message)) => Line::warning(
            check,
            format!("a Job was refused by dry run: {message}"),
            "see what refuses it",
        ),
    });
    [flavor].into_iter().chain(job).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::check::report::Outcome;
    use crate::check::tests::facts;

    /// A certificate that is valid from and to so many seconds from now.
    fn pem(from: i64, to: i64) -> Vec<u8> {
        let at = |seconds| {
            std::time::SystemTime::from(
                Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap(),
            )
        };
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (at(from).into(), at(to).into());
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().into_bytes()
    }

    #[test]
    fn certificate_warns_if_renewal_is_overdue() {
        const DAY: i64 = 24 * 3600;
        for (from, to, outcome) in [
            (-30 * DAY, 60 * DAY, Outcome::Ok),
            (-85 * DAY, 5 * DAY, Outcome::Warning),
            (-90 * DAY, -1, Outcome::Failure),
            (3600, 90 * DAY, Outcome::Failure),
            // A tenth of one day is left later than of a year.
            (-3600, DAY, Outcome::Ok),
        ] {
            let mut facts = facts();
            let data = [("tls.crt".to_owned(), ByteString(pem(from, to)))].into();
            facts.certificate = Ok(Some(Secret { data: Some(data), ..Secret::default() }));
            let line = check_certificate(&facts);
            assert_eq!(line.outcome, outcome, "{from} {to}: {}", line.message);
        }
    }

    #[test]
    fn unreachable_webhook_is_reported_with_server_message() {
        let mut facts = facts();
        let message = "failed calling webhook \"x\": x509: certificate signed by unknown authority";
        facts.dry_run.flavor = Some(Denial::Webhook(message.to_owned()));
        facts.dry_run.job = Some(Ok(false));
        let lines = check_reachability(&facts);
        assert!(lines.iter().all(|line| line.outcome == Outcome::Failure));
        assert!(
            lines[0].message.contains("unknown authority")
                && lines[1].message.contains("not suspended")
        );
        facts.dry_run.flavor = Some(Denial::Forbidden);
        assert_eq!(check_reachability(&facts)[0].outcome, Outcome::Warning);
    }
}
