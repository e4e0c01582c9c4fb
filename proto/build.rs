//! Compiles `proto/agent.proto` in pure Rust, without an installed `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/agent.proto"], ["proto"])?;
    let transport = "#[cfg(feature = \"transport\")]";
    tonic_prost_build::configure()
        .client_mod_attribute(".", transport)
        .server_mod_attribute(".", transport)
        .codec_path("crate::codec::BoundedCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
