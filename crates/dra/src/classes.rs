//! The classes of a cluster, and which of them serves an extended resource.

use std::collections::BTreeMap;

use crate::claim::Class;

/// Prefix of the extended resource that every class serves: the rest is its name (KEP-5004).
pub const CLASS_RESOURCE_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Classes by name.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    by_name: BTreeMap<String, (i64, Class)>,
}

impl Classes {
    /// Adds a class or replaces the one of its name. `created` orders classes by age, in any unit:
    /// of two that name the same extended resource the younger serves it.
    pub fn insert(&mut self, class: Class, created: i64) {
        self.by_name.insert(class.name.clone(), (created, class));
    }

    /// The class of a name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.by_name.get(name).map(|(_, class)| class)
    }

    /// The class that serves an extended resource: the one named in
    /// `deviceclass.resource.kubernetes.io/<class>`, else the youngest that names the resource, the
    /// first by name among equals.
    pub fn for_resource(&self, resource: &str) -> Option<&Class> {
        if let Some(name) = resource.strip_prefix(CLASS_RESOURCE_PREFIX) {
            return self.class(name);
        }
        let mut best: Option<&(i64, Class)> = None;
        for candidate in self.by_name.values() {
            let serves = candidate.1.extended_resource.as_deref() == Some(resource);
            if serves && best.is_none_or(|best| candidate.0 > best.0) {
                best = Some(candidate);
            }
        }
        best.map(|(_, class)| class)
    }
}

impl FromIterator<Class> for Classes {
    /// Classes of the same age.
    fn from_iter<T: IntoIterator<Item = Class>>(classes: T) -> Self {
        let mut all = Self::default();
        for class in classes {
            all.insert(class, 0);
        }
        all
    }
}
