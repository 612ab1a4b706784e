//! The last warnings about a domain's pods and daemons.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Event as KubeEvent;
use kube::api::ListParams;
use kube::{Api, Client};

use super::daemon_set_name;
use crate::compute_domain::facts::{DomainFacts, DomainPod};
use crate::error::ViewError;
use crate::explain::Event;
use crate::fetch::{event_of, list};
use crate::snapshot::GapKind;

/// The last warning about each object of a namespace, by kind and name.
type Warnings = BTreeMap<(String, String), Event>;

/// Adds the warnings. A namespace without a pod that waits is not read.
pub(super) async fn add(client: &Client, facts: &mut DomainFacts) -> Result<(), ViewError> {
    let waits = |pod: &DomainPod| pod.phase == "Pending";
    if facts.pods.iter().flatten().any(waits) {
        let warnings = read(client, &facts.name.namespace.clone(), facts).await?;
        facts.pods.iter_mut().flatten().for_each(|pod| add_to(pod, &warnings));
    }
    let members = facts.claims.iter().filter(|claim| claim.node.is_some()).count();
    let ready = facts.daemons.iter().flatten().filter(|daemon| daemon.is_ready).count();
    if facts.daemons.is_some() && ready < members {
        let namespace = facts.controller.lease.namespace().to_owned();
        let warnings = read(client, &namespace, facts).await?;
        facts.daemons.iter_mut().flatten().for_each(|pod| add_to(pod, &warnings));
        if let Some(set) = &mut facts.daemon_set {
            let key = ("DaemonSet".to_owned(), daemon_set_name(&facts.uid));
            set.warning = warnings.get(&key).cloned();
        }
    }
    Ok(())
}

fn add_to(pod: &mut DomainPod, warnings: &Warnings) {
    pod.warning = warnings.get(&("Pod".to_owned(), pod.name.clone())).cloned();
}

async fn read(
    client: &Client,
    namespace: &str,
    facts: &mut DomainFacts,
) -> Result<Warnings, ViewError> {
    let events: Api<KubeEvent> = Api::namespaced(client.clone(), namespace);
    let events = list("events", &events, ListParams::default().fields("type=Warning")).await;
    let mut warnings = Warnings::new();
    for event in facts.known(GapKind::Events, events)?.unwrap_or_default() {
        let about = event.involved_object.clone();
        let key = (about.kind.unwrap_or_default(), about.name.unwrap_or_default());
        let event = event_of(event);
        if warnings.get(&key).is_none_or(|known| known.last_seen <= event.last_seen) {
            warnings.insert(key, event);
        }
    }
    Ok(warnings)
}
