//! Switchyard as the system under test: the harness calls this to install it, and to start the process of a pod.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use switchyard_e2e::paths;

/// The namespace that the manifests in `deploy/rbac` are written for.
const OURS: &str = "switchyard-system";
/// Kueue's names, which the suites look for.
const DEPLOYMENT: &str = "kueue-controller-manager";
const CONFIG: &str = "kueue-manager-config";
const CONFIG_FILE: &str = "controller_manager_config.yaml";
const WEBHOOK_SERVICE: &str = "kueue-webhook-service";
/// The account of the program, as which the suites also read metrics.
const ACCOUNT: &str = "kueue-controller-manager";
/// The name of the webhook configurations in `deploy/rbac`.
const OUR_WEBHOOKS: &str = "switchyard";
/// The one that the suites look at. Switchyard has one name for both.
const WEBHOOKS: &str = "kueue-mutating-webhook-configuration";
/// The variable with the dispatcher that the manager's configuration is to name.
pub(super) const DISPATCHER: &str = "SWITCHYARD_KUEUE_E2E_DISPATCHER";
/// How long the API server may take to serve the CRDs.
const ESTABLISHED: &str = "--timeout=60s";

/// Installs Switchyard by the environment of the harness (`E2E_ROLE`, `E2E_NAMESPACE`, `E2E_KUEUE_MANIFESTS`, `KUBECONFIG`):
/// CRDs, roles and a Deployment of `switchyard-hub`. Kueue's manifests contribute configuration, Services and APIServices.
///
/// # Errors
/// When a variable is missing, or the API server refuses an object.
pub fn install() -> anyhow::Result<()> {
    let mut kueue = manifests(Path::new(&variable("E2E_KUEUE_MANIFESTS")?))?;
    let namespace = variable("E2E_NAMESPACE")?;
    let mode = Mode::of(&variable("E2E_ROLE")?)?;
    if let (Mode::Hub, Ok(dispatcher)) = (mode, std::env::var(DISPATCHER)) {
        dispatch_by(&mut kueue, &dispatcher)?;
    }
    let mut first =
        vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
    first.extend(documents(&paths::root().join("deploy/crds"), |_| true)?);
    kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(&first))?;
    kubectl(&["wait", "--for=condition=Established", "crd", "--all", ESTABLISHED], None)?;
    let mut rest = roles(mode, &namespace)?;
    rest.extend(webhooks()?);
    rest.extend(kueue.iter().filter(|object| leads_to_program(object)).cloned());
    rest.push(deployment(&kueue, mode, &namespace)?);
    kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(&rest))
}

/// Becomes `switchyard-hub` with these arguments, in the pod that the harness has made.
///
/// # Errors
/// When there is no such program beside this one. It does not come back otherwise.
pub fn start(args: &[String]) -> anyhow::Result<()> {
    let program = paths::binary("switchyard-hub")?;
    let error = Command::new(&program).args(args).exec();
    Err(error).with_context(|| format!("cannot become {}", program.display()))
}

/// The role of a cluster in a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Single,
    Hub,
}

impl Mode {
    fn of(role: &str) -> anyhow::Result<Self> {
        match role {
            "single" | "worker" => Ok(Self::Single),
            "manager" => Ok(Self::Hub),
            _ => bail!("E2E_ROLE is {role}: known are single, worker and manager"),
        }
    }

    /// As `--mode` has it; also the name of the file with its roles.
    fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Hub => "hub",
        }
    }

    /// The account that `deploy/rbac` has for it.
    fn account(self) -> &'static str {
        match self {
            Self::Single => "switchyard",
            Self::Hub => "switchyard-hub",
        }
    }
}

fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name)
        .with_context(|| format!("{name} is not set: the harness of Kueue's suites sets it"))
}

fn manifests(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let list: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// All objects of the directory's YAML files whose stem is wanted.
fn documents(dir: &Path, wanted: impl Fn(&str) -> bool) -> anyhow::Result<Vec<Value>> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("no manifests at {}", dir.display()))?;
    let mut files =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.file_stem().and_then(OsStr::to_str).is_some_and(&wanted));
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let some: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())?;
        all.extend(some.into_iter().filter(|object| !object.is_null()));
    }
    Ok(all)
}

/// The roles of `deploy/rbac` for this mode, in another namespace, for another account and other webhook configurations.
fn roles(mode: Mode, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let wanted = |stem: &str| ["controller", mode.name(), "people", "people-jobs"].contains(&stem);
    let mut objects = documents(&paths::root().join("deploy/rbac"), wanted)?;
    for object in &mut objects {
        move_to(&mut object["metadata"], namespace);
        if object["kind"] == "ServiceAccount" {
            rename(&mut object["metadata"]["name"], mode.account(), ACCOUNT);
        }
        for subject in items(object, "subjects") {
            move_to(subject, namespace);
            rename(&mut subject["name"], mode.account(), ACCOUNT);
        }
        for rule in items(object, "rules") {
            for name in items(rule, "resourceNames") {
                rename(name, OUR_WEBHOOKS, WEBHOOKS);
            }
        }
    }
    Ok(objects)
}

/// The configurations of `deploy/webhooks`, under the name that the suites look for.
fn webhooks() -> anyhow::Result<Vec<Value>> {
    let mut objects = documents(&paths::root().join("deploy/webhooks"), |_| true)?;
    for object in &mut objects {
        rename(&mut object["metadata"]["name"], OUR_WEBHOOKS, WEBHOOKS);
    }
    Ok(objects)
}

fn items<'a>(object: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

fn rename(name: &mut Value, from: &str, to: &str) {
    if *name == from {
        *name = to.into();
    }
}

fn move_to(named: &mut Value, namespace: &str) {
    if named.get("namespace").and_then(Value::as_str) == Some(OURS) {
        named["namespace"] = namespace.into();
    }
}

/// Names the dispatcher in the configuration, if that names none.
fn dispatch_by(kueue: &mut [Value], dispatcher: &str) -> anyhow::Result<()> {
    for object in kueue
        .iter_mut()
        .filter(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == CONFIG)
    {
        let text = object["data"][CONFIG_FILE]
            .as_str()
            .with_context(|| format!("{CONFIG} has no {CONFIG_FILE}"))?;
        let mut config: Value = serde_saphyr::from_str(text).context(CONFIG_FILE)?;
        if config["multiKueue"]["dispatcherName"].is_null() {
            config["multiKueue"]["dispatcherName"] = dispatcher.into();
        }
        object["data"][CONFIG_FILE] = serde_saphyr::to_string(&config).context(CONFIG_FILE)?.into();
    }
    Ok(())
}

/// Whether an object of Kueue's manifests configures the program, or leads to it.
fn leads_to_program(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match object["kind"].as_str() {
        Some("Service" | "APIService") => true,
        Some("ConfigMap") => name == CONFIG,
        _ => false,
    }
}

/// The Deployment: labels and replicas as Kueue's, so that its Services find the pods.
fn deployment(kueue: &[Value], mode: Mode, namespace: &str) -> anyhow::Result<Value> {
    let theirs = kueue
        .iter()
        .find(|object| object["kind"] == "Deployment" && object["metadata"]["name"] == DEPLOYMENT);
    let theirs =
        theirs.with_context(|| format!("Kueue's manifests have no Deployment {DEPLOYMENT}"))?;
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "health"}});
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let file = format!("/etc/switchyard/{CONFIG_FILE}");
    Ok(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": namespace, "labels": theirs["metadata"]["labels"]},
        "spec": {
            "replicas": theirs["spec"]["replicas"],
            "selector": theirs["spec"]["selector"],
            "template": {
                "metadata": {"labels": theirs["spec"]["template"]["metadata"]["labels"]},
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    "terminationGracePeriodSeconds": 10,
                    "containers": [{
                        "name": "manager", "image": "switchyard-hub",
                        "args": [
                            format!("--mode={}", mode.name()), format!("--config={file}"),
                            "--webhook-listen=0.0.0.0:9443", format!("--webhook-service={WEBHOOK_SERVICE}"),
                            format!("--webhook-configuration={WEBHOOKS}"),
                            "--metrics-listen=config", "--visibility-listen=config",
                        ],
                        "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
                        "ports": [
                            {"name": "health", "containerPort": 8081}, {"name": "webhooks", "containerPort": 9443},
                            {"name": "metrics", "containerPort": 8443}, {"name": "visibility", "containerPort": 8082},
                        ],
                        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
                        "volumeMounts": [{"name": "config", "mountPath": "/etc/switchyard", "readOnly": true}],
                    }],
                    "volumes": [{"name": "config", "configMap": {"name": CONFIG}}],
                },
            },
        },
    }))
}

/// Runs kubectl, with objects on its input where there are any.
fn kubectl(args: &[&str], objects: Option<&[Value]>) -> anyhow::Result<()> {
    let mut command = Command::new("kubectl");
    command
        .args(args)
        .stdin(if objects.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null());
    let mut child = command.spawn().context("cannot start kubectl")?;
    if let (Some(objects), Some(mut input)) = (objects, child.stdin.take()) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        input.write_all(list.to_string().as_bytes()).context("kubectl does not read")?;
    }
    let status = child.wait().context("kubectl was lost")?;
    if !status.success() {
        bail!("kubectl {}: {status}", args.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kueue() -> Vec<Value> {
        let named = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name}});
        let mut deployment = named("Deployment", DEPLOYMENT);
        deployment["spec"] = json!({
            "replicas": 1, "selector": {"matchLabels": {"control-plane": "controller-manager"}},
            "template": {"metadata": {"labels": {"control-plane": "controller-manager"}}},
        });
        vec![
            named("Service", WEBHOOK_SERVICE),
            named("ConfigMap", CONFIG),
            named("APIService", "v1beta2.visibility.kueue.x-k8s.io"),
            named("ClusterRole", "kueue-manager-role"),
            named("Secret", "kueue-webhook-server-cert"),
            deployment,
        ]
    }

    #[test]
    fn of_kueues_manifests_its_program_and_its_rights_are_left_out() {
        let taken = kueue()
            .into_iter()
            .filter(leads_to_program)
            .map(|object| object["metadata"]["name"].clone());
        assert_eq!(
            taken.collect::<Vec<_>>(),
            [WEBHOOK_SERVICE, CONFIG, "v1beta2.visibility.kueue.x-k8s.io"]
        );
    }

    #[test]
    fn a_dispatcher_is_named_where_the_configuration_names_none() {
        for (written, named) in
            [("kind: Configuration", "ours"), ("multiKueue: {dispatcherName: theirs}", "theirs")]
        {
            let mut kueue = [
                json!({"kind": "ConfigMap", "metadata": {"name": CONFIG}, "data": {CONFIG_FILE: written}}),
            ];
            dispatch_by(&mut kueue, "ours").unwrap();
            let config: Value =
                serde_saphyr::from_str(kueue[0]["data"][CONFIG_FILE].as_str().unwrap()).unwrap();
            assert_eq!(config["multiKueue"]["dispatcherName"], named);
        }
    }

    #[test]
    fn deployment_matches_kueues_services_and_cluster_mode() {
        for (role, mode) in [("manager", "--mode=hub"), ("worker", "--mode=single")] {
            let made = deployment(&kueue(), Mode::of(role).unwrap(), "kueue-system").unwrap();
            let pod = &made["spec"]["template"];
            assert_eq!(pod["metadata"]["labels"]["control-plane"], "controller-manager");
            assert_eq!(
                (&pod["spec"]["containers"][0]["args"][0], &pod["spec"]["serviceAccountName"]),
                (&json!(mode), &json!(ACCOUNT))
            );
        }
        assert!(Mode::of("hub").unwrap_err().to_string().contains("single, worker and manager"));
    }

    #[test]
    fn our_roles_follow_the_namespace() {
        for mode in [Mode::Single, Mode::Hub] {
            let text = serde_json::to_string(&roles(mode, "kueue-system").unwrap()).unwrap();
            assert!(
                text.contains("\"namespace\":\"kueue-system\"") && text.contains(WEBHOOKS),
                "{text}"
            );
            assert!(!text.contains(OURS), "{text}");
            let ours = format!("\"kind\":\"ServiceAccount\",\"name\":\"{}\"", mode.account());
            assert!(
                text.contains(&ours.replace(mode.account(), ACCOUNT)) && !text.contains(&ours),
                "{text}"
            );
        }
    }
}
