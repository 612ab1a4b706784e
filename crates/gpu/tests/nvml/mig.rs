//! Multi-instance GPUs, from the mode to an instance and back.

use std::collections::BTreeMap;

use octavo_gpu::Driver as _;
use octavo_gpu::mig::{MigPlacement, MigProfile};
use octavo_gpu::nvml::Nvml;

use crate::node::Node;

mod compare;
mod faults;
mod life;
mod mode;
mod sequences;
mod shared;

/// A node whose first GPU is in MIG mode, with its driver and that GPU's UUID.
fn with_mode_on(machine: &str) -> (Node, Nvml, String) {
    let node = Node::shipped(machine);
    node.edit(|state| state.gpus.entry(0).or_default().mig.enabled = Some(true));
    let driver = node.open();
    let uuid = node.uuid(0);
    (node, driver, uuid)
}

fn profiles(driver: &Nvml, uuid: &str) -> BTreeMap<String, MigProfile> {
    let profiles = driver.mig_profiles(uuid).unwrap();
    profiles.into_iter().map(|profile| (profile.name.clone(), profile)).collect()
}

/// The placement of a profile at a memory slice.
fn at(profile: &MigProfile, start: u32) -> MigPlacement {
    *profile.placements.iter().find(|place| place.start == start).unwrap()
}
