//! Enrolment and renewal: who may speak for a cluster. The reason of a refusal is only in the hub's
//! log.
use std::time::{Duration, Instant};

use crate::common::fleet;
use anyhow::{bail, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use switchyard::join_token::{Args, JoinToken, make};
use switchyard_agent::HubAddress;
use switchyard_agent::enrol::{EnrolError, Join};
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fleet::{Fleet, HUB, NAMESPACE};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{fixture, queues};

const SOON: Duration = Duration::from_secs(120);
/// The session of a deleted cluster ends at once; a busy machine adds the rest.
const CUT_WITHIN: Duration = Duration::from_secs(30);

/// A token for an existing cluster of this name.
async fn token(fleet: &Fleet, name: &str) -> JoinToken {
    fleet.hub().apply([queues::agent_cluster(name)]).await.unwrap();
    fleet.join_token(name).await.unwrap()
}

/// Enrols, and repeats this while the hub cannot answer, as the agent does.
async fn enrol(token: &JoinToken) -> Result<(), EnrolError> {
    let hub: HubAddress = token.hub_address.parse().unwrap();
    let hub = hub.into();
    let join = Join::new(token.token.clone(), token.hub_ca_sha256.parse().unwrap());
    let enrol = async || match switchyard_agent::enrol::enrol(&hub, &join).await.map(drop) {
        Err(error @ EnrolError::Unavailable(_)) => bail!("{error}"),
        answer => Ok(answer),
    };
    eventually(SOON, "an answer of the hub", enrol).await.unwrap()
}

/// The error that a refused agent gets.
async fn refusal(token: &JoinToken) -> String {
    enrol(token).await.unwrap_err().to_string()
}

/// Waits until the hub has logged this reason.
async fn logged(fleet: &Fleet, reason: &str) {
    eventually(SOON, format!("the hub's log to say {reason:?}"), async || {
        let log = fleet.with(HUB, switchyard_e2e::Process::log)?;
        ensure!(log.contains(reason), "it does not");
        Ok(())
    })
    .await
    .unwrap();
}

#[test]
fn invalid_tokens_are_refused_without_hint() {
    fixture::run(async {
        let fleet = fleet().await;
        let name = fixture::unique("refused");
        let good = token(fleet, &name).await;

        let (front, _) = good.token.rsplit_once('.').unwrap();
        let wrong = JoinToken { token: format!("{front}.AAAA"), ..good.clone() };
        assert!(refusal(&wrong).await.contains("refused"));
        logged(fleet, "wrong token secret").await;
        logged(fleet, &format!("known_by=\"claim\" object=\"MultiKueueCluster/{name}\"")).await;

        let other = JoinToken { token: good.token.replacen(&name, "west", 1), ..good.clone() };
        assert!(refusal(&other).await.contains("refused"));
        logged(fleet, "token is for cluster").await;

        enrol(&good).await.unwrap();
        assert!(refusal(&good).await.contains("refused"));
        logged(fleet, "token already used").await;

        let args = Args { ttl: jiff::SignedDuration::from_secs(1), ..Args::new(&name, NAMESPACE) };
        let short = make(fleet.hub().admin.clone(), &args).await.unwrap();
        // Tokens expire within a second's precision.
        eventually(SOON, "the token to expire", async || {
            let (now, end) = (jiff::Timestamp::now(), short.expires_at);
            ensure!(now.as_second() > end.as_second(), "it is {now}, and good until {end}");
            Ok(())
        })
        .await
        .unwrap();
        assert!(refusal(&short).await.contains("refused"));
        logged(fleet, "token expired").await;
    });
}

#[test]
fn hub_with_other_authority_is_not_trusted() {
    fixture::run(async {
        let fleet = fleet().await;
        let name = fixture::unique("pin");
        let good = token(fleet, &name).await;
        let wrong = JoinToken { hub_ca_sha256: "00".repeat(32), ..good.clone() };
        let error = refusal(&wrong).await;
        assert!(error.contains("--hub-ca-sha256"), "{error}");
        // The agent sent nothing, so the token is still valid.
        enrol(&good).await.unwrap();
    });
}

#[test]
fn renewed_certificate_is_refused_once_cluster_is_deleted() {
    fixture::run(async {
        let fleet = Fleet::builder("deleted").hub_flags(["--agent-certificate-life", "90"]);
        let fleet = fleet.agent(switchyard_e2e::ClusterSpec::new("gone")).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("gone")]).await.unwrap();
        fleet.connect().await.unwrap();
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let session = async || {
            let status = clusters.get("gone").await.unwrap().status.unwrap_or_default();
            status.agent.and_then(|agent| agent.session_id)
        };
        // A slow machine may end a session, but not at each of three renewals.
        let mut goes_on = false;
        for _ in 0..3 {
            fleet.connected("gone").await.unwrap();
            let (began, first) = (session().await, certificate(&fleet).await.unwrap());
            assert!(began.is_some());
            eventually(2 * SOON, "another certificate", async || {
                ensure!(certificate(&fleet).await? != first, "it is the same");
                Ok(())
            })
            .await
            .unwrap();
            goes_on = session().await == began;
            if goes_on {
                break;
            }
        }
        assert!(goes_on, "its session goes on");

        let deleted = Instant::now();
        clusters.delete("gone", &DeleteParams::default()).await.unwrap();
        let mut cut = false;
        while !cut && deleted.elapsed() < CUT_WITHIN {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let log = fleet.with(HUB, switchyard_e2e::Process::log).unwrap();
            cut = log.contains("the MultiKueueCluster was deleted");
        }
        println!(
            "the session ended {:?} after the request to delete its MultiKueueCluster was sent",
            deleted.elapsed()
        );
        assert!(cut);
        // A recreated MultiKueueCluster is another cluster: the old certificate does not speak for
        // it.
        fleet.hub().apply([queues::agent_cluster("gone")]).await.unwrap();
        fleet.kill("gone");
        fleet.restart_agent("gone").unwrap();
        logged(&fleet, "certificate is of an earlier cluster").await;
        let status = clusters.get("gone").await.unwrap().status.unwrap_or_default();
        assert!(!switchyard_api::conditions::is_true(&status.conditions, "Active"), "{status:?}");
    });
}

/// The certificate that the agent has stored.
async fn certificate(fleet: &Fleet) -> anyhow::Result<Option<ByteString>> {
    let secrets: Api<Secret> = Api::namespaced(fleet.worker("gone").admin.clone(), NAMESPACE);
    let identity = secrets.get("switchyard-agent-identity").await?;
    Ok(identity.data.and_then(|data| data.get("tls.crt").cloned()))
}
