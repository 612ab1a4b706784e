//! What the claims and extended resources of a pod ask for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use octavo_api::names::{EXTENDED_RESOURCE_GPU, LABEL_COMPUTE_DOMAIN};
use octavo_dra::{DeviceRequest, ExtendedClaim, NodeSelector, Request, extended_claim};
use octavo_engine::gpu::ModelSet;
use octavo_engine::shape::GpuDemand;
use octavo_kube_io::objects::{Claim, ObjectName, Pod, PodUid};

use super::Devices;
use super::extended;
use super::pod_claims;
use super::pod_demand::PodDemand;
use super::request_cache::{self, CostLimitScope, RequestCache, ResolvedDemand, Unresolved};

/// What the claims and extended resources of a pod ask for. Valid for the current state of the
/// cluster: compute it again after classes, claims or hardware change.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// UID of the pod.
    pub pod: PodUid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its claims, in the order of the pod's spec.
    pub claims: Vec<AskedClaim>,
    /// GPUs in the engine's terms: the exact demand, or the least that a node must have. On nodes
    /// with a device plugin it is the amount requested from the plugin.
    pub demand: GpuDemand,
    /// Models that fit. Without a demand it has no meaning.
    pub models: ModelSet,
    /// Whether demand and models are exact on nodes with modeled GPUs: the allocator has devices
    /// exactly where the engine has capacity. Otherwise nodes must be tried with
    /// [`Devices::allocate`].
    pub is_exact: bool,
    /// Amounts of extended resources that device classes serve, by name; unused on nodes whose
    /// device plugin serves them.
    pub extended: BTreeMap<String, u64>,
    /// Containers, if extended resources are requested.
    containers: Option<Arc<[octavo_dra::Container]>>,
}

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum AskedClaim {
    /// It is to be allocated.
    Wanted(Arc<Claim>),
    /// It is allocated, or an operation in flight allocates it.
    Allocated {
        /// The claim.
        claim: Arc<Claim>,
        /// The nodes that reach its devices; `None`: all.
        nodes: Option<NodeSelector>,
        /// The pod whose operation allocates it, if that is not observed yet. This operation fails
        /// if that one does.
        allocating: Option<PodUid>,
        /// Whether the pod is reserved as a consumer already.
        is_reserved: bool,
    },
}

/// Why a pod's ask cannot be determined, or cannot be served now.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The claim of a template is not created yet.
    #[error("the claim for {claim:?} is not created from its template yet")]
    NotGenerated {
        /// Its name in the pod.
        claim: String,
    },
    /// The claim does not exist (yet).
    #[error("there is no ResourceClaim {claim}")]
    ClaimNotFound {
        /// The claim.
        claim: ObjectName,
    },
    /// A claim is being deleted.
    #[error("ResourceClaim {claim} is being deleted; the pod waits for another of its name")]
    BeingDeleted {
        /// The claim.
        claim: ObjectName,
    },
    /// A claim from a template that was created for another pod.
    #[error("ResourceClaim {claim} was not created for this pod; delete the claim or the pod")]
    OwnedByOther {
        /// The claim.
        claim: ObjectName,
    },
    /// A claim has the most consumers it may have.
    #[error(
        "ResourceClaim {claim} has 256 consumers, which is the maximum; the pod waits until one ends"
    )]
    TooManyConsumers {
        /// The claim.
        claim: ObjectName,
    },
    /// A claim refers to a class that does not exist.
    #[error("claim {claim}, request {request}: there is no device class {class}")]
    UnknownClass {
        /// The claim.
        claim: ObjectName,
        /// `<request>` or `<request>/<alternative>`.
        request: String,
        /// The class.
        class: String,
    },
    /// All matching devices have binding conditions.
    #[error(
        "claim {claim}, request {request}: all matching devices have binding conditions, which this \
         scheduler does not wait for; let kube-scheduler place the pod, or request other devices"
    )]
    BindingConditions {
        /// The claim.
        claim: ObjectName,
        /// `<request>` or `<request>/<alternative>`.
        request: String,
    },
    /// A request's selectors cost too much to run on every device of the cluster.
    #[error(
        "claim {claim}, request {request}: its CEL selectors cost more than {scope}, which would delay all scheduling; simplify them"
    )]
    TooCostly {
        /// The claim.
        claim: ObjectName,
        /// `<request>` or `<request>/<alternative>`.
        request: String,
        /// Where they do.
        scope: CostLimitScope,
    },
    /// The claims have more distinct requests than the cache keeps at once.
    #[error(
        "the pod's claims have {count} different requests and alternatives, but at most {} are supported, because each is \
         evaluated on every node; use fewer",
        request_cache::MAX_REQUESTS_PER_ASK
    )]
    TooManyRequests {
        /// Distinct requests and alternatives.
        count: usize,
    },
    /// A request's selectors have not run on every device yet.
    #[error(
        "claim {claim}, request {request}: its CEL selectors are being evaluated on the cluster's devices"
    )]
    NotEvaluated {
        /// The claim.
        claim: ObjectName,
        /// `<request>` or `<request>/<alternative>`.
        request: String,
    },
    /// A claim for the pod's extended resources is left from an earlier attempt.
    #[error("ResourceClaim {} is left from an earlier attempt and is being rolled back", .0.meta.name)]
    LeftFromEarlierAttempt(Arc<Claim>),
    /// What an earlier attempt left is being rolled back.
    #[error("ResourceClaim {claim} is being rolled back after an earlier attempt")]
    BeingRolledBack {
        /// The claim.
        claim: ObjectName,
    },
}

impl AskError {
    /// Whether an event that is already expected resolves it, without user action.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::NotGenerated { .. }
                | Self::BeingDeleted { .. }
                | Self::LeftFromEarlierAttempt(_)
                | Self::BeingRolledBack { .. }
                | Self::NotEvaluated { .. }
        )
    }
}

impl Ask {
    /// UID of the `ComputeDomain` whose channels it asks for: claims from a domain's template have it as a label.
    pub fn domain(&self) -> Option<&str> {
        let mut labels = self.claims.iter().map(|claim| &claim.claim().meta.labels);
        labels.find_map(|labels| labels.get(LABEL_COMPUTE_DOMAIN)).map(String::as_str)
    }
}

impl AskedClaim {
    /// The claim as observed.
    pub fn claim(&self) -> &Arc<Claim> {
        match self {
            Self::Wanted(claim) | Self::Allocated { claim, .. } => claim,
        }
    }
}

impl Ask {
    /// Whether a claim that is to be allocated has requests with alternatives.
    pub fn has_alternatives(&self) -> bool {
        let is_list = |request: &octavo_dra::Request| {
            matches!(request.ask, octavo_dra::Ask::FirstAvailable(_))
        };
        self.wanted().any(|claim| claim.claim.requests.iter().any(is_list))
    }

    /// Whether the pod asks for no devices.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.extended.is_empty() && !self.demand.is_some()
    }

    /// Claims that are to be allocated.
    pub fn wanted(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.iter().filter_map(|claim| match claim {
            AskedClaim::Wanted(claim) => Some(claim),
            AskedClaim::Allocated { .. } => None,
        })
    }

    /// A text that is equal for asks that request the same from the allocator, whatever their
    /// claims are named.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} {:?} {:?}", self.namespace, self.extended, self.containers);
        for claim in self.wanted() {
            let (requests, constraints) = (&claim.claim.requests, &claim.claim.constraints);
            let _ = write!(text, " {requests:?} {constraints:?}");
        }
        text
    }

    /// The claim for extended resources on a node whose device plugins serve `allocatable`.
    pub(super) fn extended_claim(
        &self,
        devices: &Devices,
        allocatable: &BTreeMap<String, i64>,
    ) -> Option<ExtendedClaim> {
        let containers = self.containers.as_deref()?;
        // A resource that no class serves is a plain amount, which `predicates` checks.
        let served = containers.iter().flat_map(|container| container.requests.keys());
        let served = served.map(|name| {
            let by_plugin = allocatable.get(name).copied();
            let is_plain = !self.extended.contains_key(name);
            (name.clone(), by_plugin.unwrap_or(i64::from(is_plain)))
        });
        extended_claim(containers, &devices.classes, &served.collect()).ok().flatten()
    }
}

impl Devices {
    /// What a pod's claims and extended resources ask for.
    pub fn ask(&self, pod: &Pod) -> Result<Ask, AskError> {
        let ask = self.ask_for(pod, pod_claims::of(&self.assume_cache, pod)?)?;
        if let (false, Some(leftover)) =
            (ask.extended.is_empty(), self.assume_cache.extended_claim_of(&pod.meta.uid))
        {
            return Err(AskError::LeftFromEarlierAttempt(Arc::clone(leftover)));
        }
        Ok(ask)
    }

    /// What a pod that has its devices would ask for if it were created again.
    pub fn ask_again(&self, pod: &Pod) -> Result<Ask, AskError> {
        let unallocated = |claim: AskedClaim| {
            let mut claim = Claim::clone(claim.claim());
            claim.claim.allocation = None;
            claim.reserved_for.clear();
            AskedClaim::Wanted(Arc::new(claim))
        };
        let claims = pod_claims::of(&self.assume_cache, pod)?;
        self.ask_for(pod, claims.into_iter().map(unallocated).collect())
    }

    fn ask_for(&self, pod: &Pod, claims: Vec<AskedClaim>) -> Result<Ask, AskError> {
        let mut ask = Ask {
            pod: pod.uid(),
            namespace: Arc::clone(&pod.meta.name.namespace),
            claims,
            demand: GpuDemand::None,
            models: ModelSet::ALL,
            is_exact: true,
            extended: BTreeMap::new(),
            containers: None,
        };
        let asked = extended::asked(pod);
        if !asked.is_empty() {
            let by_class = asked.iter().filter(|name| self.classes.for_resource(name).is_some());
            ask.extended =
                by_class.map(|name| ((*name).to_owned(), extended::total(pod, name))).collect();
        }
        if !ask.extended.is_empty() {
            let containers = pod.spec.containers.iter().map(|container| octavo_dra::Container {
                name: container.name.clone(),
                kind: container.kind,
                requests: container.requests.clone(),
            });
            ask.containers = Some(containers.collect());
        }
        let extended = ask.extended_claim(self, &BTreeMap::new());
        for claim in ask.wanted() {
            self.check_classes(claim)?;
        }
        let requests = ask.wanted().flat_map(|claim| &claim.claim.requests);
        let requests = requests.chain(extended.iter().flat_map(|claim| &claim.requests));
        check_count(&requests.collect::<Vec<_>>())?;
        let mut demand = PodDemand::default();
        let mut request_cache = self.request_cache();
        request_cache.begin_ask();
        for claim in ask.wanted() {
            self.add(&claim.meta.name, &claim.claim, &mut request_cache, &mut demand)?;
        }
        let plugin_gpus = if asked.contains(EXTENDED_RESOURCE_GPU) {
            extended::total(pod, EXTENDED_RESOURCE_GPU)
        } else {
            0
        };
        if let Some(extended) = &extended {
            let claim = extended.claim(&ask.namespace);
            let name = ObjectName::new(Arc::clone(&ask.namespace), claim.name.as_str());
            self.add(&name, &claim, &mut request_cache, &mut demand)?;
        }
        drop(request_cache);
        let has_claims = ask.wanted().next().is_some();
        (ask.demand, ask.models, ask.is_exact) = demand.total();
        if plugin_gpus > 0 {
            self.add_plugins(&mut ask, plugin_gpus, has_claims, extended.is_some());
        }
        Ok(ask)
    }

    /// Whether a node reaches the claims that are allocated already.
    pub fn is_allowed(&self, ask: &Ask, node: &str) -> bool {
        let unknown = || octavo_dra::Node { name: node.to_owned(), labels: BTreeMap::new() };
        let known_node = self.nodes.get(node).map(|view| &view.node);
        let node = known_node.map_or_else(|| Cow::Owned(unknown()), Cow::Borrowed);
        ask.claims.iter().all(|claim| match claim {
            AskedClaim::Allocated { nodes: Some(nodes), .. } => {
                nodes.matches(&node).unwrap_or(false)
            }
            AskedClaim::Allocated { nodes: None, .. } | AskedClaim::Wanted(_) => true,
        })
    }

    fn check_classes(&self, claim: &Claim) -> Result<(), AskError> {
        for request in &claim.claim.requests {
            for (alternative, one) in alternatives(request) {
                if self.classes.class(&one.class).is_none() {
                    return Err(AskError::UnknownClass {
                        claim: claim.meta.name.clone(),
                        request: full_name(&request.name, alternative),
                        class: one.class.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Adds what a claim asks for.
    fn add(
        &self,
        name: &ObjectName,
        claim: &octavo_dra::Claim,
        request_cache: &mut RequestCache,
        demand: &mut PodDemand,
    ) -> Result<(), AskError> {
        demand.is_exact &= claim.constraints.is_empty();
        for request in &claim.requests {
            match &request.ask {
                octavo_dra::Ask::Exactly(one) => {
                    let resolved = request_cache.resolve(self, one);
                    let resolved = check_resolved(name, || request.name.clone(), resolved)?;
                    if resolved.is_conditional {
                        let (claim, request) = (name.clone(), request.name.clone());
                        return Err(AskError::BindingConditions { claim, request });
                    }
                    demand.add(one, resolved);
                }
                octavo_dra::Ask::FirstAvailable(all) => {
                    demand.is_exact = false;
                    for (alternative, one) in all {
                        let full = || full_name(&request.name, Some(alternative));
                        check_resolved(name, full, request_cache.resolve(self, one))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the GPUs of device plugins. On their nodes GPUs are a plain amount, and other claims
    /// cannot be allocated there.
    fn add_plugins(&self, ask: &mut Ask, count: u64, has_claims: bool, is_by_class: bool) {
        let whole = GpuDemand::Whole { count: u16::try_from(count).unwrap_or(u16::MAX) };
        let plugins = self.models.plugin_models();
        if !is_by_class {
            // No class serves them: device plugins alone do.
            let is_alone = !ask.demand.is_some() && !has_claims;
            ask.demand = if is_alone { whole } else { GpuDemand::None };
            ask.models = plugins;
            ask.is_exact &= is_alone;
        } else if ask.is_exact && ask.demand == whole && !has_claims {
            ask.models = ModelSet(ask.models.0 | plugins.0);
        } else {
            // The least demand on one kind of node may be too much on the other.
            ask.demand = GpuDemand::None;
            ask.models = ModelSet::ALL;
            ask.is_exact = false;
        }
    }
}

/// Checks that the cache can keep all requests at once.
fn check_count(requests: &[&Request]) -> Result<(), AskError> {
    let each =
        || requests.iter().flat_map(|request| alternatives(request)).map(|(_, request)| request);
    if each().nth(request_cache::MAX_REQUESTS_PER_ASK).is_none() {
        return Ok(());
    }
    let count = request_cache::count(each());
    if count > request_cache::MAX_REQUESTS_PER_ASK {
        Err(AskError::TooManyRequests { count })
    } else {
        Ok(())
    }
}

/// The evaluated request, or why it is not available.
fn check_resolved(
    claim: &ObjectName,
    request: impl FnOnce() -> String,
    resolved: Result<ResolvedDemand, Unresolved>,
) -> Result<ResolvedDemand, AskError> {
    resolved.map_err(|why| match (claim.clone(), request(), why) {
        (claim, request, Unresolved::OverLimit(scope)) => {
            AskError::TooCostly { claim, request, scope }
        }
        (claim, request, Unresolved::NotEvaluated) => AskError::NotEvaluated { claim, request },
    })
}

/// A request's alternatives, with their names.
pub(super) fn alternatives(request: &Request) -> Vec<(Option<&str>, &DeviceRequest)> {
    match &request.ask {
        octavo_dra::Ask::Exactly(one) => vec![(None, one)],
        octavo_dra::Ask::FirstAvailable(all) => {
            all.iter().map(|(name, one)| (Some(name.as_str()), one)).collect()
        }
    }
}

/// `<request>` or `<request>/<alternative>`.
pub(super) fn full_name(request: &str, alternative: Option<&str>) -> String {
    match alternative {
        Some(alternative) => format!("{request}/{alternative}"),
        None => request.to_owned(),
    }
}
