//! Small objects for the tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::{ContainerKind, Quantity};
use octavo_kube_io::objects::{
    AffinityTerm, BindingMode, Change, Container, CsiNode, Delta, HostPort, LabelSelector, Meta,
    Node, ObjectName, PersistentVolume, Pod, PodSpec, PodVolume, StorageClass, VolumeClaim,
    VolumeSource,
};

use crate::predicates::Volumes;

pub(super) fn amounts(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    list.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
}

pub(super) fn labels(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn meta(namespace: &str, name: &str) -> Meta {
    Meta { name: ObjectName::new(namespace, name), uid: Arc::from(name), ..Meta::default() }
}

pub(super) fn node(name: &str, with: &[(&str, &str)], has: &[(&str, &str)]) -> Arc<Node> {
    Arc::new(Node {
        meta: Meta { labels: labels(with), ..meta("", name) },
        allocatable: amounts(has),
        ..Node::default()
    })
}

pub(super) fn container(kind: ContainerKind, requests: &[(&str, &str)]) -> Container {
    Container {
        name: "c".to_owned(),
        kind,
        requests: amounts(requests),
        ports: Vec::new(),
        claims: Vec::new(),
    }
}

pub(super) fn port(ip: &str, port: u16) -> HostPort {
    HostPort { ip: ip.to_owned(), protocol: "TCP".to_owned(), port }
}

/// A pod of the namespace `team`.
pub(super) fn pod(name: &str, spec: PodSpec) -> Pod {
    Pod { meta: meta("team", name), spec: Arc::new(spec), ..Pod::default() }
}

/// A pod with these requests.
pub(super) fn asking(name: &str, requests: &[(&str, &str)]) -> Pod {
    let containers = vec![container(ContainerKind::Main, requests)];
    pod(name, PodSpec { containers, ..PodSpec::default() })
}

/// A pod that uses a claim.
pub(super) fn using(name: &str, claim: &str) -> Pod {
    let source = VolumeSource::Claim(claim.to_owned());
    let volumes = vec![PodVolume { name: "data".to_owned(), source }];
    pod(name, PodSpec { volumes, ..PodSpec::default() })
}

/// Anti-affinity to pods with this label, in the pod's own namespace.
pub(super) fn apart(key: &str, value: &str, topology_key: &str) -> AffinityTerm {
    let selector = LabelSelector { labels: labels(&[(key, value)]), expressions: Vec::new() };
    AffinityTerm {
        selector: Some(selector),
        namespaces: Vec::new(),
        namespace_selector: None,
        topology_key: topology_key.to_owned(),
    }
}

pub(super) fn set_claim(volumes: &mut Volumes, claim: VolumeClaim) {
    assert!(volumes.apply(&Change::VolumeClaim(Delta::Upsert(Arc::new(claim)))));
}

/// A claim of the namespace `team`, bound to a volume of the same name, or not bound.
pub(super) fn claim(name: &str, is_bound: bool, modes: &[&str], class: &str) -> VolumeClaim {
    VolumeClaim {
        meta: meta("team", name),
        volume: is_bound.then(|| name.to_owned()),
        is_prebound: is_bound,
        class: Some(class.to_owned()),
        access_modes: modes.iter().map(|mode| (*mode).to_owned()).collect(),
        ..VolumeClaim::default()
    }
}

/// A claim bound to a CSI volume with its own name as handle.
pub(super) fn csi_claim(volumes: &mut Volumes, name: &str, driver: &str) {
    set_claim(volumes, claim(name, true, &[], "disks"));
    let volume = PersistentVolume {
        meta: meta("", name),
        csi: Some((driver.to_owned(), name.to_owned())),
        ..PersistentVolume::default()
    };
    assert!(volumes.apply(&Change::Volume(Delta::Upsert(Arc::new(volume)))));
}

pub(super) fn class(volumes: &mut Volumes, name: &str, binding: BindingMode) {
    let class = StorageClass {
        meta: meta("", name),
        binding,
        provisioner: "csi.example".to_owned(),
        allowed_topologies: Vec::new(),
    };
    assert!(volumes.apply(&Change::StorageClass(Delta::Upsert(Arc::new(class)))));
}

pub(super) fn limit(volumes: &mut Volumes, node: &str, driver: &str, limit: u32) {
    let limits = [(driver.to_owned(), Some(limit))].into();
    let node = CsiNode { meta: meta("", node), limits };
    assert!(volumes.apply(&Change::CsiNode(Delta::Upsert(Arc::new(node)))));
}
