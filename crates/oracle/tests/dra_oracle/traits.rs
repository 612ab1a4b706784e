//! Features of a case, derived from its objects, and a table of their combinations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::api::resource::v1 as api;

use crate::case::{AnyRequest, Case, allocation, requests};

/// A feature that an allocator has to handle.
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
    /// All features.
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

/// The features of a case.
pub(crate) fn traits(case: &Case) -> BTreeSet<Trait> {
    let mut found = BTreeSet::new();
    let mut record = |what: Trait, is_present: bool| {
        if is_present {
            found.insert(what);
        }
    };
    pools(case, &mut record);
    devices(case, &mut record);
    requests_and_constraints(case, &mut record);
    let open = case.open_claims().count();
    record(Trait::SeveralClaims, open + usize::from(case.pod.is_some()) > 1);
    record(Trait::OwnAllocated, case.claims.iter().any(|claim| allocation(claim).is_some()));
    record(Trait::ExistingShare, case.results().any(|result| result.share_id.is_some()));
    record(Trait::ExistingAllocation, case.results().any(|result| result.share_id.is_none()));
    record(Trait::ExtendedResource, case.pod.is_some());
    found
}

fn pools(case: &Case, record: &mut impl FnMut(Trait, bool)) {
    let mut pools: BTreeMap<(&str, &str), Vec<&api::ResourceSliceSpec>> = BTreeMap::new();
    for slice in &case.slices {
        let id = (slice.spec.driver.as_str(), slice.spec.pool.name.as_str());
        pools.entry(id).or_default().push(&slice.spec);
    }
    record(Trait::SeveralPools, pools.len() > 1);
    for slices in pools.values() {
        let newest = slices.iter().map(|spec| spec.pool.generation).max();
        let current = slices.iter().filter(|spec| Some(spec.pool.generation) == newest);
        let with_devices = current.clone().filter(|spec| spec.devices.is_some()).count();
        record(Trait::SeveralSlices, with_devices > 1);
        record(Trait::StaleGeneration, slices.len() > current.clone().count());
        let published = current.clone().count() as i64;
        record(
            Trait::IncompletePool,
            current.clone().any(|spec| spec.pool.resource_slice_count != published),
        );
    }
    for slice in &case.slices {
        record(Trait::SliceNodeSelector, slice.spec.node_selector.is_some());
        record(Trait::AllNodes, slice.spec.all_nodes == Some(true));
        record(Trait::PerDeviceNodes, slice.spec.per_device_node_selection == Some(true));
    }
}

fn devices(case: &Case, record: &mut impl FnMut(Trait, bool)) {
    for (_, device) in case.devices() {
        let consumed = device.consumes_counters.as_ref().map_or(0, Vec::len);
        record(Trait::Counters, consumed > 0);
        record(Trait::SeveralCounterSets, consumed > 1);
        record(Trait::SharedDevice, device.allow_multiple_allocations == Some(true));
        record(Trait::BindingConditions, device.binding_conditions.is_some());
        for capacity in device.capacity.iter().flat_map(BTreeMap::values) {
            let Some(policy) = &capacity.request_policy else { continue };
            record(Trait::PolicyDefault, policy.default.is_some());
            record(Trait::PolicyValues, policy.valid_values.is_some());
            record(Trait::PolicyRange, policy.valid_range.is_some());
            let range = policy.valid_range.as_ref();
            record(Trait::PolicyStep, range.is_some_and(|range| range.step.is_some()));
        }
        for taint in device.taints.iter().flatten() {
            record(Trait::NoSchedule, taint.effect == "NoSchedule");
            record(Trait::NoExecute, taint.effect == "NoExecute");
            record(Trait::InformingTaint, taint.effect == "None");
        }
    }
}

fn requests_and_constraints(case: &Case, record: &mut impl FnMut(Trait, bool)) {
    let with_selectors = |name: &str| {
        let class = case.device_classes.iter().find(|c| c.metadata.name.as_deref() == Some(name));
        class.is_some_and(|class| class.spec.selectors.is_some())
    };
    for request in case.requests() {
        let class = match &request {
            AnyRequest::Exactly(request) => &request.device_class_name,
            AnyRequest::Alternative(request) => &request.device_class_name,
        };
        record(Trait::ClassSelector, with_selectors(class));
        record(Trait::RequestSelector, request.selectors() > 0);
        record(Trait::CapacityRequest, request.has_capacity());
        record(Trait::AdminAccess, request.has_admin_access());
        record(Trait::All, request.is_for_all());
        record(Trait::Count, request.count() > 1);
        for toleration in request.tolerations() {
            let exists = toleration.operator.as_deref() == Some("Exists");
            record(Trait::TolerationExists, exists);
            record(Trait::TolerationEqual, !exists);
        }
    }
    let any_alternative =
        case.open_claims().flat_map(requests).any(|request| request.first_available.is_some());
    record(Trait::FirstAvailable, any_alternative);
    for constraint in case.constraints() {
        record(Trait::MatchAttribute, constraint.match_attribute.is_some());
        record(Trait::DistinctAttribute, constraint.distinct_attribute.is_some());
        let named = constraint.requests.iter().flatten();
        record(Trait::ConstraintOfAlternative, named.into_iter().any(|name| name.contains('/')));
    }
}

/// Counts of features, alone and in combination.
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

    /// Adds the counts of another instance.
    pub(crate) fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        for (pair, count) in &other.together {
            *self.together.entry(*pair).or_default() += count;
        }
    }

    /// Number of cases with both features.
    pub(crate) fn both(&self, first: Trait, second: Trait) -> usize {
        self.together.get(&(first, second)).copied().unwrap_or_default()
    }

    /// Share of the cases with a feature, in percent.
    pub(crate) fn percent(&self, of: Trait) -> f64 {
        self.both(of, of) as f64 * 100.0 / self.cases.max(1) as f64
    }

    /// One line per feature: its share and its rarest combination.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("{:<26}{:>8}   rarest together with\n", "trait", "cases");
        for first in Trait::ALL {
            let others = Trait::ALL.into_iter().filter(|second| *second != first);
            let rarest = others.min_by_key(|second| self.both(first, *second)).unwrap_or(first);
            let _ = writeln!(
                table,
                "{:<26}{:>7.1}%   {rarest:?} ({})",
                format!("{first:?}"),
                self.percent(first),
                self.both(first, rarest)
            );
        }
        table
    }
}
