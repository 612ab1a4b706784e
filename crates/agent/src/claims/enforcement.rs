//! The enforcement backend of a claim's shares: chosen when the claim is prepared, and recorded.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, PoisonError};

use octavo_api::Refusal;
use octavo_api::config::{GpuShareConfig, OverflowPolicy, SwapUnit};
use octavo_enforcement::backend::{self, Backend, BackendKind, MemoryEnforcement};
use octavo_enforcement::share::{generation, share_folder};

use super::{Devices, Inner};
use crate::checkpoint::{HeldDevice, HeldKind, HeldTerms, Record};

/// Why a share with a limit of memory above its request is refused.
const NO_SWAP: &str = "its memoryLimit is above the memory that it asks for, and the node does not lend memory: \
     remove memoryLimit, or set `memorySwap: processes` of the agent, which needs the guard as the backend";

/// Why a share with a time slice is refused.
const NO_QUANTUM: &str = "a time slice for a share of a GPU, on a node without `timeEnforcement: leases` and the guard as the backend,";

/// Inputs for choosing the backend.
#[derive(Clone, Debug, Default)]
pub(super) struct EnforcementOptions {
    setting: MemoryEnforcement,
    /// The weakest overflow policy that a share can have.
    min_overflow: OverflowPolicy,
    /// Whether processes with a guard have leases of GPU time.
    has_leases: bool,
    /// Whether the node moves memory of shares to the host.
    has_swap: bool,
    /// Namespaces whose shares nothing holds.
    exempt: BTreeSet<String>,
    /// Whether the driver supports memory limits; `None` until it was opened.
    has_limits: Option<bool>,
}

impl Inner {
    /// Takes the setting.
    pub(super) fn set_memory_enforcement(&self, setting: MemoryEnforcement) {
        self.enforcement.lock().unwrap_or_else(PoisonError::into_inner).setting = setting;
    }

    /// Takes the weakest overflow policy that a share can have.
    pub(super) fn set_min_overflow(&self, policy: OverflowPolicy) {
        let mut options = self.enforcement.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut options.min_overflow, policy);
        drop(options);
        if old == policy {
            return;
        }
        self.publish_active_shares();
        self.report_prepared();
    }

    /// Takes whether processes with a guard have leases of GPU time.
    pub(super) fn set_has_leases(&self, has_leases: bool) {
        let mut options = self.enforcement.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut options.has_leases, has_leases);
        drop(options);
        if old != has_leases {
            self.report_prepared();
        }
    }

    /// Whether processes with a guard have leases of GPU time.
    pub(super) fn has_leases(&self) -> bool {
        self.enforcement.lock().unwrap_or_else(PoisonError::into_inner).has_leases
    }

    /// Whether shares that are prepared now are held to their part of the GPU's time.
    pub(super) fn enforces_time(&self) -> bool {
        let options = self.enforcement.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let backend = backend::choose(options.setting, options.has_limits, &self.paths.cgroup_root);
        options.has_leases && backend == Ok(BackendKind::Guard)
    }

    /// Takes whether the node moves memory of shares to the host.
    pub(super) fn set_has_swap(&self, has_swap: bool) {
        let mut options = self.enforcement.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut options.has_swap, has_swap);
        drop(options);
        if old != has_swap {
            self.report_prepared();
        }
    }

    /// Whether the node moves memory of shares to the host.
    pub(super) fn has_swap(&self) -> bool {
        self.enforcement.lock().unwrap_or_else(PoisonError::into_inner).has_swap
    }

    /// The weakest overflow policy that a share can have.
    pub(super) fn min_overflow(&self) -> OverflowPolicy {
        self.enforcement.lock().unwrap_or_else(PoisonError::into_inner).min_overflow
    }

    /// Takes the namespaces whose shares nothing holds.
    pub(super) fn set_exempt_namespaces(&self, namespaces: BTreeSet<String>) {
        self.enforcement.lock().unwrap_or_else(PoisonError::into_inner).exempt = namespaces;
    }

    /// Takes whether the driver has limits of its own.
    pub(super) fn set_has_limits(&self, has_limits: bool) {
        let mut backend = self.enforcement.lock().unwrap_or_else(PoisonError::into_inner);
        backend.has_limits = Some(has_limits);
    }

    /// Chooses the backend for the shares of a claim that is being prepared, and checks that it works.
    ///
    /// If the backend is not available, the driver's files are searched again. Blocks on them in that case.
    pub(super) fn choose_backends(
        &self,
        record: &mut Record,
        devices: Arc<Devices>,
    ) -> Result<Arc<Devices>, Refusal> {
        let uid = record.claim.uid.clone();
        let is_limited = |held: &HeldDevice| match held.kind {
            HeldKind::Share(share) => !share.is_unlimited(),
            HeldKind::Whole | HeldKind::Mig(_) => false,
        };
        let shares = record.devices.iter_mut();
        let mut shares: Vec<_> =
            shares.filter(|held| held.terms.is_some() && is_limited(held)).collect();
        let Some(device) = shares.first().map(|held| held.device.clone()) else {
            return Ok(devices);
        };
        let refused = |problem| Refusal::EnforcementNotReady {
            device: device.clone(),
            problem,
            node: self.node.clone(),
        };
        let options = self.enforcement.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_exempt = options.exempt.contains(&record.claim.namespace);
        let kind = if is_exempt {
            BackendKind::Off
        } else {
            let kind =
                backend::choose(options.setting, options.has_limits, &self.paths.cgroup_root);
            kind.map_err(refused)?
        };
        for terms in shares.iter_mut().filter_map(|held| held.terms.as_mut()) {
            terms.is_exempt = is_exempt;
            if is_exempt {
                // Nothing would give them an effect.
                (terms.memory_limit, terms.quantum_ms) = (None, None);
                terms.swap_unit = SwapUnit::default();
            }
        }
        let has_leases = options.has_leases && kind == BackendKind::Guard;
        let has_quantum =
            |held: &&&mut HeldDevice| held.terms.is_some_and(|terms| terms.quantum_ms.is_some());
        if let Some(sliced) = shares.iter().find(has_quantum).filter(|_| !has_leases) {
            return Err(Refusal::NotYetSupported {
                request: sliced.requests.join(", "),
                what: NO_QUANTUM.to_owned(),
            });
        }
        let may_swap = options.has_swap && kind == BackendKind::Guard;
        if !may_swap && shares.iter().any(|held| held.memory_limit().is_some()) {
            return Err(refused(NO_SWAP.to_owned()));
        }
        let devices = match devices.backends.of(kind) {
            Ok(_) => devices,
            Err(_) => self.refresh_driver_files(&devices),
        };
        devices.backends.of(kind).map_err(refused)?;
        for held in &mut shares {
            let Some(share_id) = held.share_id.as_deref() else { continue };
            let folder = share_folder(&uid, share_id).on_host(&self.paths.run_root);
            if let Some(terms) = &mut held.terms {
                terms.backend = kind;
                terms.overflow = terms.overflow.max(options.min_overflow);
                // Running containers have mapped the files, for example if the claim's record was damaged.
                terms.generation = generation(&folder).unwrap_or_else(|| new_generation(share_id));
            }
        }
        Ok(devices)
    }

    /// The devices with the driver's files searched again.
    fn refresh_driver_files(&self, old: &Arc<Devices>) -> Arc<Devices> {
        let (files, backends) = self.find_files(&old.driver_version);
        let devices = Arc::new(Devices {
            driver_version: old.driver_version.clone(),
            by_name: old.by_name.clone(),
            dynamic: old.dynamic.clone(),
            files,
            backends,
        });
        let mut known = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        // Newer ones may have come meanwhile.
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, old)) {
            *known = Some(Arc::clone(&devices));
        }
        devices
    }

    /// The backend of a share, ready on the host; `None` for other devices and for shares without enforcement.
    pub(super) fn backend<'a>(
        &self,
        devices: &'a Devices,
        held: &HeldDevice,
    ) -> Result<Option<&'a dyn Backend>, Refusal> {
        let Some(terms) = &held.terms else { return Ok(None) };
        let refused = |problem| Refusal::EnforcementNotReady {
            device: held.device.clone(),
            problem,
            node: self.node.clone(),
        };
        let backend = devices.backends.of(terms.backend).map_err(refused)?;
        if let Some(backend) = backend {
            backend.ensure().map_err(|error| refused(error.to_string()))?;
        }
        Ok(backend)
    }
}

/// Enforcement before the decision: off. Never written to disk.
pub(super) fn undecided(config: GpuShareConfig) -> HeldTerms {
    HeldTerms {
        backend: BackendKind::Off,
        overflow: config.overflow_policy.unwrap_or_default(),
        strictness: config.strictness.unwrap_or_default(),
        class: config.class.unwrap_or_default(),
        compute_limit: config.compute_limit.map(|limit| limit.0),
        memory_limit: None,
        swap_unit: config.swap_unit.unwrap_or_default(),
        quantum_ms: None,
        is_exempt: false,
        generation: 0,
    }
}

/// A nonzero number unique to this version of a share's files.
fn new_generation(share_id: &str) -> u64 {
    // Each new state of the standard hasher has a random key.
    RandomState::new().hash_one(share_id).max(1)
}
