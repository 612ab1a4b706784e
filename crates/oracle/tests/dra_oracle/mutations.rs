//! Possible faults of an allocator. A fault is planted by giving Octavo's allocator a changed case,
//! as if it ignored some property. The comparison must notice the difference.

use k8s_openapi::api::resource::v1 as api;

use crate::case::{Case, Verdict};
use crate::ours::NodeOutcome;

/// A fault with its name.
pub(crate) type Fault<T> = (&'static str, fn(&mut T));

/// Faults in the allocator's input.
pub(crate) const INPUT_FAULTS: [Fault<Case>; 26] = [
    ("ignores class selectors", |case| {
        case.device_classes.iter_mut().for_each(|class| class.spec.selectors = None);
    }),
    ("ignores request selectors", |case| each_request(case, |r| *r.selectors = None)),
    ("ignores taints", |case| each_device(case, |device| device.taints = None)),
    ("takes every taint for one that forbids", |case| {
        each_device(case, |device| {
            let taints = device.taints.iter_mut().flatten();
            taints.for_each(|taint| "NoSchedule".clone_into(&mut taint.effect));
        });
    }),
    ("ignores tolerations", |case| each_request(case, |r| *r.tolerations = None)),
    ("tolerates any value", |case| {
        each_request(case, |r| {
            for toleration in r.tolerations.iter_mut().flatten() {
                toleration.operator = Some("Exists".to_owned());
                toleration.value = None;
            }
        });
    }),
    ("tolerates any effect", |case| {
        each_request(case, |r| {
            r.tolerations.iter_mut().flatten().for_each(|toleration| toleration.effect = None);
        });
    }),
    ("ignores counters", |case| each_device(case, |device| device.consumes_counters = None)),
    ("looks at the first counter set alone", |case| {
        each_device(case, |device| {
            device.consumes_counters.iter_mut().for_each(|consumed| consumed.truncate(1));
        });
    }),
    ("ignores request policies", |case| {
        each_capacity(case, |capacity| capacity.request_policy = None);
    }),
    ("ignores steps", |case| {
        each_policy(case, |policy| {
            policy.valid_range.iter_mut().for_each(|range| range.step = None);
        });
    }),
    ("ignores upper bounds", |case| {
        each_policy(case, |policy| {
            policy.valid_range.iter_mut().for_each(|range| range.max = None);
        });
    }),
    ("ignores capacity requests", |case| each_request(case, |r| *r.capacity = None)),
    ("gives no device twice", |case| {
        each_device(case, |device| device.allow_multiple_allocations = None);
    }),
    ("ignores what shares have consumed", |case| {
        each_result(case, |result| result.consumed_capacity = None);
    }),
    ("ignores existing allocations", |case| case.other_claims.clear()),
    ("takes existing access for administration for use", |case| {
        each_result(case, |result| result.admin_access = None);
    }),
    ("takes admin access for use", |case| each_request(case, |r| *r.admin_access = None)),
    ("ignores constraints", |case| each_claim(case, |claim| claim.constraints = None)),
    ("applies constraints to all requests", |case| {
        each_claim(case, |claim| {
            let constraints = claim.constraints.iter_mut().flatten();
            constraints.for_each(|constraint| constraint.requests = None);
        });
    }),
    ("takes alternatives in reverse", |case| {
        each_claim(case, |claim| {
            for request in claim.requests.iter_mut().flatten() {
                request.first_available.iter_mut().for_each(|list| list.reverse());
            }
        });
    }),
    ("takes one where all are asked for", |case| {
        each_request(case, |r| {
            if r.mode.as_deref() == Some("All") {
                *r.mode = None;
            }
        });
    }),
    ("takes one where several are asked for", |case| each_request(case, |r| *r.count = None)),
    ("takes old generations for current", |case| {
        case.slices.iter_mut().for_each(|slice| slice.spec.pool.generation = 1);
    }),
    ("takes incomplete pools for complete", |case| {
        let counted: Vec<_> = case.slices.iter().map(|slice| slice.spec.clone()).collect();
        for slice in &mut case.slices {
            let same = counted.iter().filter(|spec| {
                let (a, b) = (&spec.pool, &slice.spec.pool);
                spec.driver == slice.spec.driver && a.name == b.name && a.generation == b.generation
            });
            slice.spec.pool.resource_slice_count = same.count() as i64;
        }
    }),
    ("reaches every device from everywhere", |case| {
        for spec in case.slices.iter_mut().map(|slice| &mut slice.spec) {
            (spec.node_name, spec.node_selector) = (None, None);
            (spec.all_nodes, spec.per_device_node_selection) = (Some(true), None);
            for device in spec.devices.iter_mut().flatten() {
                (device.node_name, device.node_selector, device.all_nodes) = (None, None, None);
            }
        }
    }),
];

/// Faults in the allocator's output, where the pod can be served. They change one result.
pub(crate) const OUTPUT_FAULTS: [Fault<NodeOutcome>; 8] = [
    ("forgets a device", |outcome| {
        each_results(outcome, |results| {
            results.pop();
        });
    }),
    ("gives a device that there is not", |outcome| {
        each_results(outcome, |results| {
            results.iter_mut().take(1).for_each(|result| result.device.push('x'));
        });
    }),
    ("gives a device twice", |outcome| {
        each_results(outcome, |results| {
            let first = results.first().cloned();
            results.extend(first);
        });
    }),
    ("names another request", |outcome| {
        each_results(outcome, |results| {
            results.iter_mut().take(1).for_each(|result| "req-9".clone_into(&mut result.request));
        });
    }),
    ("forgets the nodes", |outcome| {
        outcome.allocations.iter_mut().for_each(|allocation| allocation.node_selector = None);
    }),
    ("forgets what is consumed", |outcome| {
        each_results(outcome, |results| {
            for result in results {
                result.consumed_capacity = None;
            }
        });
    }),
    ("forgets identities of shares", |outcome| {
        each_results(outcome, |results| {
            for result in results {
                result.share_id = None;
            }
        });
    }),
    ("forgets binding conditions", |outcome| {
        each_results(outcome, |results| {
            for result in results {
                result.binding_conditions = None;
            }
        });
    }),
];

/// Plants a fault in the allocations on feasible nodes.
pub(crate) fn corrupt(decided: &mut [NodeOutcome], fault: fn(&mut NodeOutcome)) {
    for outcome in decided.iter_mut().filter(|outcome| outcome.verdict == Verdict::Feasible) {
        fault(outcome);
    }
}

fn each_device(case: &mut Case, change: impl FnMut(&mut api::Device)) {
    let slices = case.slices.iter_mut();
    slices.flat_map(|slice| slice.spec.devices.iter_mut().flatten()).for_each(change);
}

fn each_capacity(case: &mut Case, mut change: impl FnMut(&mut api::DeviceCapacity)) {
    each_device(case, |device| {
        device.capacity.iter_mut().flat_map(|all| all.values_mut()).for_each(&mut change);
    });
}

fn each_policy(case: &mut Case, mut change: impl FnMut(&mut api::CapacityRequestPolicy)) {
    each_capacity(case, |capacity| capacity.request_policy.iter_mut().for_each(&mut change));
}

fn each_claim(case: &mut Case, change: impl FnMut(&mut api::DeviceClaim)) {
    case.claims.iter_mut().filter_map(|claim| claim.spec.devices.as_mut()).for_each(change);
}

/// Fields common to requests and alternatives.
struct RequestMut<'a> {
    selectors: &'a mut Option<Vec<api::DeviceSelector>>,
    tolerations: &'a mut Option<Vec<api::DeviceToleration>>,
    capacity: &'a mut Option<api::CapacityRequirements>,
    mode: &'a mut Option<String>,
    count: &'a mut Option<i64>,
    /// Always `None` in alternatives.
    admin_access: &'a mut Option<bool>,
}

fn each_request(case: &mut Case, mut change: impl FnMut(RequestMut<'_>)) {
    each_claim(case, |claim| {
        for request in claim.requests.iter_mut().flatten() {
            if let Some(asked) = &mut request.exactly {
                change(RequestMut {
                    selectors: &mut asked.selectors,
                    tolerations: &mut asked.tolerations,
                    capacity: &mut asked.capacity,
                    mode: &mut asked.allocation_mode,
                    count: &mut asked.count,
                    admin_access: &mut asked.admin_access,
                });
            }
            for asked in request.first_available.iter_mut().flatten() {
                change(RequestMut {
                    selectors: &mut asked.selectors,
                    tolerations: &mut asked.tolerations,
                    capacity: &mut asked.capacity,
                    mode: &mut asked.allocation_mode,
                    count: &mut asked.count,
                    admin_access: &mut None,
                });
            }
        }
    });
}

type ResultsOf = Vec<api::DeviceRequestAllocationResult>;

/// Visits the results of claims that were allocated before.
fn each_result(case: &mut Case, change: impl FnMut(&mut api::DeviceRequestAllocationResult)) {
    let claims = case.other_claims.iter_mut().filter_map(|claim| claim.status.as_mut());
    let devices = claims.filter_map(|status| status.allocation.as_mut()?.devices.as_mut());
    devices.flat_map(|devices| devices.results.iter_mut().flatten()).for_each(change);
}

/// Visits the new results.
fn each_results(outcome: &mut NodeOutcome, change: impl FnMut(&mut ResultsOf)) {
    let devices = outcome.allocations.iter_mut().filter_map(|a| a.devices.as_mut());
    devices.filter_map(|devices| devices.results.as_mut()).for_each(change);
}
