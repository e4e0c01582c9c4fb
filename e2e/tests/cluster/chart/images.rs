//! Which image the chart's pods run, and how it is pulled.

use super::{AGENT, HUB, Helm, NAMESPACE, chart};

/// A digest as releases have them.
pub(super) const IMAGE_DIGEST: &str =
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn image_follows_registry_version_and_digest() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    let image = |values: &[&str]| {
        let text =
            helm.ok(
                &[&["template", &chart, "--show-only=templates/deployment.yaml"], values].concat()
            );
        text.lines()
            .find_map(|line| line.trim().strip_prefix("image: ").map(str::to_owned))
            .unwrap()
    };
    let version = env!("CARGO_PKG_VERSION");
    let pinned =
        format!("--set=images.hub.digest={IMAGE_DIGEST},images.agent.digest={IMAGE_DIGEST}");
    let registry = "--set=global.imageRegistry=mirror.example:5000/team";
    let repository =
        |name: &str| format!("--set=controllerManager.manager.image.repository={name}");
    for (values, expected) in [
        (vec![], format!("switchyard-hub:{version}")),
        (HUB.to_vec(), format!("switchyard-hub:{version}")),
        (AGENT.to_vec(), format!("switchyard-agent:{version}")),
        (vec![registry], format!("mirror.example:5000/team/switchyard-hub:{version}")),
        (vec![&pinned], format!("switchyard-hub:{version}@{IMAGE_DIGEST}")),
        (
            vec![&pinned, registry],
            format!("mirror.example:5000/team/switchyard-hub:{version}@{IMAGE_DIGEST}"),
        ),
        // A tag or repository of one's own is another image than the release's.
        (
            vec![&pinned, "--set-string=controllerManager.manager.image.tag=1.0"],
            "switchyard-hub:1.0".to_owned(),
        ),
        (
            vec![&pinned, registry, &repository("own")],
            format!("mirror.example:5000/team/own:{version}"),
        ),
        (vec![registry, &repository("other.example/hub")], format!("other.example/hub:{version}")),
    ] {
        assert_eq!(image(&values), expected, "{values:?}");
    }
}

#[test]
fn pull_secrets_come_from_both_values_once() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    let secrets = [
        "--set=global.imagePullSecrets={a,b}",
        "--set=controllerManager.imagePullSecrets[0].name=a",
    ];
    let template = |values: &[&str]| helm.ok(&[&["template", &chart], values].concat());
    assert!(
        template(&secrets)
            .contains("imagePullSecrets:\n        - name: a\n        - name: b\n      topology")
    );
    assert!(!template(&[]).contains("imagePullSecrets:\n"));
}
