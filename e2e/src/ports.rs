//! Free loopback ports.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::bail;

/// Below the range from which kernels take ports for outgoing connections (32768 on Linux, 49152 elsewhere): a port
/// that is chosen here is not taken by some client's connection while its server restarts.
const FIRST: u32 = 16_000;
const COUNT: u32 = 16_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A loopback port nobody listens on. No port is given out twice by one process until all have been; two processes
/// start at different places, and whoever loses a race all the same asks again.
pub fn free() -> anyhow::Result<u16> {
    let start = std::process::id().wrapping_mul(7919);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + start.wrapping_add(step) % COUNT)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free loopback port between {FIRST} and {}", FIRST + COUNT)
}

/// True while something accepts connections on this loopback port.
pub fn is_open(port: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(1)).is_ok()
}
