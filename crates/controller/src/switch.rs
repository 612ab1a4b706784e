//! A change of the IMEX settings while domains have pods: it is refused.
//!
//! The pods of a domain import memory through the services under which they started. Without these the imports end. What
//! services these are, the domain's status says, which the controller of the earlier settings wrote.

#[cfg(test)]
mod tests;

use octavo_api::compute_domain::ComputeDomainStatus;
use octavo_api::imex::ImexServices;
use octavo_api::names::{CONDITION_MEMBERS_READY, REASON_HOST_MANAGED};

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
        let Some(found) = domain.status.as_ref().and_then(services_of) else { continue };
        let is_other = found != wanted && refused.as_ref().is_none_or(|it| it.found == found);
        if is_other && !store.view(&domain.uid).members().is_empty() {
            let refused =
                refused.get_or_insert_with(|| SwitchRefused { wanted, found, domains: Vec::new() });
            refused.domains.push(domain.full_name());
        }
    }
    refused.map_or(Ok(()), Err)
}

/// The services under which pods of a domain may have started; `None` if none can have.
fn services_of(status: &ComputeDomainStatus) -> Option<ImexServices> {
    if status.nodes.is_empty() {
        return None;
    }
    let mut conditions = status.conditions.iter();
    if conditions.any(|it| it.type_ == CONDITION_MEMBERS_READY && it.reason == REASON_HOST_MANAGED)
    {
        return Some(ImexServices::OfHost);
    }
    if !status.channels.is_empty() {
        return Some(ImexServices::PerClique);
    }
    // Without an index no service of a domain runs. Nodes without a fabric have none, and need none.
    status.nodes.iter().any(|node| node.index.is_some()).then_some(ImexServices::PerDomain)
}

fn count(domains: usize) -> String {
    match domains {
        1 => "there is a ComputeDomain".to_owned(),
        more => format!("there are {more} ComputeDomains"),
    }
}
