//! What pods ask for, and why they cannot be served.

use std::sync::Arc;

use octavo_dra::{Constraint, Rule, Toleration};
use octavo_engine::GpuDemand;
use octavo_engine::gpu::ModelSet;
use octavo_kube_io::objects::{Delta, Kind, Pod, PodClaim, PodSpec};

use super::fixtures::{
    MIG, MIXED, PLAIN, changed, claim, cluster, extended_pod, from_template, instances, meta, node,
    pod, request, selecting, shares, slices, whole, with,
};
use crate::devices::{AskError, Devices, PodAllocationError};

fn asked(devices: &mut Devices, requests: Vec<octavo_dra::Request>) -> (GpuDemand, ModelSet, bool) {
    let (pod, claim) = pod("p", requests);
    devices.see(&claim);
    let ask = devices.ask(&pod).unwrap();
    (ask.demand, ask.models, ask.is_exact)
}

#[test]
fn claims_become_engine_demands() {
    let mut devices = cluster(&[("a", PLAIN), ("b", MIG)]);
    let both = ModelSet(0b11);
    assert_eq!(asked(&mut devices, whole(3)), (GpuDemand::Whole { count: 3 }, both, true));
    let share = GpuDemand::Share { count: 2, milli: 125, memory_mib: 10 << 10 };
    assert_eq!(asked(&mut devices, shares(2, "12.5", "10Gi")), (share, both, true));
    let mig = GpuDemand::Mig { count: 2, profile: "1g.10gb".into() };
    assert_eq!(asked(&mut devices, instances(2, "1g.10gb")), (mig, ModelSet(0b10), true));
    let two = vec![request("x", "gpu.nvidia.com", 1), request("y", "gpu.nvidia.com", 2)];
    assert_eq!(asked(&mut devices, two), (GpuDemand::Whole { count: 3 }, both, true));
}

#[test]
fn unmodeled_requests_make_the_demand_a_minimum() {
    let mut devices = cluster(&[("a", PLAIN), ("b", PLAIN)]);
    // Only some of a model's GPUs.
    let few = "device.attributes['gpu.nvidia.com'].uuid.endsWith('0')";
    let (demand, _, is_exact) = asked(&mut devices, selecting(few));
    assert_eq!((demand, is_exact), (GpuDemand::Whole { count: 1 }, false));
    // MIG on some GPUs of a node.
    let mut mixed = cluster(&[("a", MIXED)]);
    let (demand, _, is_exact) = asked(&mut mixed, instances(1, "1g.10gb"));
    assert!(matches!(demand, GpuDemand::Mig { .. }) && !is_exact);
    assert!(asked(&mut mixed, whole(1)).2);
    // Constraints.
    let (pod, mut claim) = pod("q", whole(2));
    let rule = Rule::Match("resource.kubernetes.io/pcieRoot".to_owned());
    Arc::make_mut(&mut claim).claim.constraints = vec![Constraint { requests: Vec::new(), rule }];
    devices.see(&claim);
    let ask = devices.ask(&pod).unwrap();
    assert_eq!((&ask.demand, ask.is_exact), (&GpuDemand::Whole { count: 2 }, false));
    // Shares of two requests may lie on one GPU.
    let mut two = [shares(1, "30", "1Gi"), shares(1, "30", "1Gi")].concat();
    two[1].name = "other".to_owned();
    let (demand, _, is_exact) = asked(&mut devices, two);
    assert_eq!((demand.count(), is_exact), (1, false));
    // All compute with part of the memory leaves room for best-effort shares.
    let (demand, _, is_exact) = asked(&mut devices, shares(1, "100", "1Gi"));
    assert_eq!((demand, is_exact), (GpuDemand::None, false));
    // Alternatives.
    let list = vec![octavo_dra::Request {
        name: "any".to_owned(),
        ask: octavo_dra::Ask::FirstAvailable(vec![]),
    }];
    let (demand, _, is_exact) = asked(&mut devices, list);
    assert_eq!((demand, is_exact), (GpuDemand::None, false));
}

#[test]
fn unavailable_devices_are_rejected_by_the_engine() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let (demand, models, is_exact) = asked(&mut devices, instances(1, "1g.10gb"));
    assert!(demand.is_some() && models == ModelSet(0) && is_exact);
    // New hardware is found.
    for slice in slices(MIG, "b") {
        devices.apply_slices(&Delta::Upsert(slice));
    }
    let (demand, models, is_exact) = asked(&mut devices, instances(1, "1g.10gb"));
    assert_eq!(demand, GpuDemand::Mig { count: 1, profile: "1g.10gb".into() });
    assert!(is_exact && models != ModelSet(0));
}

#[test]
fn failing_selector_is_left_to_the_allocator() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let broken = "device.attributes['gpu.nvidia.com'].nothing == 'x'";
    let (pod, claim) = pod("p", selecting(broken));
    devices.see(&claim);
    let ask = devices.ask(&pod).unwrap();
    assert_eq!((&ask.demand, ask.is_exact), (&GpuDemand::None, false));
    let refused = devices.allocate(&ask, "a", None).unwrap_err();
    assert!(refused.to_string().contains("nothing"), "{refused}");
}

#[test]
fn too_costly_selectors_are_rejected_without_running_on_all_nodes() {
    let loops = |depth: u32| {
        (0..depth).fold("true".to_owned(), |inner, level| {
            format!("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(n{level}, {inner})")
        })
    };
    let mut devices = cluster(&[("a", PLAIN), ("b", PLAIN)]);
    let (cheap, claim) = pod("cheap", selecting(&loops(2)));
    devices.see(&claim);
    assert!(devices.ask(&cheap).unwrap().is_exact);
    let (costly, claim) = pod("dear", selecting(&loops(5)));
    devices.see(&claim);
    let refused = devices.ask(&costly).unwrap_err();
    assert!(matches!(refused, AskError::TooCostly { .. }), "{refused}");
    assert!(refused.to_string().contains("request gpu: its CEL selectors cost"), "{refused}");
    // The cost is checked again after the hardware changed.
    devices.apply_slices(&Delta::Delete(slices(PLAIN, "a").remove(0)));
    devices.apply_slices(&Delta::Delete(slices(PLAIN, "b").remove(0)));
    assert!(devices.ask(&costly).is_ok(), "no device is left to run it on");
    for slice in slices(PLAIN, "a") {
        devices.apply_slices(&Delta::Upsert(slice));
    }
    assert!(devices.ask(&costly).is_err());
    // An alternative is rejected too.
    let [one] = <[_; 1]>::try_from(selecting(&loops(5))).unwrap();
    let octavo_dra::Ask::Exactly(one) = one.ask else { panic!("one kind is asked for") };
    let all = octavo_dra::Ask::FirstAvailable(vec![("large".to_owned(), one)]);
    let list = vec![octavo_dra::Request { name: "any".to_owned(), ask: all }];
    let (any, claim) = pod("any", list);
    devices.see(&claim);
    let refused = devices.ask(&any).unwrap_err();
    assert!(refused.to_string().contains("request any/large"), "{refused}");
}

#[test]
fn tolerations_open_tainted_devices() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let sick = changed(&slices(PLAIN, "a")[0], |slice| {
        slice.devices[2].taints.push(octavo_dra::DeviceTaint {
            key: "gpu.nvidia.com/xid".to_owned(),
            value: "79".to_owned(),
            effect: octavo_dra::TaintEffect::NoSchedule,
        });
    });
    devices.apply_slices(&Delta::Upsert(sick));
    assert!(asked(&mut devices, whole(8)).2);
    let toleration = Toleration { key: None, value: None, effect: None, seconds: None };
    let tolerant =
        vec![with(request("gpu", "gpu.nvidia.com", 8), |ask| ask.tolerations = vec![toleration])];
    let (pod, claim) = pod("p", tolerant);
    devices.see(&claim);
    let ask = devices.ask(&pod).unwrap();
    assert!(!ask.is_exact && !ask.demand.is_some());
    assert_eq!(devices.allocate(&ask, "a", None).unwrap().parts.len(), 8);
}

#[test]
fn missing_claims_are_named() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let (mut pod, own) = pod("p", whole(1));
    let is = |devices: &Devices, pod: &Pod, wanted: &str| {
        let error = devices.ask(pod).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        error.is_transient()
    };
    assert!(!is(&devices, &pod, "no ResourceClaim ns/p-claim"));
    let made = std::mem::take(&mut pod.claims);
    assert!(is(&devices, &pod, "not created from its template"));
    pod.claims = made;
    let mut deleted = octavo_kube_io::objects::Claim::clone(&own);
    deleted.meta.deleted = Some(1);
    devices.see(&Arc::new(deleted));
    assert!(is(&devices, &pod, "being deleted"));
    let mut foreign = octavo_kube_io::objects::Claim::clone(&own);
    foreign.meta.owner.as_mut().unwrap().uid = "another".into();
    devices.see(&Arc::new(foreign));
    assert!(!is(&devices, &pod, "not created for this pod"));
    devices.see(&own);
    assert!(devices.ask(&pod).is_ok());
    let unknown = claim("p-claim", vec![request("gpu", "nobody", 1)]);
    let mut unknown = octavo_kube_io::objects::Claim::clone(&unknown);
    unknown.meta.owner = own.meta.owner.clone();
    devices.see(&Arc::new(unknown));
    assert!(!is(&devices, &pod, "no device class nobody"));
    // A claim that is not needed does not count.
    pod.claims = [("c".to_owned(), None)].into();
    let ask = devices.ask(&pod).unwrap();
    assert!(ask.is_empty() && ask.is_exact);
}

#[test]
fn binding_conditions_are_rejected_by_name() {
    let mut devices = cluster(&[]);
    let change = |slice: &mut octavo_dra::Slice, some: usize| {
        for device in slice.devices.iter_mut().take(some) {
            device.binding_conditions = vec!["attached".to_owned()];
        }
    };
    let all = changed(&slices(PLAIN, "a")[0], |slice| change(slice, 8));
    devices.apply_slices(&Delta::Upsert(all));
    let (pod, claim) = pod("p", whole(1));
    devices.see(&claim);
    let refused = devices.ask(&pod).unwrap_err();
    assert!(matches!(refused, AskError::BindingConditions { .. }), "{refused}");
    // Other matching devices are allocated.
    let few = changed(&slices(PLAIN, "a")[0], |slice| change(slice, 7));
    devices.apply_slices(&Delta::Upsert(few));
    let ask = devices.ask(&pod).unwrap();
    assert!(!ask.is_exact);
    assert_eq!(devices.allocate(&ask, "a", None).unwrap().parts[0].gpu, 7);
}

#[test]
fn extended_resources_come_from_classes_and_plugins() {
    let mut devices = cluster(&[("dra", PLAIN)]);
    devices.apply_nodes(&Delta::Upsert(node("plugin", &[("nvidia.com/gpu", 4)])));
    let pod = extended_pod("p", "nvidia.com/gpu", 2);
    let ask = devices.ask(&pod).unwrap();
    assert_eq!((&ask.demand, ask.is_exact), (&GpuDemand::Whole { count: 2 }, true));
    let models = ["dra", "plugin"].map(|node| devices.gpus(node).unwrap().model);
    assert!(models.iter().all(|model| ask.models.has(*model)));
    let pod_allocation = devices.allocate(&ask, "dra", None).unwrap();
    assert_eq!(pod_allocation.extended.unwrap().claim.requests[0].name, "container-0-request-0");
    assert_eq!(pod_allocation.parts.len(), 2);
    // On that node it is a plain amount, and nothing is written.
    let pod_allocation = devices.allocate(&ask, "plugin", None).unwrap();
    assert!(pod_allocation.extended.is_none() && pod_allocation.parts.is_empty());
    // A claim beside it cannot be allocated on that node.
    let (both, own) = super::fixtures::pod("both", whole(1));
    let mut both = both;
    Arc::make_mut(&mut both.spec).containers = pod.spec.containers.clone();
    devices.see(&own);
    let ask = devices.ask(&both).unwrap();
    assert!(!ask.is_exact);
    assert!(devices.allocate(&ask, "plugin", None).is_err());
    assert_eq!(devices.allocate(&ask, "dra", None).unwrap().parts.len(), 3);
    // Without a class only device plugins serve it.
    devices.apply_classes(&Delta::Replace(Kind::default(), Vec::new()));
    let ask = devices.ask(&pod).unwrap();
    assert_eq!(
        (&ask.demand, ask.models),
        (&GpuDemand::Whole { count: 2 }, devices.models.plugin_models())
    );
    assert!(ask.is_exact && ask.extended.is_empty());
}

#[test]
fn claims_of_a_pod_are_allocated_all_or_none() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let (one, two) = (claim("one", whole(5)), claim("two", whole(4)));
    devices.see(&one);
    devices.see(&two);
    let named = |name: &str| PodClaim {
        claim: Some(name.to_owned()),
        template: None,
        ..from_template(name)
    };
    let spec = Arc::new(PodSpec { claims: vec![named("one"), named("two")], ..PodSpec::default() });
    let pod = Pod { meta: meta("p", "p"), spec, ..Pod::default() };
    let ask = devices.ask(&pod).unwrap();
    assert_eq!(ask.demand, GpuDemand::Whole { count: 9 });
    assert!(matches!(devices.allocate(&ask, "a", None), Err(PodAllocationError::Refused(_))));
    devices.see(&claim("two", whole(3)));
    let ask = devices.ask(&pod).unwrap();
    let pod_allocation = devices.allocate(&ask, "a", None).unwrap();
    assert_eq!((pod_allocation.claims.len(), pod_allocation.parts.len()), (2, 8));
}

#[test]
fn shared_devices_are_visible_on_each_node() {
    let mut devices = cluster(&[("a", PLAIN), ("b", PLAIN)]);
    let label = |name: &str, value: &str| {
        let mut node = node(name, &[]);
        Arc::make_mut(&mut node).meta.labels = [("rack".to_owned(), value.to_owned())].into();
        node
    };
    devices.apply_nodes(&Delta::Upsert(label("a", "r1")));
    devices.apply_nodes(&Delta::Upsert(label("b", "r2")));
    let shared = changed(&slices(PLAIN, "none")[0], |slice| {
        slice.driver = "nic.example".to_owned();
        slice.pool = "rack".to_owned();
        slice.devices.truncate(1);
        let requirement = octavo_dra::NodeRequirement {
            key: "rack".to_owned(),
            operator: octavo_dra::NodeOperator::In,
            values: vec!["r1".to_owned()],
        };
        let term = octavo_dra::NodeSelectorTerm { labels: vec![requirement], fields: Vec::new() };
        slice.nodes =
            octavo_dra::NodeScope::Selector(octavo_dra::NodeSelector { terms: vec![term] });
    });
    devices.apply_slices(&Delta::Upsert(shared));
    let nic = octavo_dra::Class {
        name: "nic".to_owned(),
        selectors: vec!["device.driver == 'nic.example'".to_owned()],
        extended_resource: None,
    };
    let class = octavo_kube_io::objects::DeviceClass {
        meta: meta("nic", "nic"),
        class: nic,
        ..Default::default()
    };
    devices.apply_classes(&Delta::Upsert(Arc::new(class)));
    let (first, own) = pod("p", vec![request("nic", "nic", 1)]);
    devices.see(&own);
    let ask = devices.ask(&first).unwrap();
    assert!(!ask.is_exact && !ask.demand.is_some());
    assert!(devices.allocate(&ask, "b", None).is_err());
    let pod_allocation = devices.allocate(&ask, "a", None).unwrap();
    let touched = devices.assume(&pod_allocation);
    assert!(touched.is_shared_pool_touched);
    devices.apply_nodes(&Delta::Upsert(label("b", "r1")));
    let (second, own) = pod("q", vec![request("nic", "nic", 1)]);
    devices.see(&own);
    let ask = devices.ask(&second).unwrap();
    assert!(devices.allocate(&ask, "b", None).is_err(), "the other pod has it");
    devices.forget("p");
    assert!(devices.allocate(&ask, "b", None).is_ok());
}

#[test]
fn count_all_ignores_the_engines_choice() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let count = octavo_dra::Count::All;
    let all = vec![with(request("gpu", "gpu.nvidia.com", 1), |ask| ask.count = count)];
    let (pod, claim) = pod("p", all);
    devices.see(&claim);
    let ask = devices.ask(&pod).unwrap();
    assert_eq!((&ask.demand, ask.is_exact), (&GpuDemand::Whole { count: 1 }, false));
    let first = devices.allocate(&ask, "a", None).unwrap().parts[0];
    let pod_allocation = devices.allocate(&ask, "a", Some(&[first])).unwrap();
    assert_eq!(pod_allocation.parts.len(), 8);
}
