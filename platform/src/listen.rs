//! Listeners at the addresses of flags and configuration files.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// As the standard library's listeners have it.
const BACKLOG: i32 = 128;
/// Linux's number of "Address family not supported by protocol", which has no `ErrorKind`.
const EAFNOSUPPORT: i32 = 97;

/// Listens at HOST:PORT. `:PORT` and `[::]:PORT` mean all addresses of the machine, of IPv6 and of
/// IPv4.
///
/// # Errors
/// The address is malformed, in use, or not the machine's.
pub fn listen(address: &str) -> io::Result<TcpListener> {
    let port = address.strip_prefix("[::]:").or_else(|| address.strip_prefix(':'));
    match port.and_then(|port| port.parse().ok()) {
        Some(port) => at_all_addresses(port),
        None => TcpListener::bind(address),
    }
}

/// On a machine without IPv6, at all addresses of IPv4.
fn at_all_addresses(port: u16) -> io::Result<TcpListener> {
    or_ipv4(dual_stack(port), port)
}

/// Replaces a failure that comes from a machine without IPv6.
fn or_ipv4(listener: io::Result<TcpListener>, port: u16) -> io::Result<TcpListener> {
    match listener {
        Err(error)
            if error.kind() == ErrorKind::AddrNotAvailable
                || error.kind() == ErrorKind::Unsupported
                || error.raw_os_error() == Some(EAFNOSUPPORT) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        listener => listener,
    }
}

/// A socket of IPv6 that also accepts IPv4, whatever `net.ipv6.bindv6only` is.
fn dual_stack(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_only_v6(false)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    /// Whether a listener accepts connections of both families.
    fn accepts(listener: &TcpListener) -> [bool; 2] {
        let port = listener.local_addr().unwrap().port();
        ["127.0.0.1", "::1"].map(|host| {
            let address = SocketAddr::new(host.parse().unwrap(), port);
            TcpStream::connect(address).is_ok_and(|_| listener.accept().is_ok())
        })
    }

    #[test]
    fn all_addresses_are_of_both_families() {
        for address in [":0", "[::]:0"] {
            assert_eq!(accepts(&listen(address).unwrap()), [true, true], "{address}");
        }
        for address in ["0.0.0.0:0", "127.0.0.1:0"] {
            assert_eq!(accepts(&listen(address).unwrap()), [true, false], "{address}");
        }
        assert_eq!(accepts(&listen("[::1]:0").unwrap()), [false, true]);
        for address in ["", ":", "[::]", "[::]:x", "nonsense"] {
            assert!(listen(address).is_err(), "{address:?}");
        }
    }

    #[test]
    fn machine_without_ipv6_listens_by_ipv4() {
        let unavailable = io::Error::from(ErrorKind::AddrNotAvailable);
        for error in [io::Error::from_raw_os_error(EAFNOSUPPORT), unavailable] {
            assert_eq!(accepts(&or_ipv4(Err(error), 0).unwrap()), [true, false]);
        }
        let taken = listen("[::]:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = at_all_addresses(port).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
