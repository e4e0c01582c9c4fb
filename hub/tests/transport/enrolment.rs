//! How an agent gets and keeps its identity, and that all refusals look alike.

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use switchyard_hub::server::ServerSettings;
use switchyard_hub_pki::ca::identity_of;
use switchyard_hub_pki::token::Token;
use switchyard_proto::v1::enrolment_client::EnrolmentClient;
use switchyard_proto::v1::{Certificate, EnrolRequest, RenewRequest};
use tonic::Code;
use tonic::transport::Channel;

use crate::raw::{RawSession, channel, shown};
use crate::test_server::{Loopback, soon};

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

/// A refusal does not tell its reason.
fn is_refusal<T>(answer: Result<T, tonic::Status>) -> bool {
    answer.is_err_and(|status| {
        (status.code(), status.message()) == (Code::PermissionDenied, "refused")
    })
}

#[tokio::test]
async fn token_is_exchanged_once_for_its_cluster() {
    let hub = Loopback::open(ServerSettings::default()).await;
    let token = hub.server.bare_token("east").to_string();
    let given = enrol(&hub, &token, request()).await.unwrap();
    let named = identity_of(&CertificateDer::from(given.chain[0].clone())).unwrap().to_string();
    assert_eq!(named, "spiffe://hub/cluster/east/east-uid");
    assert!(is_refusal(enrol(&hub, &token, request()).await));
}

#[tokio::test]
async fn refusals_look_alike_and_use_up_no_token() {
    let hub = Loopback::open(ServerSettings::default()).await;
    let good = hub.server.bare_token("east");
    let renamed = Token { cluster: "west".into(), ..good.clone() };
    let wrong = Token { secret: "x".repeat(43), ..good.clone() };
    for (case, token) in [
        ("junk", "junk".to_owned()),
        ("another name", renamed.to_string()),
        ("a wrong secret", wrong.to_string()),
        ("a cluster that does not exist", hub.server.bare_token("south").to_string()),
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
async fn renewal_needs_a_certificate_of_an_existing_cluster() {
    let hub = Loopback::open(ServerSettings::default()).await;
    assert!(is_refusal(renew(channel(&hub, None).await.unwrap()).await));
    let identity = hub.enrolled("east").await;
    let open = channel(&hub, Some(shown(&identity))).await.unwrap();
    assert_eq!(renew(open.clone()).await.unwrap().cluster, "east");
    hub.server.recreate("east");
    assert!(is_refusal(renew(open.clone()).await), "recreated");
    hub.server.delete("east");
    assert!(is_refusal(renew(open).await), "deleted");
    assert!(is_refusal(RawSession::open(&hub, shown(&identity)).await));
}

#[tokio::test]
async fn callers_without_a_token_cost_no_permit_and_no_lookup() {
    let hub = Loopback::open(ServerSettings::default()).await;
    let before = hub.server.looked_up();
    let strangers =
        ["?watch=true.aa.bb", "east.aa.bb", "a\nb.aa.bb", "no-such-cluster.0011223344556677.x"];
    let tries = (0..32).map(|number| enrol(&hub, strangers[number % strangers.len()], request()));
    let (refused, honest) = tokio::join!(futures::future::join_all(tries), async {
        let token = hub.server.bare_token("east").to_string();
        enrol(&hub, &token, request()).await
    });
    assert_eq!(
        refused.into_iter().filter_map(|answer| (!is_refusal(answer)).then_some(())).count(),
        0
    );
    assert!(honest.is_ok(), "{honest:?}");
    assert_eq!(hub.server.looked_up() - before, 1, "for the holder of a token");
}

#[tokio::test]
async fn lost_enrolment_answer_is_repeated_for_its_request() {
    let hub = Loopback::open(ServerSettings::default()).await;
    let token = hub.server.bare_token("east").to_string();
    hub.server.lose_the_next_answer("east");
    let csr = request();
    let lost = enrol(&hub, &token, csr.clone()).await.unwrap_err();
    assert_eq!((lost.code(), lost.message()), (Code::DeadlineExceeded, "try again"));
    assert!(is_refusal(enrol(&hub, &token, request()).await), "another key");
    assert_eq!(enrol(&hub, &token, csr).await.unwrap().cluster, "east");
}
