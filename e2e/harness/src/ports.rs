//! Free loopback ports.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::bail;

use crate::paths;

/// Kernels take ports of outgoing connections from a higher range (from 32768 on Linux, 49152 elsewhere). So no client's
/// connection takes a server's port while the server restarts.
const FIRST: u32 = 16_000;
/// Ports of one block. A process uses about fifty at a time.
const SIZE: u32 = 250;
/// Number of blocks: so many processes can run at once without a shared port.
const BLOCKS: u32 = 64;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A loopback port on which nothing listens. A process takes its ports from a block of its own, one after the other.
///
/// # Errors
/// When all ports of the block are taken.
pub fn free() -> anyhow::Result<u16> {
    static BLOCK: OnceLock<(u32, Option<File>)> = OnceLock::new();
    let (block, _) = BLOCK.get_or_init(|| {
        // In the user's cache: another user's directory could not be locked.
        let own = paths::cache().ok().and_then(|cache| own_block(&cache.join("ports")));
        own.map_or_else(|| (std::process::id() % BLOCKS, None), |(block, lock)| (block, Some(lock)))
    });
    for _ in 0..SIZE {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % SIZE;
        let port = u16::try_from(FIRST + block * SIZE + step)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!(
        "no free loopback port between {} and {}",
        FIRST + block * SIZE,
        FIRST + (block + 1) * SIZE
    )
}

/// A block that no other process uses, and the lock that reserves it. `None` if all blocks are taken, or if the directory
/// belongs to another user.
fn own_block(dir: &Path) -> Option<(u32, File)> {
    std::fs::create_dir_all(dir).ok()?;
    (0..BLOCKS).find_map(|block| {
        let lock = File::create(dir.join(block.to_string())).ok()?;
        lock.try_lock().ok().map(|()| (block, lock))
    })
}

/// Whether a process accepts connections on this loopback port.
pub fn is_open(port: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::own_block;

    #[test]
    fn two_processes_have_different_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let first = own_block(dir.path()).unwrap();
        let second = own_block(dir.path()).unwrap();
        assert_eq!((first.0, second.0), (0, 1));
        drop(first);
        assert_eq!(own_block(dir.path()).unwrap().0, 0);
    }
}
