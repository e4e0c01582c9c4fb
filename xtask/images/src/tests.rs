use super::packed::untar;
use super::*;

fn image(compression: Compression) -> Image {
    let platform = |architecture: &str| Platform {
        architecture: architecture.to_owned(),
        files: vec![
            Entry::program("tool", format!("program for {architecture}").into_bytes()),
            Entry::file("etc/ssl/certs/ca-certificates.crt", b"certificates".to_vec()),
        ],
        entrypoint: vec!["/tool".to_owned()],
        user: NON_ROOT.to_owned(),
    };
    Image {
        repository: "tool".to_owned(),
        tag: "1.2.3".to_owned(),
        created: "2026-11-26T04:38:18Z".parse().unwrap(),
        labels: BTreeMap::from([(
            "org.opencontainers.image.version".to_owned(),
            "1.2.3".to_owned(),
        )]),
        platforms: vec![platform("amd64"), platform("arm64")],
        compression,
    }
}

struct Unpacked(BTreeMap<String, Vec<u8>>);

impl Unpacked {
    fn new(archive: &Archive) -> Self {
        Self(
            untar(&archive.bytes)
                .unwrap()
                .into_iter()
                .map(|entry| (entry.path, entry.content))
                .collect(),
        )
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.0[path]).unwrap()
    }

    /// The content behind a descriptor. Its digest and size must be those of the descriptor.
    fn follow(&self, descriptor: &Value) -> &[u8] {
        let bytes = &self.0[&path(descriptor)];
        assert_eq!(descriptor["digest"], digest(bytes));
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }
}

#[test]
fn every_descriptor_leads_to_its_content() {
    for compression in [Compression::None, Compression::Gzip] {
        let archive = image(compression).archive().unwrap();
        let unpacked = Unpacked::new(&archive);
        assert_eq!(unpacked.json("oci-layout")["imageLayoutVersion"], "1.0.0");
        let names = unpacked.json("index.json");
        assert_eq!(names["manifests"][0]["digest"], archive.digest);
        let index: Value = serde_json::from_slice(unpacked.follow(&names["manifests"][0])).unwrap();
        let manifests = index["manifests"].as_array().unwrap();
        assert_eq!(manifests.len(), 2);
        for (descriptor, architecture) in manifests.iter().zip(["amd64", "arm64"]) {
            assert_eq!(
                descriptor["platform"],
                json!({"architecture": architecture, "os": "linux"})
            );
            let manifest: Value = serde_json::from_slice(unpacked.follow(descriptor)).unwrap();
            let config: Value =
                serde_json::from_slice(unpacked.follow(&manifest["config"])).unwrap();
            assert_eq!(config["config"]["Entrypoint"], json!(["/tool"]));
            assert_eq!(config["config"]["User"], "65532:65532");
            let layer = untar(unpacked.follow(&manifest["layers"][0])).unwrap();
            assert_eq!(
                layer[0],
                Entry::program("tool", format!("program for {architecture}").into_bytes())
            );
            let plain = packed::tar(&layer, image(compression).created).unwrap();
            assert_eq!(
                config["rootfs"]["diff_ids"],
                json!([digest(&plain)]),
                "the digest without compression"
            );
        }
    }
}

#[test]
fn the_image_has_a_name_by_tag_and_by_digest() {
    let archive = image(Compression::None).archive().unwrap();
    let names = Unpacked::new(&archive).json("index.json");
    let name =
        |at: usize| names["manifests"][at]["annotations"]["io.containerd.image.name"].clone();
    assert_eq!(name(0), "docker.io/library/tool:1.2.3");
    assert_eq!(name(1), format!("docker.io/library/tool@{}", archive.digest));
}

#[test]
fn docker_without_containerd_finds_its_list() {
    let unpacked = Unpacked::new(&image(Compression::Gzip).archive().unwrap());
    let list = unpacked.json("manifest.json");
    let [entry] = list.as_array().unwrap().as_slice() else { panic!("one architecture: {list}") };
    assert_eq!(entry["RepoTags"], json!(["tool:1.2.3"]));
    assert!(unpacked.0.contains_key(entry["Layers"][0].as_str().unwrap()));
    let config: Value =
        serde_json::from_slice(&unpacked.0[entry["Config"].as_str().unwrap()]).unwrap();
    assert_eq!(config["architecture"], "amd64");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let [first, second] = [(), ()].map(|()| image(Compression::Gzip).archive().unwrap());
    assert!(first.bytes == second.bytes);
}

#[test]
fn names_are_completed_as_container_engines_do() {
    for (repository, full) in [
        ("switchyard-hub", "docker.io/library/switchyard-hub"),
        ("team/switchyard-hub", "docker.io/team/switchyard-hub"),
        ("localhost/switchyard-hub", "localhost/switchyard-hub"),
        ("registry:5000/switchyard-hub", "registry:5000/switchyard-hub"),
        ("ghcr.io/team/switchyard-hub", "ghcr.io/team/switchyard-hub"),
    ] {
        assert_eq!(full_name(repository), full);
    }
}
