//! Where an ask is exact, the engine has capacity exactly where the allocator has devices, and the
//! allocator takes what the engine chose.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::Request;
use octavo_engine::node::NodeClass;
use octavo_engine::{Cluster, NodeId, NodeSpec, Placement, Resources, Shape, fit, pick};
use proptest::prelude::*;

use super::fixtures::{MIG, PLAIN, cluster, instances, pod, shares, whole};
use crate::devices::{Ask, Devices};

/// The node in the engine, with its holdings.
fn engine(devices: &Devices, node: &str) -> Cluster {
    let gpus = devices.gpus(node).unwrap();
    let class = NodeClass {
        gpus: u16::try_from(gpus.devices.gpus.len()).unwrap(),
        model: gpus.model,
        links: gpus.devices.links.clone(),
        ..NodeClass::default()
    };
    let spec = NodeSpec { name: node.into(), class, labels: BTreeMap::new() };
    let mut cluster = Cluster::new(devices.models().to_vec(), vec![spec]).unwrap();
    for held in devices.held(node) {
        assert_eq!(held.others, 0);
        let placement = Placement { node: NodeId(0), gpus: held.parts };
        cluster.place(&Resources::default(), &placement).unwrap();
    }
    for (index, gpu) in (0..).zip(&gpus.devices.gpus) {
        if gpu.is_closed {
            cluster.set_gpu_open(NodeId(0), index, false).unwrap();
        }
    }
    cluster
}

fn shape(ask: &Ask) -> Shape {
    Shape { models: ask.models, ..Shape::new(Resources::default(), ask.demand.clone()) }
}

fn requests(kind: usize) -> Vec<Request> {
    match kind % 13 {
        0 => whole(1),
        1 => whole(2),
        2 => whole(5),
        3 => shares(1, "12.5", "10Gi"),
        4 => shares(1, "50", "5Gi"),
        5 => shares(2, "30", "30Gi"),
        6 => shares(1, "0", "20Gi"),
        7 => instances(1, "1g.10gb"),
        8 => instances(1, "2g.20gb"),
        9 => instances(3, "1g.20gb"),
        10 => instances(1, "3g.40gb"),
        11 => instances(1, "1g.10gb+me"),
        _ => instances(2, "4g.40gb"),
    }
}

/// Places pods of a kind one by one until both sides refuse. Returns their number.
fn fill(devices: &mut Devices, kind: usize, is_chosen: bool) -> u32 {
    let mut count = 0;
    let mut foretold = None;
    loop {
        let (pod, claim) = pod(&format!("fill{count}"), requests(kind));
        devices.see(&claim);
        let ask = devices.ask(&pod).unwrap();
        assert!(ask.is_exact, "{:?}", ask.demand);
        let engine = engine(devices, "n");
        let shape = shape(&ask);
        let state = engine.states().state(engine.state(NodeId(0))).unwrap();
        foretold = foretold.or(Some(fit::times(&engine, state, &shape)));
        let chosen = pick::default_placement(&engine, NodeId(0), &shape);
        let wanted = chosen.as_ref().map(|placement| placement.gpus.as_slice());
        let pod_allocation = devices.allocate(&ask, "n", wanted.filter(|_| is_chosen));
        assert_eq!(chosen.is_some(), pod_allocation.is_ok(), "{:?} {pod_allocation:?}", ask.demand);
        let Ok(pod_allocation) = pod_allocation else { break };
        if is_chosen && let Some(chosen) = chosen {
            let mut wanted = chosen.gpus;
            wanted.sort_unstable();
            assert_eq!(wanted, pod_allocation.parts);
        }
        assert_eq!(pod_allocation.parts.len(), usize::from(ask.demand.count()));
        devices.assume(&pod_allocation);
        count += 1;
    }
    // The maximum for groups of several shares does not predict how many fit one by one.
    let is_team = kind == 5;
    if is_chosen && !is_team {
        assert_eq!(foretold, Some(count));
    }
    count
}

#[test]
fn empty_node_fits_exactly_its_capacity() {
    for (kind, plain, mig) in [
        (0, 8, 3),
        (1, 4, 1),
        (2, 1, 0),
        (3, 7 * 8, 7 * 3),
        (6, 3 * 8, 3 * 3),
        (7, 0, 21),
        (10, 0, 6),
        (11, 0, 3),
    ] {
        assert_eq!(fill(&mut cluster(&[("n", PLAIN)]), kind, true), plain, "{kind}");
        assert_eq!(fill(&mut cluster(&[("n", MIG)]), kind, true), mig, "{kind}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn engine_and_allocator_agree_beside_any_holdings(
        held in prop::collection::vec(0_usize..13, 0..12),
        gone in prop::collection::vec(0_usize..12, 0..4),
        kind in 0_usize..13,
        is_cut in any::<bool>(),
        is_chosen in any::<bool>(),
    ) {
        let mut devices = cluster(&[("n", if is_cut { MIG } else { PLAIN })]);
        for (index, kind) in held.into_iter().enumerate() {
            devices.place(&pod(&format!("held{index}"), requests(kind)), "n");
        }
        for index in gone {
            devices.forget(&format!("held{index}"));
        }
        fill(&mut devices, kind, is_chosen);
    }
}

#[test]
fn closed_gpus_are_closed_to_engine_and_allocator() {
    let mut devices = cluster(&[("n", MIG)]);
    for slice in super::fixtures::slices(MIG, "n") {
        let tainted = super::fixtures::changed(&slice, |slice| {
            for device in &mut slice.devices {
                if device.name.starts_with("gpu-1") {
                    device.taints.push(octavo_dra::DeviceTaint {
                        key: "gpu.nvidia.com/xid".to_owned(),
                        value: "79".to_owned(),
                        effect: octavo_dra::TaintEffect::NoExecute,
                    });
                }
            }
        });
        devices.apply_slices(&octavo_kube_io::objects::Delta::Upsert(Arc::clone(&tainted)));
    }
    assert_eq!(fill(&mut devices, 7, true), 14);
    devices.apply_claims(&octavo_kube_io::objects::Delta::Replace(
        octavo_kube_io::objects::Kind::default(),
        Vec::new(),
    ));
    assert_eq!(fill(&mut devices, 0, true), 2);
}
