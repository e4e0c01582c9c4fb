//! Real nodes: a kubelet with containerd and runc. Other clusters have nodes that kwok simulates.
//!
//! Namespaces isolate a run from the machine and from other runs. The process that starts nodes has its own network
//! ([`enter`]), so bridges, addresses and listeners of a run are hidden from others and end with it. The programs of a node
//! have their own process and mount namespaces. So the kernel ends all containers, shims and mounts with the node's first
//! process. Only cgroups outlive their processes; `switchyard-supervise` removes them.

mod config;
mod image;
mod init;
mod isolation;
mod node;
mod services;

pub use image::{BUSYBOX, ImageArchive, KUEUE, NodeImage, write_program};
pub use init::{Args as InitArgs, run as init};
pub(crate) use isolation::{again_for, raise_loopback};
pub use isolation::{enter, inside, is_isolated};
pub(crate) use node::{RealNode, Site, name, program};
pub(crate) use services::Services;
