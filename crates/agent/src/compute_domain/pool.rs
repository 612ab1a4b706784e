//! The devices that a node offers for domains.

use std::collections::BTreeMap;

use octavo_api::imex::ImexServices;
use octavo_dra::{AttributeValue, Device};
use octavo_kube_io::slices::Pool;

use crate::config::Owner;
use crate::devices::{imex_taint, owner_taint};

/// The pool of a node: `channel-0` and `daemon-0`, as NVIDIA's driver offers them. With a service of the host there is no daemon.
/// Where domains share a clique, `channel-0` is for many claims. An obstacle is the value of a taint.
pub(crate) fn pool(
    node: &str,
    owner: &Owner,
    services: ImexServices,
    obstacle: Option<&'static str>,
) -> Pool {
    let device = |kind: &str| {
        let attributes =
            [("type", AttributeValue::String(kind.to_owned())), ("id", AttributeValue::Int(0))];
        Device {
            name: format!("{kind}-0"),
            attributes: BTreeMap::from(attributes.map(|(name, value)| (name.to_owned(), value))),
            taints: owner_taint(owner).into_iter().chain(obstacle.map(imex_taint)).collect(),
            ..Device::default()
        }
    };
    let mut channel = device("channel");
    channel.allow_multiple = services == ImexServices::PerClique;
    let mut devices = vec![channel];
    if services != ImexServices::OfHost {
        devices.push(device("daemon"));
    }
    Pool { name: node.to_owned(), counters: Vec::new(), devices, plain: Vec::new() }
}

#[cfg(test)]
mod tests {
    use octavo_api::names::{NO_IMEX_SERVICE, TAINT_IMEX};

    use super::*;

    #[test]
    fn a_host_with_its_own_service_offers_no_daemon() {
        let names = |services| {
            let pool = pool("node", &Owner::default(), services, None);
            pool.devices.into_iter().map(|device| device.name).collect::<Vec<_>>()
        };
        assert_eq!(names(ImexServices::PerDomain), ["channel-0", "daemon-0"]);
        assert_eq!(names(ImexServices::OfHost), ["channel-0"]);
    }

    #[test]
    fn an_obstacle_keeps_claims_from_both_devices() {
        let pool = pool("node", &Owner::default(), ImexServices::PerDomain, Some(NO_IMEX_SERVICE));
        for device in pool.devices {
            let [taint] = device.taints.as_slice() else { panic!("{device:?}") };
            assert_eq!((&*taint.key, &*taint.value), (TAINT_IMEX, NO_IMEX_SERVICE));
        }
    }

    #[test]
    fn domains_that_share_a_clique_share_its_channel_device() {
        let shared = |services| {
            let pool = pool("node", &Owner::default(), services, None);
            pool.devices.into_iter().map(|device| device.allow_multiple).collect::<Vec<_>>()
        };
        assert_eq!(shared(ImexServices::PerClique), [true, false]);
        assert_eq!(shared(ImexServices::PerDomain), [false, false]);
    }
}
