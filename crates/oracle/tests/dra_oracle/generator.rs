//! Generates cases from seeds: small clusters with every feature of an allocator, alone and in
//! combination. About half of the cases can be served.

mod allocated;
mod claims;
mod devices;
mod extended;
mod pools;
mod scopes;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use octavo_testkit::Rng;

use crate::SEEDS_OF_ADMISSION;
use crate::case::Case;
pub(crate) use claims::INVALID_SELECTOR;

/// Drivers of the clusters, sorted by name as allocators process them.
const DRIVERS: [&str; 2] = ["gpu.example.com", "net.example.com"];

/// One case in this number has a slice without a node scope. Current API servers reject such a
/// slice.
const UNPLACED_SLICE_PERIOD: u64 = 40;

/// Features that a case may use. Not every enabled feature occurs in it.
struct Plan {
    class_selectors: bool,
    request_selectors: bool,
    /// Expressions that fail for some devices.
    faulty_selectors: bool,
    missing_attributes: bool,
    cluster_pool: bool,
    second_driver: bool,
    slices: bool,
    stale: bool,
    incomplete: bool,
    invalid: bool,
    counters: bool,
    shared: bool,
    policies: bool,
    capacity_requests: bool,
    match_attribute: bool,
    distinct_attribute: bool,
    first_available: bool,
    admin: bool,
    all: bool,
    counts: bool,
    taints: bool,
    several_claims: bool,
    allocated: bool,
    own_allocated: bool,
    extended: bool,
    binding: bool,
    configuration: bool,
}

impl Plan {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            class_selectors: rng.chance(70),
            request_selectors: rng.chance(60),
            faulty_selectors: rng.chance(8),
            missing_attributes: rng.chance(20),
            cluster_pool: rng.chance(70),
            second_driver: rng.chance(50),
            slices: rng.chance(65),
            stale: rng.chance(40),
            incomplete: rng.chance(24),
            invalid: rng.chance(5),
            counters: rng.chance(55),
            shared: rng.chance(75),
            policies: rng.chance(80),
            capacity_requests: rng.chance(50),
            match_attribute: rng.chance(38),
            distinct_attribute: rng.chance(38),
            first_available: rng.chance(60),
            admin: rng.chance(40),
            all: rng.chance(32),
            counts: rng.chance(50),
            taints: rng.chance(60),
            several_claims: rng.chance(42),
            allocated: rng.chance(70),
            own_allocated: rng.chance(20),
            extended: rng.chance(30),
            binding: rng.chance(30),
            configuration: rng.chance(30),
        }
    }
}

/// Generates the case of a seed.
pub(crate) fn generate(seed: u64) -> Case {
    let mut rng = Rng::new(seed);
    let plan = Plan::draw(&mut rng);
    let nodes = nodes(&mut rng);
    let mut device_classes = classes(&mut rng, &plan);
    let mut slices = pools::slices(&mut rng, &plan, &nodes);
    if seed >= SEEDS_OF_ADMISSION.end && seed.is_multiple_of(UNPLACED_SLICE_PERIOD) {
        pools::remove_node_scope(&mut slices);
    }
    let other_claims = allocated::others(&mut rng, &plan, &slices);
    let claims = claims::claims(&mut rng, &plan, &slices, &nodes);
    let mut case =
        Case { nodes, slices, device_classes: Vec::new(), claims, other_claims, pod: None };
    if plan.extended {
        case.pod = Some(extended::pod(&mut rng, &mut device_classes, &mut case.nodes));
    }
    // Sorted by age, because of a bug: when a class loses a resource name to an older class, 1.36.3
    // also forgets its implicit name (divergences.rs).
    device_classes.sort_by(|a, b| {
        let age = |class: &api::DeviceClass| class.metadata.creation_timestamp.clone();
        age(a).cmp(&age(b)).then_with(|| b.metadata.name.cmp(&a.metadata.name))
    });
    case.device_classes = device_classes;
    case
}

fn nodes(rng: &mut Rng) -> Vec<core::Node> {
    let count = rng.between(1, 3);
    let node = |name: &&str| {
        let mut labels = BTreeMap::from([("zone".to_owned(), rng.word(&["z1", "z2"]).to_owned())]);
        if rng.chance(70) {
            labels.insert("rank".to_owned(), rng.word(&["1", "2", "3", "ten"]).to_owned());
        }
        let metadata = ObjectMeta { labels: Some(labels), ..named(name) };
        core::Node { metadata, ..core::Node::default() }
    };
    ["node-a", "node-b", "node-c"][..count].iter().map(node).collect()
}

/// Classes for requests. `all` selects everything.
fn classes(rng: &mut Rng, plan: &Plan) -> Vec<api::DeviceClass> {
    let mut class = |name: &str, selectors: &[&str]| {
        let selectors: Vec<_> = selectors.iter().map(|expression| cel(expression)).collect();
        let mut spec = api::DeviceClassSpec {
            selectors: (!selectors.is_empty()).then_some(selectors),
            ..api::DeviceClassSpec::default()
        };
        if plan.configuration && rng.chance(60) {
            let opaque = Some(opaque(DRIVERS[0], name));
            spec.config = Some(vec![api::DeviceClassConfiguration { opaque }]);
        }
        api::DeviceClass { metadata: named(name), spec }
    };
    let all = class("all", &[]);
    if !plan.class_selectors {
        return vec![all];
    }
    vec![
        all,
        class("gpu", &[r#"device.driver == "gpu.example.com""#]),
        class("net", &[r#"device.driver == "net.example.com""#]),
        class("shared", &["device.allowMultipleAllocations"]),
        class(
            "healthy",
            &[
                "device.attributes[device.driver].?healthy.orValue(true)",
                r#"!device.driver.contains("nothing")"#,
            ],
        ),
    ]
}

fn cel(expression: &str) -> api::DeviceSelector {
    api::DeviceSelector { cel: Some(api::CELDeviceSelector { expression: expression.to_owned() }) }
}

fn opaque(driver: &str, of: &str) -> api::OpaqueDeviceConfiguration {
    api::OpaqueDeviceConfiguration {
        driver: driver.to_owned(),
        parameters: k8s_openapi::apimachinery::pkg::runtime::RawExtension(
            serde_json::json!({ "of": of }),
        ),
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Metadata of a claim, which has a namespace unlike nodes, slices and classes.
fn namespaced(name: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some("default".to_owned()),
        uid: Some(format!("uid-{name}")),
        ..named(name)
    }
}
