//! Domains whose nodes prove who they are.

use std::fs;

use octavo_fake_imex::Config;
use octavo_fake_imex::config::{Identity, Pem, TlsKeys};
use octavo_fake_imex::status::ConnectionStatus;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::{Rack, eventually};

/// Keys in files that a new authority has signed for both nodes.
fn keys(rack: &Rack, name: &str) -> TlsKeys {
    let file = |kind: &str, text: String| {
        let path = rack.path(&format!("{name}-{kind}.pem"));
        fs::write(&path, text).unwrap();
        Pem::File(path)
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = file("authority", params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    let identity = |side: &str| {
        let key = KeyPair::generate().unwrap();
        let names = ["node-0".to_owned(), "node-1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        Identity {
            key: file(&format!("{side}-key"), key.serialize_pem()),
            certificate: file(side, certificate.pem()),
            authority: authority.clone(),
        }
    };
    TlsKeys { server: identity("server"), client: identity("client"), target: None }
}

/// Waits until a node's log has a line about a failed call in each direction.
async fn wait_for_refusals(rack: &Rack) {
    eventually("both directions are refused", async || {
        let log = fs::read_to_string(rack.path("log")).unwrap();
        log.contains("a call of a peer has ended") && log.contains("node 1 (node-1): ")
    })
    .await;
}

#[tokio::test]
async fn nodes_of_one_authority_connect_and_others_do_not() {
    let rack = Rack::new(2);
    let (ours, theirs) = (keys(&rack, "ours"), keys(&rack, "theirs"));
    let with = |node, tls: Option<&TlsKeys>| Config { tls: tls.cloned(), ..rack.config(node) };
    let _first = rack.start_with(with(0, Some(&ours)), 0).await;
    rack.wait_until_ready(0).await;
    for stranger in [None, Some(&theirs)] {
        let second = rack.start_with(with(1, stranger), 1).await;
        rack.wait_until_ready(1).await;
        wait_for_refusals(&rack).await;
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(rack.link(from, to).await, ConnectionStatus::NeverConnected);
        }
        second.shut_down().await;
        fs::write(rack.path("log"), "").unwrap();
    }
    let _second = rack.start_with(with(1, Some(&ours)), 1).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
    rack.wait_for_link(1, 0, ConnectionStatus::Connected).await;
}

#[tokio::test]
async fn a_name_that_all_certificates_have_may_be_given() {
    let rack = Rack::new(2);
    let ours = TlsKeys { target: Some("node-1".to_owned()), ..keys(&rack, "ours") };
    let wrong = TlsKeys { target: Some("other".to_owned()), ..ours.clone() };
    let with = |node, tls: &TlsKeys| Config { tls: Some(tls.clone()), ..rack.config(node) };
    let _second = rack.start_with(with(1, &ours), 1).await;
    let first = rack.start_with(with(0, &wrong), 0).await;
    rack.wait_for_link(1, 0, ConnectionStatus::Connected).await;
    eventually("the wrong name is logged", async || {
        fs::read_to_string(rack.path("log")).unwrap().contains("node 1 (node-1): ")
    })
    .await;
    assert_eq!(rack.link(0, 1).await, ConnectionStatus::NeverConnected);
    first.shut_down().await;
    let _first = rack.start_with(with(0, &ours), 0).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
}
