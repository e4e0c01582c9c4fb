//! The releases of Kubernetes that control planes run.

use crate::PartsError;

/// A pinned release of Kubernetes for API servers, controllers and schedulers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kubernetes {
    /// The release of all tests.
    #[default]
    Default,
    /// The oldest minor version that the chart allows.
    Oldest,
    /// The newest minor version that the installed Go builds.
    Newest,
}

impl Kubernetes {
    /// The environment variable that selects one by its name. Unset or empty selects the default.
    pub const VARIABLE: &str = "SWITCHYARD_KUBERNETES";

    const ALL: [Self; 3] = [Self::Default, Self::Oldest, Self::Newest];

    /// The one that the environment selects.
    ///
    /// # Errors
    /// When no pinned Kubernetes has this name.
    pub fn selected() -> Result<Self, PartsError> {
        let name = std::env::var_os(Self::VARIABLE).unwrap_or_default();
        Self::named(&name.to_string_lossy())
    }

    fn named(name: &str) -> Result<Self, PartsError> {
        if name.is_empty() {
            return Ok(Self::Default);
        }
        Self::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            PartsError::Kubernetes(format!(
                "{}={name}: no pinned Kubernetes has that name; there are {names}",
                Self::VARIABLE
            ))
        })
    }

    /// The value of the variable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Oldest => "oldest",
            Self::Newest => "newest",
        }
    }

    /// The directory under `e2e/controlplane` that pins it.
    pub(crate) fn module(self) -> &'static str {
        match self {
            Self::Default => "kubernetes",
            Self::Oldest => "kubernetes-oldest",
            Self::Newest => "kubernetes-newest",
        }
    }

    /// The directory that pins its kubelet.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn with_kubelet(self) -> Result<&'static str, PartsError> {
        if self == Self::Default {
            return Ok("kubelet");
        }
        let (variable, name) = (Self::VARIABLE, self.name());
        Err(PartsError::Kubernetes(format!(
            "no kubelet is pinned for {variable}={name}; unset {variable} for real nodes"
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Go, Part, Parts, module_version, paths, read};

    #[test]
    fn names_select_a_kubernetes_and_unknown_ones_list_them() {
        assert_eq!(Kubernetes::named("").unwrap(), Kubernetes::Default);
        for kubernetes in Kubernetes::ALL {
            assert_eq!(Kubernetes::named(kubernetes.name()).unwrap(), kubernetes);
        }
        assert_eq!(
            Kubernetes::named("1.32").unwrap_err().to_string(),
            "SWITCHYARD_KUBERNETES=1.32: no pinned Kubernetes has that name; there are default, \
             oldest, newest"
        );
    }

    #[test]
    fn kubelet_runs_beside_the_default_alone() {
        assert!(Kubernetes::Default.with_kubelet().is_ok());
        let error = Kubernetes::Oldest.with_kubelet().unwrap_err().to_string();
        assert!(error.contains("unset SWITCHYARD_KUBERNETES"), "{error}");
    }

    #[test]
    fn kubernetes_of_each_name_is_the_one_that_chart_and_page_name() {
        let read = |path: &str| read(&paths::root().join(path)).unwrap();
        let version = |kubernetes: Kubernetes| {
            let go_mod = read(&format!("e2e/controlplane/{}/go.mod", kubernetes.module()));
            module_version(&go_mod, Part::ApiServer.source()).unwrap()
        };
        let minor = version(Kubernetes::Oldest).split('.').nth(1).unwrap().to_owned();
        let chart = read("deploy/charts/switchyard/Chart.yaml");
        assert!(chart.contains(&format!("kubeVersion: \">=1.{minor}.0-0\"")), "{chart}");
        let page = read("docs/upgrade.md");
        for kubernetes in [Kubernetes::Oldest, Kubernetes::Default, Kubernetes::Newest] {
            let version = version(kubernetes);
            assert!(page.contains(version.trim_start_matches('v')), "{version}");
        }
    }

    #[test]
    fn selected_kubernetes_has_its_own_module_and_no_kubelet() {
        let go = Go::find(std::env::var_os("PATH").as_deref()).unwrap();
        let parts = Parts { kubernetes: Kubernetes::Oldest, ..Parts::at(go, "modules", "cache") };
        for (part, module) in [
            (Part::ApiServer, "modules/kubernetes-oldest"),
            (Part::Scheduler, "modules/kubernetes-oldest"),
            (Part::Kubectl, "modules/kubectl"),
        ] {
            assert_eq!(parts.module(part).unwrap(), Path::new(module));
        }
        assert!(matches!(parts.module(Part::Kubelet), Err(PartsError::Kubernetes(_))));
    }
}
