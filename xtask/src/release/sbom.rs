//! Software bills of materials in CycloneDX, from `cargo tree`: the libraries that are linked into a program.
//! Dependencies of tests and builds, macros and other platforms are left out.

mod tree;

use anyhow::Context as _;
use serde_json::{Value, json};
use switchyard_images::hex;

use super::bundle::{Bundle, Program};
use super::images::ReleasedImage;
use super::programs;
use crate::run;
use tree::{Crate, Tree};

/// The SBOM of a program: its crates.
pub(crate) fn of_program(bundle: &Bundle, program: &Program) -> anyhow::Result<Vec<u8>> {
    let tree = tree(program.name, &program.architecture)?;
    let mut component =
        component("application", program.name, &bundle.source.version, program.name);
    component["hashes"] = json!([{"alg": "SHA-256", "content": hex(&program.bytes)}]);
    component["properties"] = json!([
        {"name": "switchyard:commit", "value": bundle.source.commit},
        {"name": "switchyard:platform", "value": format!("linux/{}", program.architecture)},
    ]);
    let reference = component["bom-ref"].clone();
    let mut dependencies = vec![json!({"ref": reference, "dependsOn": tree.of_root(reference_of)})];
    dependencies.extend(
        tree.crates()
            .map(|it| json!({"ref": reference_of(it), "dependsOn": tree.of(it, reference_of)})),
    );
    document(bundle, &component, &tree.crates().map(library).collect(), &dependencies)
}

/// The SBOM of an image: its program for each architecture, and the list of certificate authorities.
pub(crate) fn of_image(bundle: &Bundle, image: &ReleasedImage) -> anyhow::Result<Vec<u8>> {
    let mut container =
        component("container", &image.reference, &bundle.source.version, &image.reference);
    container["hashes"] =
        json!([{"alg": "SHA-256", "content": image.archive.digest.trim_start_matches("sha256:")}]);
    let (mut components, mut held) = (Vec::new(), Vec::new());
    for program in bundle.all_of(image.program) {
        let reference = format!("{}-linux-{}", program.name, program.architecture);
        let mut component =
            component("application", program.name, &bundle.source.version, &reference);
        component["hashes"] = json!([{"alg": "SHA-256", "content": hex(&program.bytes)}]);
        component["externalReferences"] =
            json!([{"type": "bom", "url": format!("{reference}.cdx.json")}]);
        components.push(component);
        held.push(reference);
    }
    let roots =
        tree::checksums(&lock()?).into_iter().find(|((name, _), _)| name == "webpki-root-certs");
    let ((name, version), checksum) = roots.context("Cargo.lock has no webpki-root-certs")?;
    let roots = Crate {
        name,
        version,
        license: "CDLA-Permissive-2.0".to_owned(),
        checksum: Some(checksum),
    };
    held.push(reference_of(&roots));
    components.push(library(&roots));
    let dependencies = [json!({"ref": container["bom-ref"], "dependsOn": held})];
    document(bundle, &container, &components, &dependencies)
}

fn tree(program: &str, architecture: &str) -> anyhow::Result<Tree> {
    let mut tree =
        run::cargo(&["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "depth"]);
    tree.args(["--format", tree::FORMAT, "--target", programs::target(architecture)]);
    // All programs at once, as they are built, so that the features are those of the build.
    tree.args(programs::NAMES.iter().flat_map(|name| ["--package", name]));
    Tree::parse(&run::output(tree)?, program, &tree::checksums(&lock()?))
}

fn lock() -> anyhow::Result<String> {
    std::fs::read_to_string(run::root().join("Cargo.lock")).context("cannot read Cargo.lock")
}

fn component(kind: &str, name: &str, version: &str, reference: &str) -> Value {
    json!({
        "type": kind, "bom-ref": reference, "name": name, "version": version,
        "licenses": [{"expression": "Apache-2.0"}],
    })
}

fn library(it: &Crate) -> Value {
    let mut component = component("library", &it.name, &it.version, &reference_of(it));
    component["licenses"] = json!([{"expression": it.license}]);
    if let Some(checksum) = &it.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        component["purl"] = json!(reference_of(it));
    }
    component
}

fn reference_of(it: &Crate) -> String {
    format!("pkg:cargo/{}@{}", it.name, it.version)
}

/// The document. Its serial number is derived from its content, so that equal releases have equal ones.
fn document(
    bundle: &Bundle,
    component: &Value,
    components: &Vec<Value>,
    dependencies: &[Value],
) -> anyhow::Result<Vec<u8>> {
    let mut document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": bundle.source.date.to_string(),
            "tools": {"components": [{"type": "application", "name": "cargo xtask release", "version": bundle.source.version}]},
            "component": component,
        },
        "components": components,
        "dependencies": dependencies,
    });
    document["serialNumber"] = json!(uuid(&hex(document.to_string().as_bytes())));
    let mut bytes = serde_json::to_vec_pretty(&document)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A UUID of version 8 (RFC 9562: content of one's own) from the first digits of a digest.
fn uuid(digest: &str) -> String {
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    format!(
        "urn:uuid:{}-{}-8{}-8{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 15),
        part(15, 18),
        part(18, 30)
    )
}

#[cfg(test)]
mod tests {
    use super::uuid;

    #[test]
    fn serial_number_is_a_uuid() {
        assert_eq!(
            uuid("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
            "urn:uuid:01234567-89ab-8cde-8f01-23456789abcd"
        );
    }
}
