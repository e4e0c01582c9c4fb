//! Finds a client's configuration: in `--kubeconfig`, `$KUBECONFIG` or the home directory, otherwise
//! in the pod in which this program runs.

use std::path::Path;

use anyhow::{anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use switchyard_platform::api_server::{self, ConfigError};

const ADVICE: &str = "name the hub's kubeconfig with --kubeconfig or $KUBECONFIG";
const VARIABLE: &str = "KUBECONFIG";

/// The configuration, and the name of its source for messages.
///
/// # Errors
/// Names the source, what is wrong with it, and the contexts to choose from.
pub(crate) async fn load(
    path: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<(kube::Config, String)> {
    let is_set = std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty());
    let source = match path {
        Some(path) => format!("--kubeconfig {}", path.display()),
        None if is_set => format!("${VARIABLE}"),
        None => "the kubeconfig".to_owned(),
    };
    let is_named = path.is_some() || is_set || context.is_some();
    let kubeconfig = match path.map_or_else(Kubeconfig::read, Kubeconfig::read_from) {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            // In a pod, there is usually no file.
            match kube::Config::incluster() {
                Ok(config) if !is_named => return Ok((config, "the pod's account".to_owned())),
                _ => bail!("{source}: {}{}", unreadable(&error, path), advice(path)),
            }
        }
    };
    let contexts: Vec<String> = kubeconfig.contexts.iter().map(|it| it.name.clone()).collect();
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = api_server::of_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(|error| anyhow!("{source}: {}", unusable(&error, &contexts)))?;
    Ok((config, source))
}

fn advice(path: Option<&Path>) -> String {
    if path.is_some() { String::new() } else { format!("; {ADVICE}") }
}

/// Why a file is no kubeconfig. A file that was named is not named again.
fn unreadable(error: &KubeconfigError, path: Option<&Path>) -> String {
    match error {
        KubeconfigError::ReadConfig(error, found) if path == Some(found) => error.to_string(),
        KubeconfigError::ReadConfig(error, found) => {
            format!("cannot read {}: {error}", found.display())
        }
        KubeconfigError::FindPath => "there is no home directory".to_owned(),
        error => error.to_string(),
    }
}

/// Why a kubeconfig gives no configuration.
fn unusable(error: &ConfigError, contexts: &[String]) -> String {
    let choice = match contexts {
        [] => "; it has no contexts".to_owned(),
        contexts => format!("; it has the contexts {}", contexts.join(", ")),
    };
    match error {
        ConfigError::Kubeconfig(KubeconfigError::CurrentContextNotSet) => {
            format!("it has no current context, and --context names none{choice}")
        }
        ConfigError::Kubeconfig(KubeconfigError::LoadContext(name)) => {
            format!("it has no context \"{name}\"{choice}")
        }
        ConfigError::Kubeconfig(KubeconfigError::LoadClusterOfContext(name)) => {
            format!("it has no cluster \"{name}\", which its context names")
        }
        ConfigError::Kubeconfig(KubeconfigError::MissingClusterUrl) => {
            "the cluster of its context has no server".to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(text: &str, context: Option<&str>) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let error = load(Some(file.path()), context).await.err().unwrap().to_string();
        error.replace(&file.path().display().to_string(), "FILE")
    }

    #[tokio::test]
    async fn missing_file_is_named_once() {
        let error = load(Some(Path::new("/nonexistent")), None).await.err().unwrap();
        assert_eq!(
            format!("{error:#}"),
            "--kubeconfig /nonexistent: No such file or directory (os error 2)"
        );
        let directory = tempfile::tempdir().unwrap();
        let error = load(Some(directory.path()), None).await.err().unwrap();
        assert!(error.to_string().ends_with("Is a directory (os error 21)"), "{error}");
    }

    #[tokio::test]
    async fn wrong_context_is_answered_with_the_contexts() {
        let two =
            "{contexts: [{name: a, context: {cluster: x}}, {name: b, context: {cluster: y}}]}";
        assert_eq!(
            refused(two, Some("c")).await,
            "--kubeconfig FILE: it has no context \"c\"; it has the contexts a, b"
        );
        assert_eq!(
            refused(two, None).await,
            "--kubeconfig FILE: it has no current context, and --context names none; it has the contexts a, b"
        );
        assert_eq!(
            refused(two, Some("a")).await,
            "--kubeconfig FILE: it has no cluster \"x\", which its context names"
        );
        assert_eq!(
            refused("", None).await,
            "--kubeconfig FILE: it has no current context, and --context names none; it has no contexts"
        );
    }
}
