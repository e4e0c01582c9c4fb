//! The agent's binary.

fn main() {}
