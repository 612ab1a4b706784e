//! A change of the IMEX settings while domains have pods: it is refused.
//!
//! The pods of a domain import memory through the services under which they started. Without these the imports end. What
//! services these are, the domain's status says, which the controller of the earlier settings wrote.

#[cfg(test)]
mod tests;

use octavo_api::compute_domain::ComputeDomainStatus;
use octavo_api::imex::ImexServices;

use crate::store::Store;

/// Names in a message; more are counted.
const MAX_NAMES: usize = 5;

/// Domains have pods under other settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the settings are `{wanted}`, and {} with pods under `{found}`: {}; delete these pods first, or set the config back",
    count(domains.len()),
    domains.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ")
)]
pub struct SwitchRefused {
    /// The services of the settings.
    pub wanted: ImexServices,
    /// Those of the domains.
    pub found: ImexServices,
    /// The domains, as `<namespace>/<name>`.
    pub domains: Vec<String>,
}

/// Refuses the settings if a domain has members under other ones. The store is complete.
pub fn check(store: &Store, wanted: ImexServices) -> Result<(), SwitchRefused> {
    let mut refused: Option<SwitchRefused> = None;
    for domain in store.domains() {
        // Without nodes in its status no pod can have started.
        let status = domain.status.as_ref().filter(|status| !status.nodes.is_empty());
        let Some(found) = status.and_then(ComputeDomainStatus::services) else { continue };
        let is_other = found != wanted && refused.as_ref().is_none_or(|it| it.found == found);
        if is_other && !store.view(&domain.uid).members().is_empty() {
            let refused =
                refused.get_or_insert_with(|| SwitchRefused { wanted, found, domains: Vec::new() });
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
