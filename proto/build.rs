//! Compiles `proto/agent.proto` in pure Rust: no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/agent.proto"], ["proto"])?;
    let transport = "#[cfg(feature = \"transport\")]";
    tonic_prost_build::configure()
        .client_mod_attribute(".", transport)
        .server_mod_attribute(".", transport)
        .codec_path("crate::codec::WeighingCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
