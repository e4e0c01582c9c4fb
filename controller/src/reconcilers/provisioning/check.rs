//! Keeps the `Active` condition of ProvisioningRequest checks.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use switchyard_api::{
    conditions::{self, reasons::admission_check as reasons},
    names,
    v1beta2::{AdmissionCheck, AdmissionCheckParametersReference, ProvisioningRequestConfig},
};

use super::facts::is_provisioning_check;
use crate::context::Context;
use switchyard_platform::{
    store::{Key, Store},
    work_queue::Outcome,
    write::{Target, WriteError},
};

const GROUP: &str = "kueue.x-k8s.io";
const KIND: &str = "ProvisioningRequestConfig";

/// The configuration that a check refers to, or Kueue's message why there is none.
pub(super) fn config_of(
    check: &AdmissionCheck,
    configs: &Store<ProvisioningRequestConfig>,
) -> Result<Arc<ProvisioningRequestConfig>, String> {
    let AdmissionCheckParametersReference { api_group, kind, name } =
        check.spec.parameters.as_ref().ok_or("missing parameters reference")?;
    let bad = |what: String| Err(format!("{what}: bad parameters reference"));
    if name.is_empty() {
        return bad("empty name".to_owned());
    }
    if api_group != GROUP {
        return bad(format!("wrong group {api_group:?}, expecting {GROUP:?}"));
    }
    if kind != KIND {
        return bad(format!("wrong kind {kind:?}, expecting {KIND:?}"));
    }
    configs.get("", name).ok_or_else(|| format!("{KIND}.{GROUP} {name:?} not found"))
}

/// The `Active` condition of a check. `served`: the API server serves ProvisioningRequests.
fn active(check: &AdmissionCheck, config: Result<(), String>, served: bool) -> Condition {
    let (holds, reason, message) = match config {
        Err(message) => (false, reasons::BAD_PARAMETERS_REF, message),
        Ok(()) if !served => {
            let message = "the API server does not know ProvisioningRequests (autoscaling.x-k8s.io/v1): install the CRD \
                           and the cluster autoscaler that it belongs to";
            (false, reasons::PROVISIONING_REQUEST_NOT_SUPPORTED, message.to_owned())
        }
        Ok(()) => (true, reasons::ACTIVE, "The admission check is active".to_owned()),
    };
    conditions::new(conditions::ACTIVE, holds, reason, message, check.metadata.generation)
}

/// Reconciles one check.
pub(super) async fn reconcile(ctx: &Context, key: Key) -> Outcome {
    let check =
        ctx.stores.admission_checks.by_key(&key).filter(|check| is_provisioning_check(check));
    let Some(check) = check.filter(|_| ctx.leading()) else { return Outcome::Done };
    let config = config_of(&check, &ctx.stores.provisioning_request_configs).map(drop);
    let served = *ctx.stores.provisioning_requests.served().borrow();
    let before = check.status.clone().unwrap_or_default();
    let mut after = before.clone();
    conditions::set(
        &mut after.conditions,
        active(&check, config, served),
        switchyard_platform::clock::whole_seconds(ctx.clock.now()),
    );
    let target = Target {
        api: Api::all(ctx.client.clone()),
        store: &ctx.stores.admission_checks,
        object: &*check,
        manager: names::PROVISIONING_REQUEST_CONTROLLER,
        what: "admissioncheck",
    };
    let written = match (serde_json::to_value(&before), serde_json::to_value(&after)) {
        (Ok(before), Ok(after)) => target.status(ctx, &before, &after).await.map(drop),
        (Err(error), _) | (_, Err(error)) => Err(error.into()),
    };
    match written {
        Ok(()) | Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
        Err(WriteError::Conflict) => Outcome::Failed,
        Err(error) => {
            tracing::warn!(check = %key, %error, "admission check not updated");
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(parameters: &Value) -> AdmissionCheck {
        let spec = json!({"controllerName": names::PROVISIONING_REQUEST_CONTROLLER, "parameters": parameters});
        let metadata = json!({"name": "prov", "generation": 2});
        serde_json::from_value(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": metadata, "spec": spec}))
            .unwrap()
    }

    fn condition_text(parameters: &Value, served: bool) -> String {
        let configs = Store::default();
        let mut config = ProvisioningRequestConfig::default();
        config.metadata.name = Some("config".to_owned());
        configs.insert(config);
        let check = check(parameters);
        let condition = active(&check, config_of(&check, &configs).map(drop), served);
        assert_eq!(condition.observed_generation, Some(2));
        format!("{} {}: {}", condition.status, condition.reason, condition.message)
    }

    #[test]
    fn check_is_active_with_configuration_and_served_kind() {
        let refers = |group: &str, kind: &str, name: &str| json!({"apiGroup": group, "kind": kind, "name": name});
        let good = || refers(GROUP, KIND, "config");
        assert_eq!(condition_text(&good(), true), "True Active: The admission check is active");
        assert_eq!(
            condition_text(&good(), false),
            "False ProvisioningRequestNotSupported: the API server does not know ProvisioningRequests \
             (autoscaling.x-k8s.io/v1): install the CRD and the cluster autoscaler that it belongs to"
        );
        for (parameters, message) in [
            (Value::Null, "missing parameters reference"),
            (refers(GROUP, KIND, ""), "empty name: bad parameters reference"),
            (
                refers("example.com", KIND, "config"),
                "wrong group \"example.com\", expecting \"kueue.x-k8s.io\": bad parameters reference",
            ),
            (
                refers(GROUP, "MultiKueueConfig", "config"),
                "wrong kind \"MultiKueueConfig\", expecting \"ProvisioningRequestConfig\": bad parameters reference",
            ),
            (
                refers(GROUP, KIND, "other"),
                "ProvisioningRequestConfig.kueue.x-k8s.io \"other\" not found",
            ),
        ] {
            assert_eq!(
                condition_text(&parameters, false),
                format!("False BadParametersRef: {message}")
            );
        }
    }
}
