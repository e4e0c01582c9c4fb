//! The flags of the harness's programs. They are apart from the programs so that `cargo xtask` shows a command's help
//! and refuses a wrong flag at once, before it builds anything.

pub mod bench;
pub mod demo;
pub mod failover;
pub mod figures;
pub mod kueue_e2e;
pub mod life;
pub mod operators;
pub mod simulate;
