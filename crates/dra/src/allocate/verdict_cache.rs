//! Results of selectors, one for each class of equivalent devices.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::pools::Inventory;
use octavo_cel::{CelError, DeviceView, SelectorCache};

/// Limit of the selectors with kept results.
const MAX_KEPT_SELECTORS: usize = 256;

/// Compiled selectors and their results.
#[derive(Debug, Default)]
pub(super) struct VerdictCache {
    selectors: SelectorCache,
    verdicts: RwLock<HashMap<String, Arc<Verdicts>>>,
}

/// The results of one selector.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// The selector.
    pub(super) expression: String,
    /// The result for the representative of each equivalence class.
    by_device: Box<[OnceLock<Result<bool, CelError>>]>,
}

impl VerdictCache {
    /// The results of a selector. The selector is compiled when the first device needs it.
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

    /// The result of a selector for a device.
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

/// The error of a representative, for another device of its equivalence class.
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
