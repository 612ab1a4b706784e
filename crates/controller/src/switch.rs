//! A change of the IMEX settings while domains have pods: it is refused.
//!
//! The pods of a domain import memory through the services under which they started. Without these the imports end. What
//! services these are, the domain's status says, which the controller of the earlier settings wrote. Whether they encrypt, the
//! pods of the daemons say.

#[cfg(test)]
mod tests;

use std::fmt;

use octavo_api::compute_domain::ComputeDomainStatus;
use octavo_api::imex::{ImexServices, ImexSettings};

use crate::store::Store;
use crate::view::DaemonPod;

/// Names in a message; more are counted.
const MAX_NAMES: usize = 5;

/// The services of pods, and whether they encrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The services.
    pub services: ImexServices,
    /// Whether they encrypt, if this matters.
    pub encryption: Option<bool>,
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.encryption {
            Some(encryption) => write!(f, "{}, imex.encryption: {encryption}", self.services),
            None => self.services.fmt(f),
        }
    }
}

/// Domains have pods under other settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the settings are `{wanted}`, and {} with pods under `{found}`: {}; delete these pods first, or set the config back",
    count(domains.len()),
    domains.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ")
)]
pub struct SwitchRefused {
    /// The settings.
    pub wanted: Used,
    /// Those of the domains.
    pub found: Used,
    /// The domains, as `<namespace>/<name>`.
    pub domains: Vec<String>,
}

/// Refuses the settings if a domain has members under other ones. The store is complete.
pub fn check(store: &Store, settings: ImexSettings) -> Result<(), SwitchRefused> {
    let wanted = settings.services().unwrap_or_default();
    let mut refused: Option<SwitchRefused> = None;
    for domain in store.domains() {
        // Without nodes in its status no pod can have started.
        let status = domain.status.as_ref().filter(|status| !status.nodes.is_empty());
        let Some(found) = status.and_then(ComputeDomainStatus::services) else { continue };
        let view = store.view(&domain.uid);
        let pods = if found == ImexServices::PerClique { &view.shared.pods } else { &view.pods };
        let encrypts_otherwise =
            |pod: &DaemonPod| pod.is_encrypted() != settings.encryption && !pod.is_deleting;
        let is_other = found == wanted && pods.iter().any(encrypts_otherwise);
        if (found == wanted && !is_other) || view.members().is_empty() {
            continue;
        }
        let used = |services, encryption: bool| Used {
            services,
            encryption: is_other.then_some(encryption),
        };
        let found = used(found, !settings.encryption);
        let refused = refused.get_or_insert_with(|| SwitchRefused {
            wanted: used(wanted, settings.encryption),
            found,
            domains: Vec::new(),
        });
        if refused.found == found {
            refused.domains.push(domain.full_name());
        }
    }
    refused.map_or(Ok(()), Err)
}

fn count(domains: usize) -> String {
    match domains {
        1 => "there is a ComputeDomain".to_owned(),
        more => format!("there are {more} ComputeDomains"),
    }
}
