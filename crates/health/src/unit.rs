//! What harm is about: devices and the parts around them.
//!
//! Fences and remedies act on devices. A signal about a larger part reaches all devices in it, a signal about a MIG instance
//! its device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A GPU. Callers number GPUs and all other parts as they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(pub u32);

/// A part of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// A MIG instance.
    Instance(u32),
    /// A GPU.
    Device(DeviceId),
    /// A network card.
    Nic(u32),
    /// GPUs behind the same NVLink switches or bridges of one node.
    Island(u32),
    /// A node.
    Node(u32),
    /// A rack.
    Rack(u32),
    /// GPUs of several nodes on one NVLink fabric.
    NvlinkDomain(u32),
}

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its NVLink island. A GPU without NVLink has an island of its own.
    pub island: u32,
    /// The network cards that serve it: those behind the nearest PCIe switch that has any.
    pub nics: Vec<u32>,
    /// Its node.
    pub node: u32,
    /// Its rack.
    pub rack: u32,
    /// Its NVLink domain, if the fabric leaves the node.
    pub nvlink_domain: Option<u32>,
    /// Whether the GPU can be reset while others of its island run. From Hopper on it can, before that only under Fabric Manager.
    /// `false` is always safe.
    pub resets_alone: bool,
}

/// The devices of a domain and the parts around them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    places: BTreeMap<DeviceId, Place>,
    /// The devices of each part that is no device, in order.
    devices: BTreeMap<Unit, Vec<DeviceId>>,
    nodes: usize,
}

impl Place {
    /// The parts that contain a device at this place, without the device.
    fn around(&self) -> impl Iterator<Item = Unit> {
        let always = [Unit::Island(self.island), Unit::Node(self.node), Unit::Rack(self.rack)];
        let nics = self.nics.iter().copied().map(Unit::Nic);
        always.into_iter().chain(nics).chain(self.nvlink_domain.map(Unit::NvlinkDomain))
    }
}

impl Topology {
    /// Devices at their places, and MIG instances with their devices. An instance of an unknown device is left out.
    pub fn new(
        places: BTreeMap<DeviceId, Place>,
        instances: impl IntoIterator<Item = (u32, DeviceId)>,
    ) -> Self {
        let mut devices: BTreeMap<Unit, Vec<DeviceId>> = BTreeMap::new();
        for (device, place) in &places {
            for unit in place.around() {
                devices.entry(unit).or_default().push(*device);
            }
        }
        for (instance, device) in instances {
            if places.contains_key(&device) {
                devices.insert(Unit::Instance(instance), vec![device]);
            }
        }
        let nodes = devices.keys().filter(|unit| matches!(unit, Unit::Node(_))).count();
        Self { places, devices, nodes }
    }

    /// With this many nodes in all: the devices of some may be left out.
    #[must_use]
    pub fn of_nodes(self, nodes: usize) -> Self {
        Self { nodes, ..self }
    }

    /// The devices of a part, in order; none if it is unknown.
    pub fn devices(&self, unit: Unit) -> &[DeviceId] {
        let Unit::Device(device) = unit else {
            return self.devices.get(&unit).map_or(&[], Vec::as_slice);
        };
        self.places.get_key_value(&device).map_or(&[], |(device, _)| std::slice::from_ref(device))
    }

    /// Where a device is.
    pub fn place(&self, device: DeviceId) -> Option<&Place> {
        self.places.get(&device)
    }

    /// All devices with their places, in order.
    pub fn places(&self) -> impl Iterator<Item = (DeviceId, &Place)> {
        self.places.iter().map(|(device, place)| (*device, place))
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_card_reaches_all_devices_that_it_serves() {
        let place = |nics: &[u32]| Place {
            island: 0,
            nics: nics.to_vec(),
            node: 0,
            rack: 0,
            nvlink_domain: None,
            resets_alone: true,
        };
        let places = [place(&[7]), place(&[7, 8]), place(&[])];
        let topology = Topology::new((0..).map(DeviceId).zip(places).collect(), []);
        assert_eq!(topology.devices(Unit::Nic(7)), [DeviceId(0), DeviceId(1)]);
        assert_eq!(topology.devices(Unit::Nic(8)), [DeviceId(1)]);
        assert_eq!(topology.devices(Unit::Nic(9)), []);
    }
}
