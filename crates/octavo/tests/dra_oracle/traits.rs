//! What occurs in a case, read from its objects, and the table of how often what occurs with what.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::api::resource::v1 as api;

use crate::case::{AnyRequest, Case, allocation, requests};

/// Something that an allocator has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trait {
    ClassSelector,
    RequestSelector,
    SeveralPools,
    SeveralSlices,
    StaleGeneration,
    IncompletePool,
    Counters,
    SeveralCounterSets,
    SharedDevice,
    PolicyDefault,
    PolicyValues,
    PolicyRange,
    PolicyStep,
    CapacityRequest,
    ExistingShare,
    ExistingAllocation,
    OwnAllocated,
    MatchAttribute,
    DistinctAttribute,
    ConstraintOfAlternative,
    FirstAvailable,
    AdminAccess,
    All,
    Count,
    NoSchedule,
    NoExecute,
    InformingTaint,
    TolerationEqual,
    TolerationExists,
    SliceNodeSelector,
    AllNodes,
    PerDeviceNodes,
    SeveralClaims,
    ExtendedResource,
    BindingConditions,
}

impl Trait {
    /// Every trait.
    pub(crate) const ALL: [Self; 35] = [
        Self::ClassSelector,
        Self::RequestSelector,
        Self::SeveralPools,
        Self::SeveralSlices,
        Self::StaleGeneration,
        Self::IncompletePool,
        Self::Counters,
        Self::SeveralCounterSets,
        Self::SharedDevice,
        Self::PolicyDefault,
        Self::PolicyValues,
        Self::PolicyRange,
        Self::PolicyStep,
        Self::CapacityRequest,
        Self::ExistingShare,
        Self::ExistingAllocation,
        Self::OwnAllocated,
        Self::MatchAttribute,
        Self::DistinctAttribute,
        Self::ConstraintOfAlternative,
        Self::FirstAvailable,
        Self::AdminAccess,
        Self::All,
        Self::Count,
        Self::NoSchedule,
        Self::NoExecute,
        Self::InformingTaint,
        Self::TolerationEqual,
        Self::TolerationExists,
        Self::SliceNodeSelector,
        Self::AllNodes,
        Self::PerDeviceNodes,
        Self::SeveralClaims,
        Self::ExtendedResource,
        Self::BindingConditions,
    ];
}

/// What occurs in a case.
pub(crate) fn traits(case: &Case) -> BTreeSet<Trait> {
    let mut there = BTreeSet::new();
    let mut see = |what: Trait, is_there: bool| {
        if is_there {
            there.insert(what);
        }
    };
    pools(case, &mut see);
    devices(case, &mut see);
    asked(case, &mut see);
    let open = case.open_claims().count();
    see(Trait::SeveralClaims, open + usize::from(case.pod.is_some()) > 1);
    see(Trait::OwnAllocated, case.claims.iter().any(|claim| allocation(claim).is_some()));
    see(Trait::ExistingShare, case.results().any(|result| result.share_id.is_some()));
    see(Trait::ExistingAllocation, case.results().any(|result| result.share_id.is_none()));
    see(Trait::ExtendedResource, case.pod.is_some());
    there
}

fn pools(case: &Case, see: &mut impl FnMut(Trait, bool)) {
    let mut pools: BTreeMap<(&str, &str), Vec<&api::ResourceSliceSpec>> = BTreeMap::new();
    for slice in &case.slices {
        let id = (slice.spec.driver.as_str(), slice.spec.pool.name.as_str());
        pools.entry(id).or_default().push(&slice.spec);
    }
    see(Trait::SeveralPools, pools.len() > 1);
    for slices in pools.values() {
        let newest = slices.iter().map(|spec| spec.pool.generation).max();
        let current = slices.iter().filter(|spec| Some(spec.pool.generation) == newest);
        let with_devices = current.clone().filter(|spec| spec.devices.is_some()).count();
        see(Trait::SeveralSlices, with_devices > 1);
        see(Trait::StaleGeneration, slices.len() > current.clone().count());
        let published = current.clone().count() as i64;
        see(
            Trait::IncompletePool,
            current.clone().any(|spec| spec.pool.resource_slice_count != published),
        );
    }
    for slice in &case.slices {
        see(Trait::SliceNodeSelector, slice.spec.node_selector.is_some());
        see(Trait::AllNodes, slice.spec.all_nodes == Some(true));
        see(Trait::PerDeviceNodes, slice.spec.per_device_node_selection == Some(true));
    }
}

fn devices(case: &Case, see: &mut impl FnMut(Trait, bool)) {
    for (_, device) in case.devices() {
        let consumed = device.consumes_counters.as_ref().map_or(0, Vec::len);
        see(Trait::Counters, consumed > 0);
        see(Trait::SeveralCounterSets, consumed > 1);
        see(Trait::SharedDevice, device.allow_multiple_allocations == Some(true));
        see(Trait::BindingConditions, device.binding_conditions.is_some());
        for capacity in device.capacity.iter().flat_map(BTreeMap::values) {
            let Some(policy) = &capacity.request_policy else { continue };
            see(Trait::PolicyDefault, policy.default.is_some());
            see(Trait::PolicyValues, policy.valid_values.is_some());
            see(Trait::PolicyRange, policy.valid_range.is_some());
            let range = policy.valid_range.as_ref();
            see(Trait::PolicyStep, range.is_some_and(|range| range.step.is_some()));
        }
        for taint in device.taints.iter().flatten() {
            see(Trait::NoSchedule, taint.effect == "NoSchedule");
            see(Trait::NoExecute, taint.effect == "NoExecute");
            see(Trait::InformingTaint, taint.effect == "None");
        }
    }
}

fn asked(case: &Case, see: &mut impl FnMut(Trait, bool)) {
    let with_selectors = |name: &str| {
        let class = case.device_classes.iter().find(|c| c.metadata.name.as_deref() == Some(name));
        class.is_some_and(|class| class.spec.selectors.is_some())
    };
    for request in case.requests() {
        let class = match &request {
            AnyRequest::Exactly(request) => &request.device_class_name,
            AnyRequest::Alternative(request) => &request.device_class_name,
        };
        see(Trait::ClassSelector, with_selectors(class));
        see(Trait::RequestSelector, request.selectors() > 0);
        see(Trait::CapacityRequest, request.has_capacity());
        see(Trait::AdminAccess, request.has_admin_access());
        see(Trait::All, request.is_for_all());
        see(Trait::Count, request.count() > 1);
        for toleration in request.tolerations() {
            let exists = toleration.operator.as_deref() == Some("Exists");
            see(Trait::TolerationExists, exists);
            see(Trait::TolerationEqual, !exists);
        }
    }
    let any_alternative =
        case.open_claims().flat_map(requests).any(|request| request.first_available.is_some());
    see(Trait::FirstAvailable, any_alternative);
    for constraint in case.constraints() {
        see(Trait::MatchAttribute, constraint.match_attribute.is_some());
        see(Trait::DistinctAttribute, constraint.distinct_attribute.is_some());
        let named = constraint.requests.iter().flatten();
        see(Trait::ConstraintOfAlternative, named.into_iter().any(|name| name.contains('/')));
    }
}

/// How often what occurred, alone and with everything else.
#[derive(Default)]
pub(crate) struct Coverage {
    cases: usize,
    together: BTreeMap<(Trait, Trait), usize>,
}

impl Coverage {
    /// Counts a case.
    pub(crate) fn count(&mut self, traits: &BTreeSet<Trait>) {
        self.cases += 1;
        for first in traits {
            for second in traits {
                *self.together.entry((*first, *second)).or_default() += 1;
            }
        }
    }

    /// Adds what another has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        for (pair, count) in &other.together {
            *self.together.entry(*pair).or_default() += count;
        }
    }

    /// How many cases have both.
    pub(crate) fn both(&self, first: Trait, second: Trait) -> usize {
        self.together.get(&(first, second)).copied().unwrap_or_default()
    }

    /// Share of the cases that have it, in percent.
    pub(crate) fn percent(&self, of: Trait) -> f64 {
        self.both(of, of) as f64 * 100.0 / self.cases.max(1) as f64
    }

    /// A line a trait: its share, and with what it occurred least.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("{:<26}{:>8}   rarest together with\n", "trait", "cases");
        for one in Trait::ALL {
            let others = Trait::ALL.into_iter().filter(|other| *other != one);
            let rarest = others.min_by_key(|other| self.both(one, *other)).unwrap_or(one);
            let _ = writeln!(
                table,
                "{:<26}{:>7.1}%   {rarest:?} ({})",
                format!("{one:?}"),
                self.percent(one),
                self.both(one, rarest)
            );
        }
        table
    }
}
