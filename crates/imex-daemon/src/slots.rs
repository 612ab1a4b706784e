//! The slots of a clique: a fixed name for each index, and the address behind it.

use std::net::{IpAddr, Ipv4Addr};

use octavo_api::compute_domain::ComputeDomainDaemon;
use octavo_api::names::IMEX_SLOT_PREFIX;

/// Address of a free slot, so that its name needs no DNS. NVIDIA's driver has the same. It is of no interface, and a connection
/// to it never leaves the pod and is refused at once: `nvidia-imex` listens on the pod's address alone.
pub(crate) const FREE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The addresses of a clique's slots by index. No address but [`FREE`] is at two slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    addresses: Vec<IpAddr>,
}

/// The name of a slot.
pub(crate) fn name(index: usize) -> String {
    format!("{IMEX_SLOT_PREFIX}{index:04}")
}

impl Slots {
    /// Free slots.
    pub(crate) fn new(count: u16) -> Self {
        Self { addresses: vec![FREE; count.into()] }
    }

    /// Names and addresses in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (String, IpAddr)> + '_ {
        self.addresses.iter().enumerate().map(|(index, address)| (name(index), *address))
    }

    /// Number of slots.
    pub(crate) fn count(&self) -> usize {
        self.addresses.len()
    }

    /// The slot of an index; `None` if there is no such slot.
    pub(crate) fn slot(&self, index: i64) -> Option<usize> {
        usize::try_from(index).ok().filter(|slot| *slot < self.count())
    }

    /// Enters the daemons of a clique; returns whether an address changed. The slot of a daemon that left keeps its address.
    ///
    /// `own` is this node's slot with its address, whatever the clique says of it.
    pub(crate) fn enter<'a>(
        &mut self,
        peers: impl IntoIterator<Item = &'a ComputeDomainDaemon>,
        own: Option<(usize, IpAddr)>,
    ) -> bool {
        let before = self.addresses.clone();
        for peer in peers {
            let slot = peer.index.and_then(|index| self.slot(index));
            if let (Some(slot), Ok(address)) = (slot, peer.ip_address.parse()) {
                self.set(slot, address);
            }
        }
        if let Some((slot, address)) = own {
            self.set(slot, address);
        }
        self.addresses != before
    }

    /// Addresses are reused: the slot that had this one before is free.
    fn set(&mut self, slot: usize, address: IpAddr) {
        for (index, old) in self.addresses.iter_mut().enumerate() {
            if index == slot {
                *old = address;
            } else if *old == address {
                *old = FREE;
            }
        }
    }
}

#[cfg(test)]
mod tests;
