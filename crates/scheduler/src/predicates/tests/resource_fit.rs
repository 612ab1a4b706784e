use std::sync::Arc;

use octavo_dra::ContainerKind;
use octavo_kube_io::objects::{Container, Pod, PodSpec, PodVolume, VolumeSource, WHOLE_POD};

use super::fixtures::{amounts, asking, container, csi_claim, limit, node, pod, port, using};
use crate::predicates::{Capacity, PodRequests, Unfit, Usage, Volumes, check_resource_fit};

fn cpu(pod: &Pod) -> i128 {
    PodRequests::of(pod).amounts.cpu
}

fn usage(pods: &[&Pod]) -> Usage {
    let mut usage = Usage::default();
    for pod in pods {
        usage.add(&PodRequests::of(pod));
    }
    usage
}

fn capacity(has: &[(&str, &str)]) -> Capacity {
    Capacity::of(&node("n", &[], has))
}

fn check(pod: &Pod, capacity: &Capacity, usage: &Usage) -> Result<(), Vec<Unfit>> {
    check_resource_fit(&PodRequests::of(pod), capacity, usage, &Volumes::default(), |_| false)
}

#[test]
fn init_container_counts_with_earlier_sidecars() {
    let kinds = [
        (ContainerKind::Init, "3"),
        (ContainerKind::Sidecar, "1"),
        (ContainerKind::Init, "5"),
        (ContainerKind::Main, "2"),
    ];
    let containers = kinds.map(|(kind, cpu)| container(kind, &[("cpu", cpu)])).to_vec();
    let spec = PodSpec { containers, ..PodSpec::default() };
    assert_eq!(cpu(&pod("p", spec.clone())), 6_000);
    let overhead = amounts(&[("cpu", "250m")]);
    assert_eq!(cpu(&pod("p", PodSpec { overhead, ..spec.clone() })), 6_250);
    let pod_requests = amounts(&[("cpu", "4"), ("nvidia.com/gpu", "9")]);
    let whole = pod("p", PodSpec { pod_requests, ..spec });
    assert_eq!(cpu(&whole), 4_000);
    assert_eq!(PodRequests::of(&whole).extended().count(), 0);
}

#[test]
fn allocated_amounts_count_during_resize_except_init_containers() {
    let kinds =
        [(ContainerKind::Init, "1"), (ContainerKind::Sidecar, "1"), (ContainerKind::Main, "2")];
    let containers = (0..).zip(kinds).map(|(number, (kind, cpu))| Container {
        name: format!("c{number}"),
        ..container(kind, &[("cpu", cpu)])
    });
    let spec = PodSpec { containers: containers.collect(), ..PodSpec::default() };
    let held = |list: &[(&str, &str)]| {
        let held = list.iter().map(|(name, cpu)| ((*name).to_owned(), amounts(&[("cpu", *cpu)])));
        Pod { held: held.collect(), ..pod("p", spec.clone()) }
    };
    assert_eq!(cpu(&held(&[("c1", "2"), ("c2", "4")])), 6_000);
    assert_eq!(cpu(&held(&[("c0", "9")])), 3_000);
    // During an infeasible resize the lower amount counts.
    assert_eq!(cpu(&held(&[("c2", "1")])), 2_000);
    // Pod-level amounts count only for resources with a pod-level request.
    assert_eq!(cpu(&held(&[(WHOLE_POD, "8")])), 3_000);
    let mut whole = held(&[(WHOLE_POD, "8")]);
    Arc::make_mut(&mut whole.spec).pod_requests = amounts(&[("cpu", "5")]);
    assert_eq!(cpu(&whole), 8_000);
}

#[test]
fn fractions_are_rounded_up_after_summing() {
    let containers =
        vec![container(ContainerKind::Main, &[("cpu", "100u"), ("memory", "100m")]); 3];
    let footprint = PodRequests::of(&pod("p", PodSpec { containers, ..PodSpec::default() }));
    assert_eq!((footprint.amounts.cpu, footprint.amounts.memory), (1, 1));
}

#[test]
fn every_shortage_has_its_figures() {
    let capacity =
        capacity(&[("cpu", "4"), ("memory", "8Gi"), ("pods", "1"), ("nvidia.com/gpu", "2")]);
    let runs = asking("a", &[("cpu", "3"), ("nvidia.com/gpu", "2")]);
    let comes = asking("b", &[("cpu", "2"), ("nvidia.com/gpu", "1"), ("memory", "1Gi")]);
    let reasons = check(&comes, &capacity, &usage(&[&runs])).unwrap_err();
    let insufficient = |resource: &str, requested, used, capacity| Unfit::Insufficient {
        resource: resource.into(),
        requested,
        used,
        capacity,
    };
    let gpus = insufficient("nvidia.com/gpu", 1, 2, 2);
    let cpu = insufficient("cpu", 2_000, 3_000, 4_000);
    assert!(gpus.could_preemption_help() && cpu.could_preemption_help());
    assert_eq!(reasons, [Unfit::Pods { capacity: 1 }, cpu, gpus]);
    assert!(!insufficient("cpu", 5_000, 0, 4_000).could_preemption_help());
}

#[test]
fn device_class_serves_a_resource_only_without_a_plugin() {
    let comes = asking("b", &[("nvidia.com/gpu", "1")]);
    let footprint = PodRequests::of(&comes);
    assert_eq!(footprint.extended().collect::<Vec<_>>(), [("nvidia.com/gpu", 1)]);
    let has_class = |name: &str| name == "nvidia.com/gpu";
    let room = |capacity: &Capacity, usage: &Usage| {
        check_resource_fit(&footprint, capacity, usage, &Volumes::default(), has_class).is_ok()
    };
    let (without, with) =
        (capacity(&[("pods", "9")]), capacity(&[("pods", "9"), ("nvidia.com/gpu", "1")]));
    assert!(room(&without, &Usage::default()));
    assert!(check(&comes, &without, &Usage::default()).is_err());
    assert!(room(&with, &Usage::default()));
    assert!(!room(&with, &usage(&[&comes])));
}

#[test]
fn host_port_conflicts_are_found() {
    let with = |name: &str, ip: &str| {
        let mut container = container(ContainerKind::Main, &[]);
        container.ports = vec![port(ip, 80)];
        pod(name, PodSpec { containers: vec![container], ..PodSpec::default() })
    };
    let capacity = capacity(&[("pods", "9")]);
    let (all, one, other) = (with("a", "0.0.0.0"), with("b", "10.0.0.1"), with("c", "10.0.0.2"));
    assert!(check(&one, &capacity, &usage(&[&all])).is_err());
    assert!(check(&all, &capacity, &usage(&[&one])).is_err());
    assert!(check(&one, &capacity, &usage(&[&other])).is_ok());
}

#[test]
fn disk_is_shared_by_read_only_pods() {
    let with = |is_read_only: bool| {
        let source = VolumeSource::Exclusive("gcePersistentDisk".into(), "d".into(), is_read_only);
        let volumes = vec![PodVolume { name: "v".to_owned(), source }];
        pod("p", PodSpec { volumes, ..PodSpec::default() })
    };
    let capacity = capacity(&[("pods", "9")]);
    assert!(check(&with(true), &capacity, &usage(&[&with(true)])).is_ok());
    assert!(check(&with(false), &capacity, &usage(&[&with(true)])).is_err());
}

#[test]
fn attached_volume_is_not_counted_twice() {
    let mut volumes = Volumes::default();
    for name in ["one", "two"] {
        csi_claim(&mut volumes, name, "csi.example");
    }
    limit(&mut volumes, "n", "csi.example", 1);
    let capacity = capacity(&[("pods", "9")]);
    let check = |claim: &str, usage: &Usage| {
        check_resource_fit(&PodRequests::of(&using("p", claim)), &capacity, usage, &volumes, |_| {
            false
        })
    };
    let there = usage(&[&using("q", "one")]);
    assert_eq!(check("one", &there), Ok(()));
    let driver = "csi.example".to_owned();
    assert_eq!(check("two", &there), Err(vec![Unfit::VolumeLimit { driver, limit: 1 }]));
    assert_eq!(check("two", &Usage::default()), Ok(()));
}

#[test]
fn adding_and_removing_a_pod_leaves_no_usage() {
    let mut ported = container(ContainerKind::Main, &[("cpu", "1"), ("nvidia.com/gpu", "2")]);
    ported.ports = vec![port("0.0.0.0", 80)];
    let disk = VolumeSource::Exclusive("iscsi".into(), "d".into(), false);
    let volumes = [VolumeSource::Claim("c".to_owned()), disk, VolumeSource::Ephemeral];
    let volumes = volumes.map(|source| PodVolume { name: "v".to_owned(), source }).to_vec();
    let spec = PodSpec { containers: vec![ported], volumes, ..PodSpec::default() };
    let (one, other) = (pod("one", spec.clone()), pod("other", spec));
    let (a, b) = (PodRequests::of(&one), PodRequests::of(&other));
    assert_eq!(a.claims.iter().map(|claim| &*claim.name).collect::<Vec<_>>(), ["c", "one-v"]);
    let mut usage = Usage::default();
    usage.add(&a);
    let alone = usage.clone();
    usage.add(&b);
    usage.remove(&a);
    usage.add(&a);
    usage.remove(&b);
    assert_eq!(usage, alone);
    usage.remove(&a);
    assert_eq!(usage, Usage::default());
}
