//! Selectors, run once for each kind of device that somebody asks about.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::pools::Inventory;
use octavo_cel::{CelError, DeviceView, SelectorCache};

/// Most selectors whose verdicts are kept.
const MAX_KEPT_SELECTORS: usize = 256;

/// The selectors that were asked for so far, with what they said.
#[derive(Debug, Default)]
pub(super) struct VerdictCache {
    selectors: SelectorCache,
    verdicts: RwLock<HashMap<String, Arc<Verdicts>>>,
}

/// What one selector says of each kind of device.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// The selector.
    pub(super) expression: String,
    /// Whether it matches the first device of a kind, or why it cannot say.
    by_device: Box<[OnceLock<Result<bool, CelError>>]>,
}

impl VerdictCache {
    /// The verdicts of a selector. It is compiled when the first device needs it.
    pub(super) fn verdicts(&self, inventory: &Inventory<'_>, expression: &str) -> Arc<Verdicts> {
        let known = self.verdicts.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdicts) = known.get(expression) {
            return Arc::clone(verdicts);
        }
        drop(known);
        let mut known = self.verdicts.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KEPT_SELECTORS {
            known.clear();
        }
        let verdicts = known.entry(expression.to_owned()).or_insert_with(|| {
            let by_device = (0..inventory.device_count()).map(|_| OnceLock::new()).collect();
            Arc::new(Verdicts { expression: expression.to_owned(), by_device })
        });
        Arc::clone(verdicts)
    }

    /// What a selector says of a device.
    pub(super) fn verdict<'v>(
        &self,
        inventory: &Inventory<'_>,
        verdicts: &'v Verdicts,
        device: usize,
    ) -> Result<bool, &'v CelError> {
        let first = inventory.representative(device);
        let verdict = verdicts.by_device[first].get_or_init(|| {
            let published = inventory.published(first);
            let driver = &inventory.slices[published.slice].driver;
            let view = DeviceView { driver, device: published.device };
            self.selectors.get(&verdicts.expression)?.matches(view)
        });
        verdict.as_ref().copied()
    }
}

/// The same error, said of a device: what was found for one of its kind holds for it.
pub(super) fn for_device(error: &CelError, of: &str) -> CelError {
    let mut error = error.clone();
    match &mut error {
        CelError::Runtime { device, .. }
        | CelError::NotBool { device, .. }
        | CelError::TooCostly { device, .. } => of.clone_into(device),
        CelError::Compile { .. } | CelError::TooLong { .. } => {}
    }
    error
}
