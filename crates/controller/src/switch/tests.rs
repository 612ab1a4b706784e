use octavo_api::Condition;
use octavo_api::compute_domain::{ComputeDomainChannelNumber, ComputeDomainNode};
use octavo_api::imex::{ImexIsolation, ImexMode};
use octavo_api::names::{CONDITION_READY, REASON_HOST_MANAGED, SHARED_IMEX_DOMAIN};

use super::*;
use crate::store::Change;
use crate::testing::{Server, claim, domain, pod, read, read_with};
use crate::view::Domain;

fn status(index: Option<i64>) -> ComputeDomainStatus {
    let node = ComputeDomainNode { index, name: "n".to_owned(), ..ComputeDomainNode::default() };
    ComputeDomainStatus { nodes: vec![node], ..ComputeDomainStatus::default() }
}

fn with_channel() -> ComputeDomainStatus {
    let channel = ComputeDomainChannelNumber { clique_id: "c".to_owned(), channel: 0 };
    ComputeDomainStatus { channels: vec![channel], ..status(Some(0)) }
}

fn of_host() -> ComputeDomainStatus {
    let condition = Condition {
        // `MembersReady` may have another reason, such as a gang that is not complete.
        type_: CONDITION_READY.to_owned(),
        reason: REASON_HOST_MANAGED.to_owned(),
        ..Condition::default()
    };
    ComputeDomainStatus { conditions: vec![condition], ..status(None) }
}

fn settings(services: ImexServices) -> ImexSettings {
    let (mode, isolation) = match services {
        ImexServices::PerDomain => (ImexMode::DriverManaged, ImexIsolation::Domain),
        ImexServices::PerClique => (ImexMode::DriverManaged, ImexIsolation::Channel),
        ImexServices::OfHost => (ImexMode::HostManaged, ImexIsolation::Domain),
    };
    ImexSettings { mode, isolation, encryption: false }
}

/// The check with a domain that has this status, with or without a member.
fn checked(
    status: ComputeDomainStatus,
    has_member: bool,
    wanted: ImexServices,
) -> Result<(), SwitchRefused> {
    let wanted = settings(wanted);
    let mut server = Server::default();
    server.put_domain(Domain { status: Some(status), ..domain("a") });
    if has_member {
        server.put_claim(claim("a", "n"));
    }
    check(&read(server.objects.values().cloned().map(Change::Put)), wanted)
}

#[test]
fn members_under_other_settings_refuse_the_change() {
    use ImexServices::{OfHost, PerClique, PerDomain};
    for (status, services) in
        [(status(Some(0)), PerDomain), (with_channel(), PerClique), (of_host(), OfHost)]
    {
        for wanted in [PerDomain, PerClique, OfHost] {
            let checked = |has_member| checked(status.clone(), has_member, wanted);
            assert_eq!(checked(true).is_ok(), services == wanted, "{services} to {wanted}");
            assert_eq!(checked(false), Ok(()), "without members all are fine");
        }
    }
}

#[test]
fn the_refusal_names_settings_and_domains() {
    let error = checked(with_channel(), true, ImexServices::OfHost).unwrap_err().to_string();
    for part in ["hostManaged", "isolation: channel", "team/domain-a", "delete", "a ComputeDomain"]
    {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn members_without_a_service_do_not_count() {
    // No daemon has an index yet, or the node has no fabric: nothing is imported.
    assert_eq!(checked(status(None), true, ImexServices::PerClique), Ok(()));
    assert_eq!(checked(ComputeDomainStatus::default(), true, ImexServices::OfHost), Ok(()));
}

#[test]
fn members_whose_daemons_do_not_encrypt_refuse_encryption_and_the_other_way_round() {
    for (services, status) in
        [(ImexServices::PerDomain, status(Some(0))), (ImexServices::PerClique, with_channel())]
    {
        let daemons = if services == ImexServices::PerClique { SHARED_IMEX_DOMAIN } else { "a" };
        for (wanted, is_encrypted) in [(true, false), (false, true), (true, true)] {
            let mut server = Server::default();
            server.put_domain(Domain { status: Some(status.clone()), ..domain("a") });
            server.put_node("n", Some("c"), None);
            let secret = is_encrypted.then(|| "s".to_owned());
            server.put_pod(DaemonPod { secret, ..pod(daemons, "n", "1") });
            let wanted_settings = ImexSettings { encryption: wanted, ..settings(services) };
            let checked = |server: &Server| {
                let changes = server.objects.values().cloned().map(Change::Put);
                check(&read_with(services, changes), wanted_settings)
            };
            assert_eq!(checked(&server), Ok(()), "without members all are fine");
            server.put_claim(claim("a", "n"));
            let result = checked(&server);
            assert_eq!(result.is_ok(), wanted == is_encrypted, "{result:?}");
            if let Err(error) = result {
                let text = error.to_string();
                let wanted = format!("encryption: {wanted}`");
                let found = format!("encryption: {is_encrypted}`");
                assert!(text.contains(&wanted) && text.contains(&found), "{text}");
            }
        }
    }
}
