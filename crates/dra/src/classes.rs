//! The classes of a cluster, and the extended resources that they serve.

use std::collections::BTreeMap;

use crate::claim::Class;

/// Prefix of the extended resource that each class serves; the rest is the class name (KEP-5004).
pub const CLASS_RESOURCE_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Classes by name.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    by_name: BTreeMap<String, (i64, Class)>,
}

impl Classes {
    /// Adds or replaces a class. `created` orders classes by age, in any unit. Of two classes for
    /// one extended resource the younger serves it.
    pub fn insert(&mut self, class: Class, created: i64) {
        self.by_name.insert(class.name.clone(), (created, class));
    }

    /// The class with a name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.by_name.get(name).map(|(_, class)| class)
    }

    /// The class that serves an extended resource. It is the class in
    /// `deviceclass.resource.kubernetes.io/<class>`, else the youngest with the resource, first by
    /// name among equals.
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
    /// Classes of equal age.
    fn from_iter<T: IntoIterator<Item = Class>>(classes: T) -> Self {
        let mut all = Self::default();
        for class in classes {
            all.insert(class, 0);
        }
        all
    }
}
