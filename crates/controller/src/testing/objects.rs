//! Objects of tests.

use octavo_api::imex::ImexServices;
use octavo_api::names::LABEL_COMPUTE_DOMAIN;

use crate::config::Config;
use crate::store::{Change, KINDS, Store};
use crate::view::{ChannelClaim, DaemonPod, Domain, OwnedKind, OwnedObject};

/// A config with four slots a clique.
pub(crate) fn config() -> Config {
    let mut config = Config {
        namespace: "octavo".to_owned(),
        max_nodes_per_imex_domain: 4,
        ..Config::default()
    };
    config.daemon.image = "image".to_owned();
    config
}

/// A domain with the controller's finalizer, in namespace `team`. Its template is named as it is.
pub(crate) fn domain(uid: &str) -> Domain {
    Domain {
        uid: uid.to_owned(),
        namespace: "team".to_owned(),
        name: format!("domain-{uid}"),
        generation: Some(1),
        finalizers: vec![LABEL_COMPUTE_DOMAIN.to_owned()],
        template: format!("template-{uid}"),
        ..Domain::default()
    }
}

/// A claim of namespace `team` with a channel of a node.
pub(crate) fn claim(domain: &str, node: &str) -> ChannelClaim {
    ChannelClaim {
        uid: format!("claim-{domain}-{node}"),
        namespace: "team".to_owned(),
        name: format!("claim-{domain}-{node}"),
        node: node.to_owned(),
        domain: domain.to_owned(),
        is_annotated: true,
        pods: Vec::new(),
    }
}

/// A daemon's pod that is ready.
pub(crate) fn pod(domain: &str, node: &str, ip: &str) -> DaemonPod {
    DaemonPod {
        domain: domain.to_owned(),
        node: node.to_owned(),
        ip: ip.to_owned(),
        is_ready: true,
        is_lost: false,
        is_deleting: false,
        secret: None,
    }
}

/// An object with a domain's label, or without.
pub(crate) fn object(
    kind: OwnedKind,
    namespace: &str,
    name: &str,
    domain: Option<&str>,
) -> OwnedObject {
    OwnedObject {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: String::new(),
        resource_version: String::new(),
        domain: domain.map(str::to_owned),
        hash: None,
        finalizers: Vec::new(),
        is_deleting: false,
    }
}

/// A store that has read all changes.
pub(crate) fn read(changes: impl IntoIterator<Item = Change>) -> Store {
    read_with(ImexServices::PerDomain, changes)
}

/// The same, for these IMEX services.
pub(crate) fn read_with(
    services: ImexServices,
    changes: impl IntoIterator<Item = Change>,
) -> Store {
    let mut store = Store::new(services);
    for kind in KINDS {
        store.apply(Change::Begin(kind));
        store.apply(Change::End(kind));
    }
    for change in changes {
        store.apply(change);
    }
    store
}
