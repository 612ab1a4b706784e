//! The pod's claims: requests and constraints.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use octavo_testkit::Rng;

use super::{DRIVERS, Plan, allocated, cel, devices, namespaced, opaque};

/// Largest total of devices in requests with a count; keeps searches small.
const MAX_COUNTED_DEVICES: usize = 4;

/// Selectors of requests for devices of both drivers. None fails on a missing attribute.
const SELECTORS: [&str; 16] = [
    r#"device.driver.startsWith("gpu.")"#,
    r#"device.attributes[device.driver].?model.orValue("") == "a""#,
    "device.attributes[device.driver].?index.orValue(0) < 3",
    r#"device.attributes["gpu.example.com"].?index.orValue(1) % 2 == 1"#,
    r#""numa" in device.attributes[device.driver]"#,
    r#"device.attributes["topology.example.com"].?rack.orValue("r1") in ["r1", "r3"]"#,
    r#"device.capacity[device.driver].memory.compareTo(quantity("16Gi")) >= 0"#,
    "device.capacity[device.driver].?compute.hasValue()",
    "!device.allowMultipleAllocations",
    "device.allowMultipleAllocations || device.attributes[device.driver].?healthy.orValue(true)",
    r#"cel.bind(own, device.attributes[device.driver], !has(own.firmware) || own.firmware.isGreaterThan(semver("1.1.0")))"#,
    r#"["a", "c"].exists(model, model == device.attributes[device.driver].?model.orValue("c"))"#,
    r#"device.driver.matches("^(gpu|net)[.]")"#,
    r#"device.capacity[device.driver].memory.isLessThan(quantity("20G")) ? true : device.driver.endsWith("example.com")"#,
    r#"device.attributes["elsewhere.example.com"].?model.orValue("none") == "none""#,
    r#"has(device.attributes["topology.example.com"].rack) || size(device.attributes) > 0"#,
];

/// A selector that does not compile.
pub(crate) const INVALID_SELECTOR: &str = "device.nonsense == 1";

/// Selectors that fail on devices without the attribute, or always.
const FAULTY_SELECTORS: [&str; 6] = [
    r#"device.attributes["gpu.example.com"].model == "a""#,
    r#"device.attributes["gpu.example.com"].healthy"#,
    r#"device.attributes["gpu.example.com"].numa == 1 || device.driver == "net.example.com""#,
    r#"device.attributes["gpu.example.com"].firmware.compareTo(semver("1.2.0")) >= 0"#,
    r#"device.attributes["gpu.example.com"].index"#,
    INVALID_SELECTOR,
];

const ATTRIBUTES: [&str; 6] = [
    "gpu.example.com/numa",
    "gpu.example.com/model",
    "gpu.example.com/healthy",
    "gpu.example.com/firmware",
    "gpu.example.com/index",
    "topology.example.com/rack",
];

/// The pod's claims in order.
pub(super) fn claims(
    rng: &mut Rng,
    plan: &Plan,
    slices: &[api::ResourceSlice],
    nodes: &[core::Node],
) -> Vec<api::ResourceClaim> {
    let count = if plan.several_claims { *rng.pick(&[2, 2, 3]) } else { 1 };
    let mut left = MAX_COUNTED_DEVICES;
    let mut claims: Vec<_> =
        (0..count).map(|number| claim(rng, plan, &format!("own-{number}"), &mut left)).collect();
    if plan.own_allocated {
        let at = rng.below(claims.len() + 1);
        claims.insert(at, allocated::own(rng, slices, nodes));
    }
    claims
}

fn claim(rng: &mut Rng, plan: &Plan, name: &str, left: &mut usize) -> api::ResourceClaim {
    let count = *rng.pick(&[1, 1, 1, 2, 2, 2, 3]);
    let mut requests = Vec::new();
    for number in 0..count {
        if requests.is_empty() || *left > 0 {
            requests.push(request(rng, plan, &format!("req-{number}"), left));
        }
    }
    let mut constraints = Vec::new();
    if plan.match_attribute && rng.chance(70) {
        constraints.push(api::DeviceConstraint {
            match_attribute: Some(rng.word(&ATTRIBUTES).to_owned()),
            requests: concerned(rng, &requests),
            ..api::DeviceConstraint::default()
        });
    }
    if plan.distinct_attribute && rng.chance(70) {
        constraints.push(api::DeviceConstraint {
            distinct_attribute: Some(rng.word(&ATTRIBUTES).to_owned()),
            requests: concerned(rng, &requests),
            ..api::DeviceConstraint::default()
        });
    }
    let config = plan.configuration && rng.chance(50);
    let config = config.then(|| {
        vec![api::DeviceClaimConfiguration {
            opaque: Some(opaque(DRIVERS[0], name)),
            requests: concerned(rng, &requests),
        }]
    });
    api::ResourceClaim {
        metadata: namespaced(name),
        spec: api::ResourceClaimSpec {
            devices: Some(api::DeviceClaim {
                requests: Some(requests),
                constraints: (!constraints.is_empty()).then_some(constraints),
                config,
            }),
        },
        status: None,
    }
}

/// Names of some requests or alternatives, or `None` for all.
fn concerned(rng: &mut Rng, requests: &[api::DeviceRequest]) -> Option<Vec<String>> {
    let any_alternative = requests.iter().any(|request| request.first_available.is_some());
    if rng.chance(if any_alternative { 25 } else { 50 }) {
        return None;
    }
    let mut names = Vec::new();
    for request in requests {
        let alternatives = request.first_available.as_deref().unwrap_or_default();
        if !alternatives.is_empty() && rng.chance(75) {
            let some = alternatives.iter().filter(|_| rng.chance(70));
            names.extend(some.map(|alternative| format!("{}/{}", request.name, alternative.name)));
        } else if rng.chance(80) {
            names.push(request.name.clone());
        }
    }
    (!names.is_empty()).then_some(names)
}

fn request(rng: &mut Rng, plan: &Plan, name: &str, left: &mut usize) -> api::DeviceRequest {
    let mut request = api::DeviceRequest { name: name.to_owned(), ..Default::default() };
    if plan.first_available && rng.chance(50) {
        let count = rng.between(2, 3);
        let before = *left;
        let mut least = before;
        let mut alternatives = Vec::new();
        for number in 0..count {
            // Only one alternative is served.
            let mut left_then = before;
            let exact = exactly(rng, plan, &mut left_then);
            least = least.min(left_then);
            alternatives.push(api::DeviceSubRequest {
                name: format!("sub-{number}"),
                allocation_mode: exact.allocation_mode,
                capacity: exact.capacity,
                count: exact.count,
                device_class_name: exact.device_class_name,
                selectors: exact.selectors,
                tolerations: exact.tolerations,
            });
        }
        *left = least;
        request.first_available = Some(alternatives);
    } else {
        let mut exact = exactly(rng, plan, left);
        if plan.admin && rng.chance(45) {
            exact.admin_access = Some(true);
        }
        request.exactly = Some(exact);
    }
    request
}

fn exactly(rng: &mut Rng, plan: &Plan, left: &mut usize) -> api::ExactDeviceRequest {
    let mut request =
        api::ExactDeviceRequest { device_class_name: class(rng, plan), ..Default::default() };
    if plan.all && rng.chance(30) {
        request.allocation_mode = Some("All".to_owned());
    } else {
        let most = if plan.counts && rng.chance(50) { *rng.pick(&[2, 2, 3]) } else { 1 };
        let count = rng.between(most.min(2), most).min((*left).max(1));
        *left = left.saturating_sub(count);
        // The API server writes defaults, but reading objects without them is tested, too.
        if count > 1 || rng.chance(50) {
            request.allocation_mode = Some("ExactCount".to_owned());
            request.count = Some(count as i64);
        }
    }
    if plan.request_selectors && rng.chance(50) {
        let count = if rng.chance(85) { 1 } else { 2 };
        request.selectors = Some((0..count).map(|_| cel(rng.word(&SELECTORS))).collect());
    }
    if plan.faulty_selectors && rng.chance(30) {
        request.selectors.get_or_insert_default().push(cel(rng.word(&FAULTY_SELECTORS)));
    }
    if plan.capacity_requests && rng.chance(50) {
        let requests = Some(devices::amounts(rng));
        request.capacity = Some(api::CapacityRequirements { requests });
    }
    if plan.taints && rng.chance(55) {
        request.tolerations = Some((0..rng.between(1, 2)).map(|_| toleration(rng)).collect());
    }
    request
}

fn class(rng: &mut Rng, plan: &Plan) -> String {
    let class = if plan.faulty_selectors && rng.chance(5) {
        "nowhere"
    } else if !plan.class_selectors || rng.chance(45) {
        "all"
    } else if rng.chance(60) {
        "gpu"
    } else {
        rng.word(&["net", "shared", "healthy", "healthy"])
    };
    class.to_owned()
}

fn toleration(rng: &mut Rng) -> api::DeviceToleration {
    let mut toleration = api::DeviceToleration::default();
    if rng.chance(45) {
        toleration.operator = Some("Exists".to_owned());
        if rng.chance(50) {
            toleration.key =
                Some(rng.word(&["example.com/broken", "example.com/reserved"]).to_owned());
        }
    } else {
        toleration.operator = rng.chance(70).then(|| "Equal".to_owned());
        toleration.key = Some(rng.word(&["example.com/broken", "example.com/reserved"]).to_owned());
        toleration.value = rng.chance(70).then(|| rng.word(&["x", "y"]).to_owned());
    }
    if rng.chance(40) {
        toleration.effect = Some(rng.word(&["NoSchedule", "NoExecute"]).to_owned());
    }
    toleration
}
