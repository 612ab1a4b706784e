//! A reference to a driver that another part of the program keeps open.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::Driver;

/// A weak reference to an open driver. Users hold it for one call only, since the old driver must be closed
/// before a new one is opened.
#[derive(Clone, Default)]
pub struct DriverHandle(Option<Weak<dyn Driver>>);

impl DriverHandle {
    /// Hands out a driver without keeping it open.
    pub fn of(driver: &Arc<dyn Driver>) -> Self {
        Self(Some(Arc::downgrade(driver)))
    }

    /// The driver; `None` while it is closed. Its calls block.
    pub fn get(&self) -> Option<Arc<dyn Driver>> {
        self.0.as_ref()?.upgrade()
    }
}

impl fmt::Debug for DriverHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.get().is_some() { "open" } else { "closed" })
    }
}
