//! Deliberate differences from the compared Kubernetes version. Each entry names the Kubernetes
//! issue and a case that shows it. Once Kubernetes is fixed, the case shows nothing and the entry
//! must be removed.

use k8s_openapi::api::resource::v1 as api;
use octavo_dra::{Feature, Features};
use serde_json::json;

use crate::case::{Case, Verdict};
use crate::compare::compare;
use crate::oracle::Allocator;
use crate::ours;
use crate::traits::{Trait, traits};

/// A bug of Kubernetes.
pub(crate) struct Divergence {
    /// The issue and its fix.
    pub(crate) issue: &'static str,
    /// Summary of the bug.
    pub(crate) about: &'static str,
    /// A case with one node that shows the bug.
    pub(crate) case: fn() -> Case,
    /// Kubernetes' verdict on that case.
    pub(crate) theirs: Verdict,
    /// The correct verdict.
    pub(crate) ours: Verdict,
}

/// All known bugs.
pub(crate) const DIVERGENCES: [Divergence; 4] = [
    Divergence {
        issue: "kubernetes/kubernetes#140438, corrected after 1.36.3 by #140600",
        about: "distinctAttribute remembers one device of a request: others may repeat its value",
        case: red_blue_red,
        theirs: Verdict::Feasible,
        ours: Verdict::Infeasible,
    },
    Divergence {
        issue: "kubernetes/kubernetes#140434, corrected after 1.36.3 by #140504",
        about: "counters are kept by name of the pool: those of two drivers are taken for one",
        case: pools_of_one_name,
        theirs: Verdict::Infeasible,
        ours: Verdict::Feasible,
    },
    Divergence {
        issue: "kubernetes/kubernetes#141103, corrected after 1.36.3 by #141110",
        about: "a class that loses an extended resource to another loses its implicit name, too",
        case: implicit_name_of_a_loser,
        theirs: Verdict::Infeasible,
        ours: Verdict::Feasible,
    },
    Divergence {
        issue: "kubernetes/kubernetes#140652, corrected after 1.36.3 by #140702",
        about: "requested amounts of more than 18 digits grow whenever they are looked at",
        case: huge_amounts,
        theirs: Verdict::Infeasible,
        ours: Verdict::Feasible,
    },
];

/// Whether a differing case differs only by the first known bug. The generator makes no cases for
/// the other bugs.
pub(crate) fn is_known_divergence(oracle: &mut Allocator, seed: u64, case: &Case) -> bool {
    if !traits(case).contains(&Trait::DistinctAttribute) {
        return false;
    }
    let right = ours::decide(case, Features::default());
    let faulty = ours::decide(case, Features::default().with(Feature::UpstreamBugs));
    // An allocator that forgets values only admits more. Its search departs from the correct one
    // in three situations:
    //
    // - a value is allocated twice;
    // - another check fails after that;
    // - a request for all devices has a value twice, which is an error.
    let key = |outcome: &ours::NodeOutcome| (outcome.verdict, outcome.allocations.clone());
    let mut differing =
        right.iter().zip(&faulty).filter(|(right, faulty)| key(right) != key(faulty));
    let is_by_fault = |right: &ours::NodeOutcome, faulty: &ours::NodeOutcome| {
        let is_error_of_all =
            right.verdict == Verdict::Error && right.message.contains(" they do not differ in ");
        faulty.verdict == Verdict::Error || repeats(case, faulty) || is_error_of_all
    };
    let mut is_any = false;
    let is_all = differing.all(|(right, faulty)| {
        is_any = true;
        is_by_fault(right, faulty)
    });
    // With the bug emulated, both allocators must agree exactly. Kubernetes' own check may still
    // reject the allocation.
    is_any && is_all && compare(oracle, seed, case, &faulty).agrees()
}

/// Whether the devices allocated for a claim repeat a value that must be distinct.
fn repeats(case: &Case, outcome: &ours::NodeOutcome) -> bool {
    case.open_claims().zip(&outcome.allocations).any(|(claim, given)| {
        let results = given.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        let constraints = claim.spec.devices.iter().flat_map(|devices| &devices.constraints);
        constraints.flatten().any(|constraint| {
            let Some(attribute) = &constraint.distinct_attribute else { return false };
            let mut seen = Vec::new();
            let covered = results.clone().filter(|result| covers(constraint, &result.request));
            covered.filter_map(|result| value(case, result, attribute)).any(|value| {
                let is_repeated = seen.contains(&value);
                seen.push(value);
                is_repeated
            })
        })
    })
}

/// Whether a constraint applies to a request, given as `<request>` or `<request>/<alternative>`.
fn covers(constraint: &api::DeviceConstraint, request: &str) -> bool {
    let base = request.split_once('/').map_or(request, |(base, _)| base);
    let named = constraint.requests.as_deref().unwrap_or_default();
    named.is_empty() || named.iter().any(|name| name == base || name == request)
}

/// An attribute of an allocated device, by its qualified name.
fn value<'a>(
    case: &'a Case,
    result: &api::DeviceRequestAllocationResult,
    attribute: &str,
) -> Option<&'a api::DeviceAttribute> {
    let is_device = |(slice, device): &(&api::ResourceSlice, &api::Device)| {
        let spec = &slice.spec;
        spec.driver == result.driver
            && spec.pool.name == result.pool
            && device.name == result.device
    };
    let newest =
        case.devices().filter(is_device).max_by_key(|(slice, _)| slice.spec.pool.generation);
    let attributes = newest?.1.attributes.as_ref()?;
    attributes.get(attribute).or_else(|| {
        let (domain, name) = attribute.split_once('/')?;
        (domain == result.driver).then(|| attributes.get(name)).flatten()
    })
}

/// Three devices of two colours, and a request for three different colours.
fn red_blue_red() -> Case {
    let device =
        |name: &str, color: &str| json!({"name": name, "attributes": {"color": {"string": color}}});
    let devices = [device("a", "red"), device("b", "blue"), device("c", "red")];
    let slice = slice(&json!({"devices": devices}));
    let request = json!({
        "requests": [{"name": "req-0", "exactly": {"deviceClassName": "all", "count": 3}}],
        "constraints": [{"distinctAttribute": "gpu.example.com/color"}],
    });
    case(&[slice], &request)
}

/// Two drivers with a pool named after the node. Each has one counter, and one device that needs
/// all of it.
fn pools_of_one_name() -> Case {
    let slice = |driver: &str, name: &str, member: &str, content: serde_json::Value| {
        json!({
            "metadata": {"name": format!("{driver}-{name}")},
            "spec": {
                "driver": driver,
                "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 2},
                "nodeName": "node-a",
                member: content,
            }
        })
    };
    let drivers = ["gpu.example.com", "net.example.com"];
    let slices: Vec<_> = drivers
        .iter()
        .flat_map(|driver| {
            let counters = json!({"slots": {"value": "1"}});
            let sets = json!([{"name": "set", "counters": counters.clone()}]);
            let draws = json!([{"counterSet": "set", "counters": counters}]);
            let devices = json!([{"name": "dev-0", "consumesCounters": draws}]);
            [
                slice(driver, "counters", "sharedCounters", sets),
                slice(driver, "devices", "devices", devices),
            ]
        })
        .collect();
    let request = json!({
        "requests": [{"name": "req-0", "exactly": {"deviceClassName": "all", "count": 2}}],
    });
    case(&slices, &request)
}

/// Two classes serve a resource, and a pod requests the older class by its implicit name.
fn implicit_name_of_a_loser() -> Case {
    let class = |name: &str, created: &str| {
        json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"extendedResourceName": "example.com/gpu"},
        })
    };
    let resource = json!({"deviceclass.resource.kubernetes.io/older": "1"});
    let case = json!({
        "nodes": [{"metadata": {"name": "node-a"}}],
        "deviceClasses": [class("newer", "2026-02-01T00:00:00Z"), class("older", "2026-01-01T00:00:00Z")],
        "slices": [slice(&json!({"devices": [{"name": "dev-0"}]}))],
        "pod": {
            "metadata": {"namespace": "default", "name": "pod"},
            "spec": {"containers": [
                {"name": "main", "resources": {"requests": resource, "limits": resource}}
            ]},
        },
    });
    serde_json::from_value(case).unwrap()
}

/// Two requests for 10 of 25, in numbers of twenty digits.
fn huge_amounts() -> Case {
    let device = json!({
        "name": "dev-0",
        "allowMultipleAllocations": true,
        "capacity": {"memory": {
            "value": "25000000000000000001",
            "requestPolicy": {"default": "1", "validRange": {"min": "1"}},
        }},
    });
    let request = |name: &str| {
        let capacity = json!({"requests": {"memory": "10000000000000000001"}});
        json!({"name": name, "exactly": {"deviceClassName": "all", "capacity": capacity}})
    };
    let request = json!({"requests": [request("req-0"), request("req-1")]});
    case(&[slice(&json!({"devices": [device]}))], &request)
}

/// The only slice of a node.
fn slice(content: &serde_json::Value) -> serde_json::Value {
    let mut slice = json!({
        "metadata": {"name": "slice"},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-a",
        }
    });
    slice["spec"].as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    slice
}

fn case(slices: &[serde_json::Value], request: &serde_json::Value) -> Case {
    let case = json!({
        "nodes": [{"metadata": {"name": "node-a"}}],
        "deviceClasses": [{"metadata": {"name": "all"}, "spec": {}}],
        "slices": slices,
        "claims": [{
            "metadata": {"namespace": "default", "name": "claim"},
            "spec": {"devices": request},
        }],
    });
    serde_json::from_value(case).unwrap()
}
