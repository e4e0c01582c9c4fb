//! Judges the webhooks: filled in, reachable, with a certificate that lasts.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::facts::Facts;
use super::mode::Mode;
use super::report::Line;
use super::trial::Refusal;

/// All lines on webhooks.
pub(super) fn webhooks(facts: &Facts, mode: Mode) -> Vec<Line> {
    let mut lines = vec![registered(facts, mode)];
    lines.extend(conversion(facts));
    lines.push(certificate(facts));
    lines.extend(reachable(facts));
    lines
}

/// The configurations hold webhooks, each with a CA bundle.
fn registered(facts: &Facts, mode: Mode) -> Line {
    let (mutating, validating) = match (&facts.mutating, &facts.validating) {
        (Ok(mutating), Ok(validating)) => (mutating, validating),
        (Err(error), _) | (_, Err(error)) => return Line::unread("webhooks", error),
    };
    let (Some(mutating), Some(validating)) = (mutating, validating) else {
        let mend =
            format!("helm upgrade, or kubectl apply --server-side --filename {}", mode.manifest());
        return Line::failure(
            "webhooks",
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
            "webhooks",
            "the webhook configurations are empty: jobs are neither suspended nor sent",
            "the leader fills them in: see `leader` and `rights`, and whether it is started with --webhook-listen",
        );
    }
    match bundles
        .iter()
        .find(|(_, bundle)| bundle.is_none_or(|bundle| last_day(&bundle.0).is_none()))
    {
        Some((name, _)) => Line::failure(
            "webhooks",
            format!("webhook {name} has no CA bundle that can be read"),
            "restart the program: the leader writes its own; with cert-manager, see whether its Certificate is ready",
        ),
        None => Line::ok("webhooks", format!("{} are registered", bundles.len())),
    }
}

/// Where v1beta1 is served, the API server converts through a webhook.
fn conversion(facts: &Facts) -> Option<Line> {
    let crds = facts.crds.as_ref().ok()?;
    let ours: Vec<&CustomResourceDefinition> =
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
    let all: Vec<_> = ours.iter().filter(converted).collect();
    let without: Vec<String> =
        all.iter().filter(|crd| !has_bundle(crd)).map(|crd| crd.name_any()).collect();
    Some(match (all.len(), without.as_slice()) {
        (0, _) => return None,
        (count, []) => Line::ok("conversion", format!("v1beta1 of {count} kinds is converted")),
        (_, without) => Line::failure(
            "conversion",
            format!(
                "no CA bundle for the conversion of {}: reading v1beta1 fails",
                super::cluster::some(without)
            ),
            "the leader writes it: see `leader` and `rights`",
        ),
    })
}

/// The serving certificate. It is renewed in the last third of its life, so a warning comes when that is overdue, whatever its
/// life is.
fn certificate(facts: &Facts) -> Line {
    let now = facts.server.as_ref().map_or_else(|_| Timestamp::now(), |server| server.now);
    let mend = "the leader renews it: see `leader` and `rights`; with cert-manager, see whether its Certificate is ready";
    let secret = match &facts.certificate {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            return Line::failure(
                "webhook-certificate",
                "the Secret switchyard-webhook-cert is missing",
                mend,
            );
        }
        Err(error) => return Line::unread("webhook-certificate", error),
    };
    let pem = secret.data.as_ref().and_then(|data| data.get("tls.crt"));
    let Some((from, to)) = pem.and_then(|pem| life(&pem.0)) else {
        let message = "the Secret switchyard-webhook-cert has no certificate in tls.crt";
        return Line::failure("webhook-certificate", message, mend);
    };
    let (left, whole) = (to - now.as_second(), to - from);
    let until = Timestamp::from_second(to).map_or_else(|_| String::new(), |it| it.to_string());
    if now.as_second() < from {
        let mend = "synchronize the clocks: see `clocks`";
        return Line::failure(
            "webhook-certificate",
            "the webhooks' certificate is not valid yet",
            mend,
        );
    }
    match left {
        ..=0 => Line::failure(
            "webhook-certificate",
            format!("the webhooks' certificate ended at {until}"),
            mend,
        ),
        left if left * 10 < whole => Line::warning(
            "webhook-certificate",
            format!("renewal is overdue: it ends at {until}"),
            mend,
        ),
        _ => Line::ok("webhook-certificate", format!("valid until {until}")),
    }
}

/// The first and last second of a certificate in PEM.
fn life(pem: &[u8]) -> Option<(i64, i64)> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

fn last_day(pem: &[u8]) -> Option<i64> {
    life(pem).map(|(_, to)| to)
}

/// The API server's answer when it has to call the webhooks.
fn reachable(facts: &Facts) -> Vec<Line> {
    let check = "webhooks-reachable";
    let mend = "see whether pods are ready, and whether the API server reaches them: NetworkPolicies, firewalls between control \
                plane and nodes (port 9443), hostNetwork where the network of pods cannot be reached";
    let flavor = match &facts.trial.flavor {
        None => Line::ok(check, "a ResourceFlavor was accepted by dry run"),
        Some(Refusal::Webhook(message)) => Line::failure(check, message.clone(), mend),
        Some(Refusal::Forbidden) => Line::unread(
            check,
            "creating a ResourceFlavor by dry run takes the right to create one",
        ),
        Some(Refusal::Other(message)) => Line::warning(
            check,
            format!("a ResourceFlavor was refused by dry run: {message}"),
            "see what refuses it",
        ),
    };
    let framework = facts
        .config()
        .is_none_or(|config| config.all_frameworks().iter().any(|it| it == "batch/job"));
    let job = facts.trial.job.as_ref().filter(|_| framework).map(|job| match job {
        Ok(true) => Line::ok(check, "a Job with a queue is suspended when it is created"),
        Ok(false) => Line::failure(
            check,
            "a Job with a queue is not suspended when it is created: it would run at once",
            mend,
        ),
        Err(Refusal::Webhook(message)) => Line::failure(check, message.clone(), mend),
        Err(Refusal::Forbidden) => {
            Line::unread(check, "creating a Job by dry run takes the right to create one")
        }
        Err(Refusal::Other(message)) => Line::warning(
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
    fn a_certificate_warns_when_its_renewal_is_overdue() {
        const DAY: i64 = 24 * 3600;
        for (from, to, outcome) in [
            (-30 * DAY, 60 * DAY, Outcome::Ok),
            (-85 * DAY, 5 * DAY, Outcome::Warning),
            (-90 * DAY, -1, Outcome::Failure),
            (3600, 90 * DAY, Outcome::Failure),
            // One that lasts a day is no nearer to its end than its life is long.
            (-3600, DAY, Outcome::Ok),
        ] {
            let mut facts = facts();
            let data = [("tls.crt".to_owned(), ByteString(pem(from, to)))].into();
            facts.certificate = Ok(Some(Secret { data: Some(data), ..Secret::default() }));
            let line = certificate(&facts);
            assert_eq!(line.outcome, outcome, "{from} {to}: {}", line.message);
        }
    }

    #[test]
    fn a_webhook_that_cannot_be_called_is_told_in_the_servers_words() {
        let mut facts = facts();
        let message = "failed calling webhook \"x\": x509: certificate signed by unknown authority";
        facts.trial.flavor = Some(Refusal::Webhook(message.to_owned()));
        facts.trial.job = Some(Ok(false));
        let lines = reachable(&facts);
        assert!(lines.iter().all(|line| line.outcome == Outcome::Failure));
        assert!(
            lines[0].message.contains("unknown authority")
                && lines[1].message.contains("not suspended")
        );
        facts.trial.flavor = Some(Refusal::Forbidden);
        assert_eq!(reachable(&facts)[0].outcome, Outcome::Warning);
    }
}
