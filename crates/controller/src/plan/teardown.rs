//! The end of a domain, in order: labels, `DaemonSet`, templates, Secret, cliques, finalizer.

use octavo_api::names::LABEL_COMPUTE_DOMAIN;

use super::Write;
use crate::config::Config;
use crate::view::{CertificateSecret, Domain, OwnedKind, OwnedObject, View};
use crate::wanted;

/// Adds the finalizer.
pub(super) fn add_finalizer(domain: &Domain) -> Write {
    let finalizers = domain.finalizers.iter().map(String::as_str);
    set_finalizers(domain, finalizers.chain([LABEL_COMPUTE_DOMAIN]))
}

/// Removes all that was made for a deleted domain without members, and its finalizer last.
pub(super) fn domain(view: &View, domain: &Domain) -> Vec<Write> {
    let rest = remove(view, view.templates.iter().collect());
    if rest.is_empty() && is_bare(view) && domain.has_finalizer() {
        let others = domain.finalizers.iter().map(String::as_str);
        return vec![set_finalizers(domain, others.filter(|name| *name != LABEL_COMPUTE_DOMAIN))];
    }
    rest
}

/// Removes all with the label of a domain that does not exist. Nodes keep the label while claims of the domain are allocated
/// there, and with it their daemons; new claims are not made.
pub(super) fn orphans(view: &View, config: &Config) -> Vec<Write> {
    let rest = remove(view, view.templates.iter().collect());
    if rest.is_empty() { workload_templates(view, config) } else { rest }
}

/// Removes the daemons that a domain had before the setting changed.
pub(super) fn daemons(view: &View, config: &Config) -> Vec<Write> {
    let templates = view.templates.iter().filter(|object| is_daemons(object, view, config));
    remove(view, templates.collect())
}

/// Deletes the templates of the pods' claims, and keeps those of the daemons.
pub(super) fn workload_templates(view: &View, config: &Config) -> Vec<Write> {
    let templates = view.templates.iter().filter(|object| !is_daemons(object, view, config));
    templates.filter_map(delete).collect()
}

/// Whether a template is that of the daemons' claims.
fn is_daemons(object: &OwnedObject, view: &View, config: &Config) -> bool {
    object.namespace == config.namespace && object.name == wanted::daemon_name(&view.uid)
}

/// Deletes an object. NVIDIA's controller would wait for its finalizer, which nothing removes any more.
pub(super) fn delete(object: &OwnedObject) -> Option<Write> {
    // NVIDIA's driver makes no Secrets, so none has its finalizer.
    if object.has_finalizer() && object.kind != OwnedKind::Secret {
        return Some(Write::DropFinalizer(object.clone()));
    }
    (!object.is_deleting).then(|| Write::Delete(object.clone()))
}

/// The writes of the first kind of which something is left: daemons, these templates, Secret, cliques.
fn remove(view: &View, templates: Vec<&OwnedObject>) -> Vec<Write> {
    let has_label = view.nodes.values().any(|node| node.label.as_ref() == Some(&view.uid));
    if has_label {
        return Vec::new();
    }
    if !view.daemon_sets.is_empty() {
        return view.daemon_sets.iter().filter_map(delete).collect();
    }
    if !templates.is_empty() {
        return templates.into_iter().filter_map(delete).collect();
    }
    let secrets: Vec<&CertificateSecret> = own_secret(view).collect();
    if !secrets.is_empty() {
        return secrets.into_iter().filter_map(|secret| delete(&secret.object)).collect();
    }
    // A daemon that still runs would write its entry again.
    if view.pods.iter().any(|pod| !pod.is_deleting) {
        return Vec::new();
    }
    view.cliques.iter().filter_map(|clique| delete(&clique.object)).collect()
}

/// The Secret of the domain's daemons. One of another owner stays.
fn own_secret(view: &View) -> impl Iterator<Item = &CertificateSecret> {
    view.secret.iter().filter(|secret| !secret.is_foreign())
}

fn is_bare(view: &View) -> bool {
    view.daemon_sets.is_empty()
        && own_secret(view).next().is_none()
        && view.templates.is_empty()
        && view.cliques.is_empty()
        && view.pods.iter().all(|pod| pod.is_deleting)
        && view.nodes.values().all(|node| node.label.as_ref() != Some(&view.uid))
}

fn set_finalizers<'a>(domain: &Domain, finalizers: impl Iterator<Item = &'a str>) -> Write {
    Write::SetFinalizers {
        namespace: domain.namespace.clone(),
        name: domain.name.clone(),
        resource_version: domain.resource_version.clone(),
        finalizers: finalizers.map(str::to_owned).collect(),
    }
}
