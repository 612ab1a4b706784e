//! Volumes: exclusive disks, claims, and attach limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_kube_io::objects::{
    BindingMode, CsiCapacity, CsiDriver, CsiNode, LabelSelector, Owner, PersistentVolume,
    PodVolume, StorageClass, VolumeClaim, VolumeSource,
};
use octavo_testkit::Rng;

use super::{Draft, meta, node_filters, pick_some};

/// The node for which a claim's volume is provisioned.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

const ZONES: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// Disks of clouds.
pub(super) fn disks(rng: &mut Rng, draft: &mut Draft) {
    let kinds = [rng.word(&["gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"]), "iscsi"];
    for spec in draft.specs() {
        for index in 0..rng.below(3) {
            let kind = rng.word(&kinds);
            // These disks are never shared, read-only or not.
            let is_read_only = rng.chance(50) && kind != "awsElasticBlockStore";
            let id = rng.word(&["one", "two", "three"]).to_owned();
            let source = VolumeSource::Exclusive(kind.to_owned(), id, is_read_only);
            spec.volumes.push(PodVolume { name: format!("disk-{index}"), source });
        }
    }
}

/// Claims bound to volumes that some nodes do not reach, or not ready.
pub(super) fn claims(rng: &mut Rng, draft: &mut Draft) {
    node_filters::label(rng, draft);
    for node in &mut draft.case.nodes {
        for zone in ZONES {
            if rng.chance(30) {
                node.meta.labels.insert(zone.to_owned(), rng.word(&["a", "b"]).to_owned());
            }
        }
    }
    // Invalid claims are rare, because they decide for all nodes at once.
    use_claims(rng, draft, 92);
    for volume in &mut draft.case.volumes {
        if rng.chance(40) {
            volume.node_affinity = Some(node_filters::node_selector(rng));
        }
        for zone in ZONES {
            if rng.chance(20) {
                let value = rng.word(&["a", "b", "a__b", " a __ c ", "b__", "c"]);
                volume.meta.labels.insert(zone.to_owned(), value.to_owned());
            }
        }
    }
}

/// Claims whose volumes are chosen when the pod is placed.
pub(super) fn late_claims(rng: &mut Rng, draft: &mut Draft) {
    node_filters::label(rng, draft);
    use_claims(rng, draft, 99);
    let case = &mut draft.case;
    if case.classes.iter().any(|class| *class.meta.name.name == *"late") {
        return;
    }
    case.classes.push(StorageClass {
        meta: meta("", "late"),
        binding: BindingMode::WaitForFirstConsumer,
        provisioner: rng
            .word(&["csi.example", "csi.example", "kubernetes.io/no-provisioner"])
            .to_owned(),
        allowed_topologies: (0..rng.below(3)).map(|_| topology(rng)).collect(),
    });
    if rng.chance(60) {
        case.drivers
            .push(CsiDriver { meta: meta("", "csi.example"), has_capacity: rng.chance(70) });
    }
    for index in 0..rng.below(3) {
        let nodes = rng.chance(90).then(|| LabelSelector {
            labels: [("zone".to_owned(), rng.word(&["a", "b"]).to_owned())].into(),
            expressions: Vec::new(),
        });
        case.capacities.push(CsiCapacity {
            meta: meta("kube-system", &format!("capacity-{index}")),
            class: rng.word(&["late", "late", "now"]).to_owned(),
            nodes,
            most: *rng.pick(&[None, Some(1), Some(2), Some(2)]),
        });
    }
    let is_own = |claim: &VolumeClaim| claim.meta.owner.is_some();
    for claim in case.claims.iter_mut().filter(|claim| !is_own(claim)) {
        if !rng.chance(60) {
            continue;
        }
        claim.volume = None;
        claim.is_prebound = false;
        claim.class = Some("late".to_owned());
        claim.requested = *rng.pick(&[None, Some(1), Some(2), Some(3)]);
        claim.is_block = rng.chance(10);
        if rng.chance(20) {
            let labels = [("speed".to_owned(), rng.word(&["fast", "slow"]).to_owned())].into();
            claim.selector = Some(LabelSelector { labels, expressions: Vec::new() });
        }
        if rng.chance(20) {
            let node = rng.word(&["node-0", "node-1"]).to_owned();
            claim.meta.annotations.insert(SELECTED_NODE.to_owned(), node);
        }
    }
    for index in 0..rng.below(5) {
        let mut volume = PersistentVolume {
            meta: meta("", &format!("late-{index}")),
            capacity: *rng.pick(&[1, 2, 2, 3]),
            access_modes: vec![
                rng.word(&["ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany"]).to_owned(),
            ],
            class: Some(rng.word(&["late", "late", "late", "now"]).to_owned()),
            is_block: rng.chance(10),
            is_available: rng.chance(90),
            node_affinity: rng.chance(70).then(|| node_filters::node_selector(rng)),
            ..PersistentVolume::default()
        };
        if rng.chance(60) {
            volume.meta.labels.insert("speed".to_owned(), rng.word(&["fast", "slow"]).to_owned());
        }
        if rng.chance(20) {
            let claim = rng.pick(&case.claims);
            let uid = if rng.chance(50) { Arc::clone(&claim.meta.uid) } else { Arc::from("") };
            volume.claim = Some((claim.meta.name.clone(), uid));
        }
        if rng.chance(5) {
            volume.meta.deleted = Some(0);
        }
        case.volumes.push(volume);
    }
}

fn topology(rng: &mut Rng) -> Vec<(String, Vec<String>)> {
    let zones = pick_some(rng, &["a", "b", "c"], 2);
    let mut labels = vec![("zone".to_owned(), zones)];
    if rng.chance(20) {
        labels.push(("example.com/rack".to_owned(), vec![rng.word(&["1", "2"]).to_owned()]));
    }
    labels
}

/// Limits of drivers.
pub(super) fn limits(rng: &mut Rng, draft: &mut Draft) {
    use_claims(rng, draft, 99);
    for node in &draft.case.nodes {
        if rng.chance(95) && !draft.case.csi_nodes.iter().any(|one| one.meta.name == node.meta.name)
        {
            let drivers = ["csi.example", "csi.example", "csi.other", "csi.unused"];
            let drivers = drivers.iter().filter(|_| rng.chance(60)).copied().collect::<Vec<_>>();
            let limit = |rng: &mut Rng| *rng.pick(&[None, Some(0), Some(1), Some(1), Some(2)]);
            let limits = drivers.iter().map(|driver| ((*driver).to_owned(), limit(rng))).collect();
            let meta = meta("", &node.meta.name.name);
            draft.case.csi_nodes.push(CsiNode { meta, limits });
        }
    }
}

/// Creates claims and volumes once, and lets pods use them.
fn use_claims(rng: &mut Rng, draft: &mut Draft, percent_sound: usize) {
    if draft.case.classes.is_empty() {
        make_claims(rng, draft, percent_sound);
    }
    let case = &mut draft.case;
    let pods = std::iter::once(&case.pod).chain(&case.placed);
    let specs = std::iter::once(&mut draft.spec).chain(&mut draft.placed);
    for (pod, spec) in pods.zip(specs) {
        let mut names = BTreeSet::new();
        for index in 0..rng.below(3) {
            if rng.chance(20) {
                let volume = PodVolume { name: "own".to_owned(), source: VolumeSource::Ephemeral };
                if spec.volumes.contains(&volume) {
                    continue;
                }
                spec.volumes.push(volume);
                let name = format!("{}-own", pod.meta.name.name);
                let bound = rng.word(&["volume-0", "volume-1", "volume-2"]);
                // Running pods get only valid claims. A claim with another owner makes
                // kube-scheduler fail for every pod.
                let is_newcomer = *pod.meta.name.name == *"newcomer";
                let is_own = !is_newcomer || rng.chance(percent_sound);
                let uid = if is_own { &*pod.meta.uid } else { "another" };
                let mut claim = claim(&pod.meta.name.namespace, &name, bound);
                claim.meta.owner = Some(Owner { uid: Arc::from(uid), ..Owner::default() });
                case.claims.push(claim);
                continue;
            }
            let name = if rng.chance(percent_sound) { rng.word(&NAMES) } else { "missing" };
            if names.insert(name) {
                let source = VolumeSource::Claim(name.to_owned());
                spec.volumes.push(PodVolume { name: format!("data-{index}-{name}"), source });
            }
        }
        if rng.chance(10) {
            let source = VolumeSource::Csi("csi.example".to_owned());
            spec.volumes.push(PodVolume { name: format!("inline-{}", names.len()), source });
        }
    }
}

const NAMES: [&str; 4] = ["claim-0", "claim-1", "claim-2", "claim-3"];

fn make_claims(rng: &mut Rng, draft: &mut Draft, percent_sound: usize) {
    let case = &mut draft.case;
    case.classes.push(StorageClass {
        meta: meta("", "now"),
        binding: BindingMode::Immediate,
        provisioner: "csi.example".to_owned(),
        allowed_topologies: Vec::new(),
    });
    for index in 0..4 {
        let driver = rng.word(&["csi.example", "csi.example", "csi.other"]).to_owned();
        // Some are two volumes with one handle, which is attached once.
        let handle = rng.word(&["handle-0", "handle-1", "handle-2", "handle-3"]).to_owned();
        case.volumes.push(PersistentVolume {
            meta: meta("", &format!("volume-{index}")),
            node_affinity: None,
            csi: rng.chance(80).then_some((driver, handle)),
            ..PersistentVolume::default()
        });
    }
    for namespace in ["team-a", "team-b"] {
        for name in NAMES {
            let bound = rng.word(&["volume-0", "volume-1", "volume-2", "volume-3"]);
            let mut claim = claim(namespace, name, bound);
            if rng.chance(20) {
                claim.access_modes = vec!["ReadWriteOncePod".to_owned()];
            }
            if !rng.chance(percent_sound) {
                match rng.below(4) {
                    0 => (claim.volume, claim.is_prebound) = (None, false),
                    1 => (claim.volume, claim.is_prebound, claim.class) = (None, false, None),
                    2 => claim.meta.deleted = Some(0),
                    _ => claim.volume = Some("missing".to_owned()),
                }
            }
            case.claims.push(claim);
        }
    }
}

fn claim(namespace: &str, name: &str, volume: &str) -> VolumeClaim {
    VolumeClaim {
        meta: meta(namespace, name),
        volume: Some(volume.to_owned()),
        is_prebound: true,
        class: Some("now".to_owned()),
        access_modes: vec!["ReadWriteOnce".to_owned()],
        ..VolumeClaim::default()
    }
}
