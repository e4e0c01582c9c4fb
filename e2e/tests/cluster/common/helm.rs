//! Helm, built from its module, and the chart.

use std::path::PathBuf;
use std::process::{Command, Output};

use switchyard_e2e::{Cluster, Part, Parts, paths};

/// Helm, with files of its own, for a cluster's administrator.
pub(crate) struct Helm<'a> {
    pub(crate) program: PathBuf,
    namespace: &'static str,
    pub(crate) home: tempfile::TempDir,
    cluster: Option<&'a Cluster>,
    kubeconfig: Option<PathBuf>,
}

impl<'a> Helm<'a> {
    pub(crate) fn new(cluster: Option<&'a Cluster>, namespace: &'static str) -> Self {
        let program = Parts::new().unwrap().binary(Part::Helm).unwrap();
        Self { program, namespace, home: tempfile::tempdir().unwrap(), cluster, kubeconfig: None }
    }

    /// Another user than the cluster's administrator.
    pub(crate) fn with_kubeconfig(mut self, kubeconfig: PathBuf) -> Self {
        self.kubeconfig = Some(kubeconfig);
        self
    }

    /// How it ends, whether it succeeds or not.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.env("HELM_NAMESPACE", self.namespace).env_remove("KUBECONFIG");
        for (variable, dir) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            command.env(variable, self.home.path().join(dir));
        }
        let administrator = self.cluster.map(|cluster| cluster.kubeconfig().to_owned());
        if let Some(kubeconfig) = self.kubeconfig.clone().or(administrator) {
            command.env("KUBECONFIG", kubeconfig);
        }
        command.args(words).output().unwrap()
    }

    /// The output of a command that must succeed.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(
            output.status.success(),
            "helm {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The errors of a command that must fail.
    pub(crate) fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "helm {words:?} was accepted");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// The chart's folder.
pub(crate) fn chart() -> String {
    paths::root().join("deploy/charts/switchyard").display().to_string()
}
