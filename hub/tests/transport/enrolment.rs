//! How a cluster gets its identity and keeps it, and that every refusal looks the same.

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use switchyard_hub::server::Settings;
use switchyard_hub_pki::ca::identity_of;
use switchyard_hub_pki::token::Token;
use switchyard_proto::v1::enrolment_client::EnrolmentClient;
use switchyard_proto::v1::{Certificate, EnrolRequest, RenewRequest};
use tonic::Code;
use tonic::transport::Channel;

use crate::door::{Loopback, soon};
use crate::raw::{Talk, channel, shown};

/// A certificate signing request.
fn request() -> Vec<u8> {
    CertificateParams::default()
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap()
        .der()
        .to_vec()
}

async fn enrol(hub: &Loopback, token: &str, csr: Vec<u8>) -> Result<Certificate, tonic::Status> {
    let mut client = EnrolmentClient::new(channel(hub, None).await.unwrap());
    let request = EnrolRequest { token: token.to_owned(), csr };
    Ok(soon("an answer", client.enrol(request)).await?.into_inner())
}

async fn renew(channel: Channel) -> Result<Certificate, tonic::Status> {
    let mut client = EnrolmentClient::new(channel);
    Ok(soon("an answer", client.renew(RenewRequest { csr: request() })).await?.into_inner())
}

/// Nobody learns why.
fn is_refusal<T>(answer: Result<T, tonic::Status>) -> bool {
    answer.is_err_and(|status| {
        (status.code(), status.message()) == (Code::PermissionDenied, "refused")
    })
}

#[tokio::test]
async fn a_token_is_exchanged_once_and_the_certificate_names_its_cluster() {
    let hub = Loopback::open(Settings::default()).await;
    let token = hub.door.bare_token("east").to_string();
    let given = enrol(&hub, &token, request()).await.unwrap();
    let named = identity_of(&CertificateDer::from(given.chain[0].clone())).unwrap().to_string();
    assert_eq!(named, "spiffe://hub/cluster/east/east-uid");
    assert!(is_refusal(enrol(&hub, &token, request()).await));
}

#[tokio::test]
async fn every_refusal_looks_the_same_and_uses_nothing_up() {
    let hub = Loopback::open(Settings::default()).await;
    let good = hub.door.bare_token("east");
    let renamed = Token { cluster: "west".into(), ..good.clone() };
    let wrong = Token { secret: "x".repeat(43), ..good.clone() };
    for (case, token) in [
        ("junk", "junk".to_owned()),
        ("another name", renamed.to_string()),
        ("a wrong secret", wrong.to_string()),
        ("a cluster that does not exist", hub.door.bare_token("south").to_string()),
        ("huge", "x".repeat(10_000)),
    ] {
        assert!(is_refusal(enrol(&hub, &token, request()).await), "{case}");
    }
    assert!(
        is_refusal(enrol(&hub, &good.to_string(), vec![1, 2, 3]).await),
        "a request that is none"
    );
    enrol(&hub, &good.to_string(), request()).await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_needed_and_renewed_for_the_same_cluster_only_while_it_lives() {
    let hub = Loopback::open(Settings::default()).await;
    assert!(is_refusal(renew(channel(&hub, None).await.unwrap()).await));
    let identity = hub.enrolled("east").await;
    let open = channel(&hub, Some(shown(&identity))).await.unwrap();
    assert_eq!(renew(open.clone()).await.unwrap().cluster, "east");
    hub.door.recreate("east");
    assert!(is_refusal(renew(open.clone()).await), "recreated");
    hub.door.delete("east");
    assert!(is_refusal(renew(open).await), "deleted");
    assert!(is_refusal(Talk::open(&hub, shown(&identity)).await));
}

#[tokio::test]
async fn strangers_hold_no_place_and_look_nothing_up() {
    let hub = Loopback::open(Settings::default()).await;
    let before = hub.door.looked_up();
    let strangers =
        ["?watch=true.aa.bb", "east.aa.bb", "a\nb.aa.bb", "no-such-cluster.0011223344556677.x"];
    let tries = (0..32).map(|number| enrol(&hub, strangers[number % strangers.len()], request()));
    let (refused, honest) = tokio::join!(futures::future::join_all(tries), async {
        let token = hub.door.bare_token("east").to_string();
        enrol(&hub, &token, request()).await
    });
    assert_eq!(
        refused.into_iter().filter_map(|answer| (!is_refusal(answer)).then_some(())).count(),
        0
    );
    assert!(honest.is_ok(), "{honest:?}");
    assert_eq!(hub.door.looked_up() - before, 1, "for the holder of a token");
}

#[tokio::test]
async fn lost_answer_is_given_again_to_the_same_request() {
    let hub = Loopback::open(Settings::default()).await;
    let token = hub.door.bare_token("east").to_string();
    hub.door.lose_the_next_answer("east");
    let csr = request();
    let lost = enrol(&hub, &token, csr.clone()).await.unwrap_err();
    assert_eq!((lost.code(), lost.message()), (Code::DeadlineExceeded, "try again"));
    assert!(is_refusal(enrol(&hub, &token, request()).await), "another key");
    assert_eq!(enrol(&hub, &token, csr).await.unwrap().cluster, "east");
}
