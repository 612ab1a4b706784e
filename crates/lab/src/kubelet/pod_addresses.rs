//! Addresses of pods. Pods whose containers are recorded get one that no network has; pods with processes get one of the loopback.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

/// Loopback addresses of a lab, before it takes those of others.
const LAB_BLOCK: u32 = 512;

/// Allocator of pod addresses.
#[derive(Debug, Default)]
pub(crate) struct PodAddresses {
    /// Number of the lab among those of this machine.
    lab: u16,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Place of the last address in its block.
    last: u32,
    addresses: BTreeSet<Ipv4Addr>,
}

/// A range of pod addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressRange {
    /// 10.64.0.0/10: no packet carries them, so labs need not differ.
    Unused,
    /// 127.128.0.0/9: every process of this machine can listen there. Each lab has a block, since daemons of all labs have the
    /// same ports.
    Loopback,
}

impl AddressRange {
    /// First address and length of a lab's block.
    fn block(self, lab: u16) -> (Ipv4Addr, u32) {
        match self {
            Self::Unused => (Ipv4Addr::new(10, 64, 0, 0), 1 << 22),
            Self::Loopback => {
                let first = u32::from(Ipv4Addr::new(127, 128, 0, 0));
                (Ipv4Addr::from(first + u32::from(lab) * LAB_BLOCK), LAB_BLOCK)
            }
        }
    }
}

impl PodAddresses {
    /// The addresses of a lab. `lab` is a number that no other lab of this machine has, below 16,384.
    pub(crate) fn new(lab: u16) -> Self {
        Self { lab: lab % (1 << 14), taken: Mutex::default() }
    }

    /// Allocates a free address. One that was released is used again as late as possible.
    pub(crate) fn allocate(&self, range: AddressRange) -> Ipv4Addr {
        let (first, length) = range.block(self.lab);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = (1..=length).map(|step| taken.last.wrapping_add(step) % length);
        // Other labs use few of theirs.
        for place in own.chain(length..) {
            let address = Ipv4Addr::from(u32::from(first) + place);
            if address.octets()[3] != 0 && !taken.addresses.contains(&address) {
                taken.last = place;
                taken.addresses.insert(address);
                return address;
            }
        }
        unreachable!("a machine has fewer pods than addresses")
    }

    /// Reserves an address that a pod got from an earlier process.
    pub(crate) fn reserve(&self, address: Ipv4Addr) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).addresses.insert(address);
    }

    /// Returns an address to the pool.
    pub(crate) fn release(&self, address: Ipv4Addr) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).addresses.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_have_loopback_addresses_of_their_own() {
        let (one, other) = (PodAddresses::new(0), PodAddresses::new(1));
        let all = |addresses: &PodAddresses| -> BTreeSet<Ipv4Addr> {
            (0..510).map(|_| addresses.allocate(AddressRange::Loopback)).collect()
        };
        let (first, second) = (all(&one), all(&other));
        assert_eq!((first.len(), second.len()), (510, 510));
        assert!(first.is_disjoint(&second));
        let last = PodAddresses::new(16_383).allocate(AddressRange::Loopback);
        assert!(last.is_loopback(), "{last}");
        // A lab with more pods goes on behind its block.
        let next = one.allocate(AddressRange::Loopback);
        assert!(next > *first.last().unwrap() && next.is_loopback(), "{next}");
    }

    #[test]
    fn a_released_address_is_used_again_after_the_others() {
        let addresses = PodAddresses::new(3);
        let reserved = Ipv4Addr::new(127, 128, 6, 2);
        addresses.reserve(reserved);
        let first = addresses.allocate(AddressRange::Loopback);
        assert_eq!(first, Ipv4Addr::new(127, 128, 6, 1));
        addresses.release(first);
        let others: Vec<_> = (0..508).map(|_| addresses.allocate(AddressRange::Loopback)).collect();
        assert!(!others.contains(&first) && !others.contains(&reserved));
        assert_eq!(addresses.allocate(AddressRange::Loopback), first);
        assert_eq!(addresses.allocate(AddressRange::Unused).octets()[0], 10);
    }
}
