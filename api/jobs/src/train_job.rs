//! `trainer.kubeflow.org/v1alpha1` TrainJob. Its controller creates a JobSet from a runtime, which
//! is a separate object.
//!
//! The reconciler attaches the runtime to the job ([`Dependent::depends_on`],
//! [`Dependent::attach`]). Attaching builds the JobSet that the controller would create, as far as
//! quota and placement depend on it. Admission is written as a runtime patch of its own manager,
//! which the controller merges into the JobSet. The controller's additions for a framework
//! (environment variables, ports, volumes) are left out of the Workload, as in Kueue.

use serde_json::{Map, Value, json};

use super::job_set::{JobCounts, pods, replicas};
use super::meta::{self, count_at, list_at, object_mut, str_at};
use super::plain::{PlainKind, Slot};
use super::status::finished_by;
use super::template::own_template;
use super::topology::PodRanks;
use super::{
    Dependency, Dependent, JobEnd, JobError, JobKind, KindId, KindProfile, PodSetInfo, Stop,
    strategic,
};
use switchyard_api::v1beta2::{PodSet, ReclaimablePod};
use switchyard_syntax::field::Path;

/// The kind `trainer.kubeflow.org/v1alpha1` TrainJob.
#[derive(Debug, Clone, Copy)]
pub struct TrainJob;

const GROUP: &str = "trainer.kubeflow.org";
const VERSION: &str = "v1alpha1";
const FRAMEWORK: &str = "trainer.kubeflow.org/trainjob";
/// Manager of the admission's runtime patch. Kueue's name, so that each finds the other's patch.
const MANAGER: &str = "kueue.x-k8s.io/manager";
/// Label of a replicated job with its training step.
const STEP: &str = "trainer.kubeflow.org~1trainjob-ancestor-step";
/// Name of the container that trains. With MPI, also the name of its replicated job.
const NODE: &str = "node";
/// Variable with an initializer's source.
const STORAGE_URI: &str = "STORAGE_URI";
/// The field with the attached JobSet. Not a field of the API.
const JOB_SET: &str = "switchyard.dev/jobSet";
const JOBS: &str = "/switchyard.dev~1jobSet/replicatedJobs";
/// Marks a replicated job that a patch adds to the runtime's. Not a field of the API.
const ADDED: &str = "switchyard.dev/added";

static RUNTIMES: [KindId; 2] = [
    runtime("ClusterTrainingRuntime", "clustertrainingruntimes"),
    runtime("TrainingRuntime", "trainingruntimes"),
];

const fn runtime(kind: &'static str, plural: &'static str) -> KindId {
    KindId { group: GROUP, version: VERSION, kind, plural, framework: FRAMEWORK }
}

/// The spec of the JobSet that the controller would create from the job and its runtime's spec.
fn job_set(job: &Value, runtime: &Value) -> Value {
    let mut spec = runtime.pointer("/template/spec").cloned().unwrap_or_else(|| json!({}));
    let policy = runtime.get("mlPolicy").filter(|policy| policy.is_object());
    let Some(Value::Array(replicated)) = spec.get_mut("replicatedJobs") else { return spec };
    for patch in list_at(job, "/spec/runtimePatches") {
        for patch in list_at(patch, "/trainingRuntimeSpec/template/spec/replicatedJobs") {
            patch_one(replicated, patch);
        }
    }
    // A patch may be incomplete until another patch adds containers.
    replicated.retain(|own| own.get(ADDED).is_none() || has_containers(own));
    for own in replicated {
        set_counts(job, policy, own);
        set_initializer(job, own);
        set_trainer(job, policy, own);
    }
    spec
}

/// Applies a patch to the replicated job of its name. Trainer 2.3 adds an unknown replicated job,
/// and earlier versions ignore it.
fn patch_one(replicated: &mut Vec<Value>, patch: &Value) {
    let name = str_at(patch, "/name");
    let Some(template) = patch.get("template").filter(|it| it.is_object()) else { return };
    if !replicated.iter().any(|own| str_at(own, "/name") == name) {
        replicated.push(json!({"name": name, "template": {}, ADDED: true}));
    }
    let own = replicated.iter_mut().find(|own| str_at(own, "/name") == name);
    if let Some(own) = own.and_then(|own| own.get_mut("template")) {
        strategic::patch(own, template);
    }
}

/// Whether the replicated job has containers. Without any, the API server rejects its pods.
fn has_containers(replicated: &Value) -> bool {
    !list_at(replicated, "/template/spec/template/spec/containers").is_empty()
}

fn step(replicated: &Value) -> &str {
    str_at(replicated, &format!("/template/metadata/labels/{STEP}"))
}

fn launcher_is_node(policy: Option<&Value>) -> bool {
    policy
        .and_then(|it| it.pointer("/mpi/runLauncherAsNode"))
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

/// Sets the pod count: the template's, overridden by the policy's for the trainer, overridden by
/// the job's.
fn set_counts(job: &Value, policy: Option<&Value>, replicated: &mut Value) {
    let mut count = count_at(replicated, "/template/spec/parallelism", 1);
    let trains = step(replicated) == "trainer";
    if let Some(policy) = policy.filter(|_| trains) {
        count = count_at(policy, "/numNodes", 1);
    }
    let mpi = policy.is_some_and(|policy| policy.get("mpi").is_some_and(Value::is_object));
    let nodes = job.pointer("/spec/trainer/numNodes").and_then(Value::as_i64);
    match nodes {
        // One of the nodes is the launcher.
        Some(nodes) if mpi && str_at(replicated, "/name") == NODE => {
            count = if launcher_is_node(policy) { nodes.saturating_sub(1).max(1) } else { nodes };
        }
        Some(nodes) if !mpi && trains => count = nodes,
        _ => {}
    }
    let alone = matches!(step(replicated), "trainer" | "dataset-initializer" | "model-initializer");
    if let Some(spec) = object_mut(replicated, &["template", "spec"]) {
        spec.insert("parallelism".to_owned(), count.into());
        spec.insert("completions".to_owned(), count.into());
    }
    if let Some(map) = replicated.as_object_mut().filter(|_| alone) {
        map.insert("replicas".to_owned(), 1.into());
    }
}

/// Applies the job's fields of the training container.
fn set_trainer(job: &Value, policy: Option<&Value>, replicated: &mut Value) {
    let trains = step(replicated) == "trainer";
    let node = launcher_is_node(policy) && str_at(replicated, "/name") == NODE;
    let Some(trainer) = job.pointer("/spec/trainer").filter(|_| trains || node) else { return };
    let containers = replicated
        .pointer_mut("/template/spec/template/spec/containers")
        .and_then(Value::as_array_mut);
    let trains_in = |container: &&mut Value| str_at(container, "/name") == NODE;
    let Some(container) = containers.into_iter().flatten().find(trains_in) else { return };
    let mut overrides = Map::new();
    let own = |field: &str| trainer.get(field).filter(|value| !value.is_null()).cloned();
    for field in ["image", "command", "args"] {
        overrides.extend(own(field).filter(|_| trains).map(|value| (field.to_owned(), value)));
    }
    strategic::patch(container, &Value::Object(overrides));
    add_env(container, list_at(trainer, "/env"));
    if let (Some(resources), Some(container)) = (own("resourcesPerNode"), container.as_object_mut())
    {
        let resources =
            with_runtimes(container.get("resources").unwrap_or(&Value::Null), resources);
        container.insert("resources".to_owned(), resources);
    }
}

/// Merges the job's container resources with the runtime's. Trainer 2.3 merges them, and earlier
/// versions use the job's alone, so the larger result is charged. The job's limit replaces the
/// runtime's request.
fn with_runtimes(runtimes: &Value, mut own: Value) -> Value {
    let of = |resources: &Value, field: &str| {
        resources.get(field).and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (mut requests, mut limits) = (of(runtimes, "requests"), of(runtimes, "limits"));
    let own_limits = of(&own, "limits");
    requests.iter_mut().for_each(|(resource, amount)| {
        if let Some(limit) = own_limits.get(resource) {
            *amount = limit.clone();
        }
    });
    requests.extend(of(&own, "requests"));
    limits.extend(own_limits);
    if let Some(fields) = own.as_object_mut() {
        for (field, amounts) in [("requests", requests), ("limits", limits)] {
            if !amounts.is_empty() {
                fields.insert(field.to_owned(), Value::Object(amounts));
            }
        }
    }
    own
}

/// Applies the job's fields of the container that fetches its dataset or model.
fn set_initializer(job: &Value, replicated: &mut Value) {
    let step = step(replicated).to_owned();
    let of = match step.as_str() {
        "dataset-initializer" => "dataset",
        "model-initializer" => "model",
        _ => return,
    };
    let initializer = job.pointer(&format!("/spec/initializer/{of}")).filter(|it| it.is_object());
    let containers = replicated
        .pointer_mut("/template/spec/template/spec/containers")
        .and_then(Value::as_array_mut);
    let container =
        containers.into_iter().flatten().find(|container| str_at(container, "/name") == step);
    let Some((initializer, container)) = initializer.zip(container) else { return };
    if let Some(uri) = initializer.get("storageUri").filter(|uri| !uri.is_null()) {
        add_env(container, &[json!({"name": STORAGE_URI, "value": uri})]);
    }
    add_env(container, list_at(initializer, "/env"));
    let secret = initializer.get("secretRef").filter(|secret| secret.is_object());
    if let (Some(secret), Some(fields)) = (secret, container.as_object_mut())
        && let Some(from) = list_mut(fields, "envFrom")
    {
        from.push(json!({"secretRef": {"name": str_at(secret, "/name")}}));
    }
}

/// Sets environment variables of a container. A variable of the same name is replaced as a whole.
fn add_env(container: &mut Value, variables: &[Value]) {
    let Some(fields) = container.as_object_mut().filter(|_| !variables.is_empty()) else { return };
    let Some(env) = list_mut(fields, "env") else { return };
    for variable in variables {
        match env.iter_mut().find(|have| str_at(have, "/name") == str_at(variable, "/name")) {
            Some(have) => *have = variable.clone(),
            None => env.push(variable.clone()),
        }
    }
}

/// The list in a field. An absent list is created.
fn list_mut<'a>(fields: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Vec<Value>> {
    let list = fields.entry(field).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()
}

/// The list of replicated jobs in the admission's runtime patch. An absent list is created.
fn patches_mut(job: &mut Value) -> Option<&mut Map<String, Value>> {
    let spec = object_mut(job, &["spec"])?;
    let all = list_mut(spec, "runtimePatches")?;
    let at = all.iter().position(|it| str_at(it, "/manager") == MANAGER).unwrap_or_else(|| {
        all.push(json!({"manager": MANAGER}));
        all.len() - 1
    });
    object_mut(all.get_mut(at)?, &["trainingRuntimeSpec", "template", "spec"])
}

fn has_patches(job: &Value) -> bool {
    let patch =
        list_at(job, "/spec/runtimePatches").iter().find(|it| str_at(it, "/manager") == MANAGER);
    patch.is_some_and(|patch| {
        !list_at(patch, "/trainingRuntimeSpec/template/spec/replicatedJobs").is_empty()
    })
}

fn drop_patches(job: &mut Value) {
    if let Some(spec) = object_mut(job, &["spec"]) {
        drop_from(spec);
    }
}

fn drop_from(spec: &mut Map<String, Value>) {
    let Some(patches) = spec.get_mut("runtimePatches").and_then(Value::as_array_mut) else {
        return;
    };
    patches.retain(|patch| str_at(patch, "/manager") != MANAGER);
    if patches.is_empty() {
        spec.remove("runtimePatches");
    }
}

/// The admission's patch of one slot. The controller replaces tolerations as a whole, so the
/// template's own are included.
///
/// # Errors
/// [`JobError::PodSetUpdateConflict`].
fn patch_of(job: &Value, slot: &Slot, info: &PodSetInfo) -> Result<Value, JobError> {
    let mut merged = job.pointer(&slot.template).cloned().unwrap_or_else(|| json!({}));
    info.merge_into(&mut merged)?;
    let tolerations = merged.pointer("/spec/tolerations").cloned().unwrap_or_else(|| json!([]));
    let mut metadata = json!({"annotations": info.annotations, "labels": info.labels});
    let mut spec = json!({
        "nodeSelector": info.node_selector, "tolerations": tolerations, "schedulingGates": info.scheduling_gates,
    });
    for part in [&mut metadata, &mut spec] {
        if let Some(map) = part.as_object_mut() {
            map.retain(|_, value| match value {
                Value::Object(map) => !map.is_empty(),
                Value::Array(items) => !items.is_empty(),
                _ => true,
            });
        }
    }
    Ok(
        json!({"name": slot.name, "template": {"spec": {"template": {"metadata": metadata, "spec": spec}}}}),
    )
}

fn counts(job: &Value) -> JobCounts<'_> {
    JobCounts(list_at(job, "/status/jobsStatus"))
}

impl KindProfile for TrainJob {
    fn id(&self) -> KindId {
        KindId {
            group: GROUP,
            version: VERSION,
            kind: "TrainJob",
            plural: "trainjobs",
            framework: FRAMEWORK,
        }
    }

    fn dependent(&self) -> Option<&dyn Dependent> {
        Some(self)
    }

    fn is_active(&self, job: &Value) -> bool {
        counts(job).any_active()
    }

    fn finished(&self, job: &Value) -> Option<JobEnd> {
        finished_by(job, "Complete", "Failed")
    }

    /// Counted in Jobs, as the JobSet counts them. A replicated job that a patch adds counts once
    /// it exists.
    fn pods_ready(&self, job: &Value) -> bool {
        let counts = counts(job);
        let exists =
            |it: &&Value| it.get(ADDED).is_none() || counts.of(str_at(it, "/name")).is_some();
        let wanted: i64 = list_at(job, JOBS).iter().filter(exists).map(replicas).sum();
        wanted > 0 && counts.ready() == wanted
    }

    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        counts(job).reclaimable(list_at(job, JOBS))
    }
}

impl PlainKind for TrainJob {
    fn own_controller(&self) -> &'static str {
        "trainer.kubeflow.org/trainjob-controller"
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        if job.get(JOB_SET).is_none() {
            let (kind, name) =
                (str_at(job, "/spec/runtimeRef/kind"), str_at(job, "/spec/runtimeRef/name"));
            return Err(JobError::malformed(
                "/spec/runtimeRef",
                format!("{kind} {name:?} not found; create it"),
            ));
        }
        let slot = |(index, replicated): (usize, &Value)| Slot {
            name: str_at(replicated, "/name").to_owned(),
            template: format!("{JOBS}/{index}/template/spec/template"),
            replicas: "/spec/trainer/numNodes".to_owned(),
            count: pods(replicated),
            ranks: PodRanks::of_job_set(replicas(replicated)),
        };
        Ok(list_at(job, JOBS).iter().enumerate().map(slot).collect())
    }

    fn template(&self, job: &Value, slot: &Slot) -> Result<Value, JobError> {
        own_template(job, &slot.template, self.id()).map_err(|_| {
            let (runtime, name) = (str_at(job, "/spec/runtimeRef/name"), &slot.name);
            let problem = format!(
                "the replicated job {name:?} of {runtime:?} has no pod template; it needs one"
            );
            JobError::malformed("/spec/runtimeRef", problem)
        })
    }

    fn metadata_path(&self, slot: &Slot) -> Path {
        Path::new("job").key(&slot.name)
    }

    fn topology_hint(&self) -> &'static str {
        ". Adjust either the \"TrainJob.spec.runtimePatches\" or the \"TrainingRuntime.Template\" annotations for the corresponding Job"
    }

    fn merge(&self, job: &mut Value, slots: &[Slot], infos: &[PodSetInfo]) -> Result<(), JobError> {
        let patches: Vec<Value> = slots
            .iter()
            .zip(infos)
            .map(|(slot, info)| patch_of(job, slot, info))
            .collect::<Result<_, _>>()?;
        if let Some(spec) = patches_mut(job) {
            spec.insert("replicatedJobs".to_owned(), Value::Array(patches));
        }
        Ok(())
    }

    fn unmerge(&self, job: &mut Value, _slots: &[Slot], _pod_sets: &[PodSet]) -> bool {
        if !has_patches(job) {
            return false;
        }
        drop_patches(job);
        true
    }

    /// The trainer's webhook allows changes of the patches only once no pods run.
    fn staged_stop(&self, job: &Value) -> Option<Stop> {
        let mut wanted = job.clone();
        if !self.is_suspended(job) {
            self.suspend(&mut wanted);
            return Some(Stop::Update { job: Box::new(wanted), now: true });
        }
        if !has_patches(job) {
            return Some(Stop::Done);
        }
        if self.is_active(job) {
            return Some(Stop::Wait);
        }
        self.unmerge(&mut wanted, &[], &[]);
        Some(Stop::Update { job: Box::new(wanted), now: false })
    }

    /// The worker's admission writes its own patch.
    fn trim_copy(&self, spec: &mut Map<String, Value>) {
        drop_from(spec);
    }
}

impl Dependent for TrainJob {
    fn dependencies(&self) -> &'static [KindId] {
        &RUNTIMES
    }

    fn depends_on(&self, job: &Value) -> Option<Dependency> {
        let [cluster_wide, namespaced] = RUNTIMES;
        let reference = job.pointer("/spec/runtimeRef")?;
        let own = str_at(reference, "/kind") == namespaced.kind;
        let namespace = if own { meta::namespace(job).to_owned() } else { String::new() };
        let kind = if own { namespaced } else { cluster_wide };
        Some(Dependency { kind, namespace, name: str_at(reference, "/name").to_owned() })
    }

    fn attach(&self, job: &mut Value, found: &Value) {
        let made = job_set(job, found.get("spec").unwrap_or(&Value::Null));
        if let Some(fields) = job.as_object_mut() {
            fields.insert(JOB_SET.to_owned(), made);
        }
    }
}
