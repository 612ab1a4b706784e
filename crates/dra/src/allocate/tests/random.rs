//! Random clusters and claims.

use proptest::collection::vec;
use proptest::prelude::*;

use super::fixtures::*;
use crate::*;

/// A device: pool, size (seen by selectors), rack (seen by constraints; 0 for none), whether it is
/// shared, memory (0 for none), whether memory has a policy, its draw, whether it is tainted.
pub(super) type DeviceSpec = (usize, u8, u8, bool, i64, bool, i64, bool);
/// An alternative: size (0 for any), count, memory (0 for none), tolerance, admin access.
pub(super) type AskSpec = (u8, u64, i64, bool, bool);
pub(super) type RequestSpec = Vec<AskSpec>;
/// Requests and a constraint: 0 none, 1 match, 2 distinct, each over all requests; 3 match over the
/// first.
pub(super) type ClaimSpec = (Vec<RequestSpec>, u8);

pub(super) const TOTAL: i64 = 3;

pub(super) fn device_spec() -> impl Strategy<Value = DeviceSpec> {
    let tainted = prop::bool::weighted(0.15);
    (0..2_usize, 1..3_u8, 0..3_u8, any::<bool>(), 0..5_i64, any::<bool>(), 0..3_i64, tainted)
}

fn ask_spec() -> impl Strategy<Value = AskSpec> {
    let (tolerance, admin) = (any::<bool>(), prop::bool::weighted(0.15));
    (0..3_u8, 1..3_u64, 0..4_i64, tolerance, admin)
}

pub(super) fn claim_spec(requests: usize) -> impl Strategy<Value = ClaimSpec> {
    (vec(vec(ask_spec(), 1..3), 1..=requests), 0..4_u8)
}

fn build_device((index, spec): (usize, &DeviceSpec)) -> Device {
    let &(pool, size, rack, allow_multiple, memory, has_policy, draws, is_tainted) = spec;
    let mut built = device_with(&format!("d{index}"), &[("size", &size.to_string())]);
    built.allow_multiple = allow_multiple;
    if rack > 0 {
        let rack = AttributeValue::Int(rack.into());
        built.attributes.insert("rack".to_owned(), rack);
    }
    if memory > 0 {
        let allowed = AllowedAmounts::Range {
            min: Quantity::decimal(1),
            max: Some(Quantity::decimal(memory)),
            step: Some(Quantity::decimal(2)),
        };
        let policy = RequestPolicy { default: Some(Quantity::decimal(1)), allowed };
        let value = Quantity::decimal(memory);
        let policy = has_policy.then_some(policy);
        built.capacity.insert("memory".to_owned(), Capacity { value, policy });
    }
    if is_tainted {
        built.taints.push(DeviceTaint {
            key: "example.com/sick".to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSchedule,
        });
    }
    if pool == 0 && draws > 0 { drawing(built, "set", &[("slices", draws)]) } else { built }
}

/// Only pool `a` has counters.
pub(super) fn world(specs: &[DeviceSpec]) -> World {
    let candidates_by_pool = |pool: usize| {
        let own = specs.iter().enumerate().filter(|(_, spec)| spec.0 == pool);
        own.map(build_device).collect::<Vec<Device>>()
    };
    let mut slices =
        partitionable(vec![counters("set", &[("slices", TOTAL)])], candidates_by_pool(0));
    slices.push(Slice { name: "b-1".to_owned(), ..slice("n1", candidates_by_pool(1)) });
    for (slice, pool) in slices.iter_mut().zip(["a", "a", "b"]) {
        slice.pool = pool.to_owned();
    }
    World::new(slices)
}

pub(super) fn build_claim(name: &str, (requests, rule): &ClaimSpec) -> Claim {
    let build = |&(size, count, memory, is_tolerant, is_admin): &AskSpec| {
        let mut built =
            if size == 0 { ask(count) } else { ask_where(count, "size", &size.to_string()) };
        if memory > 0 {
            built.capacity.insert("memory".to_owned(), Quantity::decimal(memory));
        }
        if is_tolerant {
            built.tolerations.push(Toleration {
                key: None,
                value: None,
                effect: None,
                seconds: None,
            });
        }
        built.admin_access = is_admin;
        built
    };
    let requests = requests.iter().enumerate().map(|(index, alternatives)| {
        let name = format!("r{index}");
        match alternatives.as_slice() {
            [only] => request(&name, build(only)),
            several => {
                let named = ["x", "y"].into_iter().zip(several.iter().map(build)).collect();
                first_of(&name, named)
            }
        }
    });
    let mut built = claim(name, requests.collect());
    built.constraints = match rule {
        0 => Vec::new(),
        1 => vec![matching("rack", &[])],
        2 => vec![distinct("rack", &[])],
        _ => vec![matching("rack", &["r0"])],
    };
    built
}
