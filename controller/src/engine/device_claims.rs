//! Which workloads use which ResourceClaimTemplate. A change of a template changes their requests.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use switchyard_api::v1beta2::Workload;

use switchyard_platform::store::{Change, Key};

/// Workloads by template, whether or not the template exists.
#[derive(Debug, Default)]
pub(super) struct DeviceClaims(Mutex<BTreeMap<Key, BTreeSet<Key>>>);

impl DeviceClaims {
    /// Applies a change of a workload.
    pub(super) fn follow(&self, change: &Change<Workload>) {
        let (before, after) = (templates(change.old.as_deref()), templates(change.new.as_deref()));
        if before == after {
            return;
        }
        let mut all = self.0.lock();
        for template in before {
            if let Some(workloads) = all.get_mut(&template) {
                workloads.remove(&change.key);
                if workloads.is_empty() {
                    all.remove(&template);
                }
            }
        }
        for template in after {
            all.entry(template).or_default().insert(change.key.clone());
        }
    }

    pub(super) fn of(&self, template: &Key) -> Vec<Key> {
        self.0.lock().get(template).into_iter().flatten().cloned().collect()
    }
}

fn templates(workload: Option<&Workload>) -> BTreeSet<Key> {
    let Some(workload) = workload else { return BTreeSet::new() };
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let names =
        workload.spec.pod_sets.iter().flat_map(|pod_set| pod_set.template.claim_templates());
    names.map(|name| Key::new(namespace, &name)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn claiming(name: &str, template: &str) -> Arc<Workload> {
        let mut workload = fixtures::workload(name);
        let claim = json!({"name": "gpu", "resourceClaimTemplateName": template});
        workload.spec.pod_sets[0].template =
            json!({"spec": {"containers": [], "resourceClaims": [claim]}}).into();
        // As the API server returns it.
        Arc::new(serde_json::from_str(&serde_json::to_string(&workload).unwrap()).unwrap())
    }

    fn change(old: Option<Arc<Workload>>, new: Option<Arc<Workload>>) -> Change<Workload> {
        Change { key: Key::of(&**old.as_ref().or(new.as_ref()).unwrap()), old, new }
    }

    #[test]
    fn changed_template_affects_workloads_that_name_it() {
        let claims = DeviceClaims::default();
        claims.follow(&change(None, Some(claiming("a", "one"))));
        claims.follow(&change(None, Some(claiming("b", "one"))));
        claims.follow(&change(None, Some(Arc::new(fixtures::workload("c")))));
        assert_eq!(claims.of(&Key::new("ns", "one")), [Key::new("ns", "a"), Key::new("ns", "b")]);
        assert_eq!(claims.of(&Key::new("other", "one")), []);
        claims.follow(&change(Some(claiming("a", "one")), Some(claiming("a", "two"))));
        claims.follow(&change(Some(claiming("b", "one")), None));
        assert_eq!(claims.of(&Key::new("ns", "two")), [Key::new("ns", "a")]);
        assert_eq!(claims.0.lock().len(), 1);
    }
}
