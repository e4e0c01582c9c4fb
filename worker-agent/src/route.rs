//! How an agent reaches its hub: the address, the transport, and the clock that validates
//! certificates.

use std::sync::Arc;

use switchyard_platform::clock::{Clock, SystemClock};

pub use crate::dial::{Dial, Io, Tcp};
use crate::hub_address::HubAddress;
use crate::proxy::{Proxy, Tunnel};

/// The way to the hub.
#[derive(Clone)]
pub struct Route {
    pub hub: HubAddress,
    pub dial: Arc<dyn Dial>,
    /// Validates certificates, and decides when the agent renews its own.
    pub clock: Arc<dyn Clock>,
}

impl Route {
    /// Uses TCP, the proxy if there is one, and the system clock.
    pub fn new(hub: HubAddress, proxy: Option<Proxy>) -> Self {
        Self { hub, dial: dial(proxy), clock: Arc::new(SystemClock) }
    }

    /// Changes the address, and the proxy on the way to it.
    pub fn lead_to(&mut self, hub: HubAddress, proxy: Option<Proxy>) {
        self.hub = hub;
        self.dial = dial(proxy);
    }
}

fn dial(proxy: Option<Proxy>) -> Arc<dyn Dial> {
    match proxy {
        Some(proxy) => Arc::new(Tunnel { proxy, dial: Arc::new(Tcp) }),
        None => Arc::new(Tcp),
    }
}

impl From<HubAddress> for Route {
    /// Dials the hub directly.
    fn from(hub: HubAddress) -> Self {
        Self::new(hub, None)
    }
}
