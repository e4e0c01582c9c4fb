//! `switchyard-hub --mode single` on a cluster, as its users run it.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use switchyard_api::v1beta1;

use crate::fleet::programs::{self, SwitchyardProgram};
use crate::process::Process;
use crate::usage_writer::RunningWriter;
use crate::wait::eventually;
use crate::{Cluster, ready};

/// How long it may take to be ready, and to end.
const TIME: Duration = Duration::from_secs(60);
/// The name of its webhook configurations.
const WEBHOOKS: &str = "switchyard";

/// A program of Switchyard in single mode. Dropping it kills it.
#[derive(Debug)]
pub struct Single {
    process: Process,
    _writer: RunningWriter,
}

impl Single {
    /// Starts it on a cluster with the objects of `deploy/` ([`Cluster::install`]), and waits until it is ready.
    ///
    /// # Errors
    /// The end of its log.
    pub async fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::run(cluster, programs::single_program(cluster, None).await?).await
    }

    /// Starts it with a configuration file.
    ///
    /// # Errors
    /// As [`Single::start`].
    pub async fn start_configured(cluster: &Cluster, config: &str) -> anyhow::Result<Self> {
        Self::run(cluster, programs::single_program(cluster, Some(config)).await?).await
    }

    /// Starts it without webhooks and without conversion.
    ///
    /// # Errors
    /// As [`Single::start`].
    pub async fn start_without_webhooks(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::run(cluster, programs::single_without_webhooks(cluster).await?).await
    }

    async fn run(cluster: &Cluster, program: SwitchyardProgram) -> anyhow::Result<Self> {
        let process = program.program.start()?;
        let writer = cluster.usage_writer.start();
        let name = format!("Switchyard on {}", cluster.name());
        ready::program(name, || process.check(), (program.health, "/readyz"), TIME)
            .await
            .with_context(|| process.log_tail(20))?;
        Ok(Self { process, _writer: writer })
    }

    /// Its process, for its memory, CPU time and log.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Ends it as the deletion of its pod would, and returns its exit code. Registered webhooks stay.
    pub async fn stop(self) -> Option<i32> {
        self.process.terminate(TIME).await
    }

    /// Deletes its webhook configurations, and removes its conversion webhook from the CRDs.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn unregister(cluster: &Cluster) -> anyhow::Result<()> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin.clone());
        mutating.delete(WEBHOOKS, &DeleteParams::default()).await?;
        validating.delete(WEBHOOKS, &DeleteParams::default()).await?;
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
        for name in v1beta1::differing_definitions() {
            eventually(TIME, format!("{name} without {}", v1beta1::VERSION), async || {
                let mut definition = definitions.get(&name).await?;
                definition.spec.conversion = None;
                for version in
                    definition.spec.versions.iter_mut().filter(|it| it.name == v1beta1::VERSION)
                {
                    version.served = false;
                }
                // The API server, too, writes to definitions.
                Ok(definitions.replace(&name, &PostParams::default(), &definition).await?)
            })
            .await?;
        }
        Ok(())
    }
}
