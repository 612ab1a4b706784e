//! Templates and the `DaemonSet` of a domain.

use serde_json::Value;

use super::Write;
use super::certificate::{self, Before};
use super::teardown::delete;
use crate::config::Config;
use crate::view::{Domain, OwnedObject, View};
use crate::wanted::{self, DaemonsOf};

/// Whether the name of the workload template belongs to another object.
pub(super) fn is_template_taken(view: &View, domain: &Domain) -> bool {
    view.template_by_name.as_ref().is_some_and(|object| !object.is_of(&domain.uid))
}

/// Makes the template of the pods' claims. One of another owner is left alone.
pub(super) fn workload_template(view: &View, domain: &Domain) -> Option<Write> {
    if is_template_taken(view, domain) {
        return None;
    }
    template(view.template_by_name.as_ref(), wanted::workload_template(domain))
}

/// Makes the daemons' template, then their `DaemonSet`, and then their certificate.
pub(super) fn daemons(view: &View, daemons: DaemonsOf<'_>, config: &Config) -> Option<Write> {
    let name = wanted::daemon_name(&view.uid);
    let is_named =
        |object: &&OwnedObject| object.namespace == config.namespace && object.name == name;
    let found = view.templates.iter().find(is_named);
    template(found, wanted::daemon_template(daemons, config)).or_else(|| {
        let found = view.daemon_sets.iter().find(is_named);
        match certificate::before_daemons(view, found, config) {
            Before::Nothing => {}
            Before::Waiting => return None,
            Before::Deletion(object) => return delete(object),
        }
        daemon_set(found, wanted::daemon_set(daemons, config))
            .or_else(|| certificate::issue(view, daemons, found, config))
    })
}

/// A template cannot change. One with another content, such as that of NVIDIA's controller, is made again.
fn template(found: Option<&OwnedObject>, wanted: Value) -> Option<Write> {
    let Some(found) = found else { return Some(Write::Create(wanted)) };
    let is_wanted = found.hash.as_deref() == wanted::hash_of(&wanted) && !found.is_deleting;
    if is_wanted { None } else { delete(found) }
}

fn daemon_set(found: Option<&OwnedObject>, wanted: Value) -> Option<Write> {
    let Some(found) = found else { return Some(Write::Create(wanted)) };
    if found.is_deleting {
        return delete(found);
    }
    let is_wanted = found.hash.as_deref() == wanted::hash_of(&wanted);
    let resource_version = found.resource_version.clone();
    (!is_wanted).then_some(Write::ReplaceDaemonSet { resource_version, object: wanted })
}
