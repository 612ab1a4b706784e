//! The devices that a node offers for domains.

use std::collections::BTreeMap;

use octavo_dra::{AttributeValue, Device};
use octavo_kube_io::slices::Pool;

use crate::config::Owner;
use crate::devices::owner_taint;

/// The pool of a node: `channel-0` and `daemon-0`, as NVIDIA's driver offers them.
pub(crate) fn pool(node: &str, owner: &Owner) -> Pool {
    let device = |kind: &str| {
        let attributes =
            [("type", AttributeValue::String(kind.to_owned())), ("id", AttributeValue::Int(0))];
        Device {
            name: format!("{kind}-0"),
            attributes: BTreeMap::from(attributes.map(|(name, value)| (name.to_owned(), value))),
            taints: owner_taint(owner).into_iter().collect(),
            ..Device::default()
        }
    };
    let devices = vec![device("channel"), device("daemon")];
    Pool { name: node.to_owned(), counters: Vec::new(), devices, plain: Vec::new() }
}
