//! Domains whose nodes prove who they are.

use octavo_fake_imex::Config;
use octavo_fake_imex::config::{Identity, TlsFiles};
use octavo_fake_imex::status::ConnectionStatus;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::Rack;

/// Keys that a new authority has signed for both nodes.
fn keys() -> TlsFiles {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let identity = || {
        let key = KeyPair::generate().unwrap();
        let names = ["node-0".to_owned(), "node-1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        Identity {
            key: key.serialize_pem().into_bytes(),
            certificate: certificate.pem().into_bytes(),
            authority: authority.clone().into_bytes(),
        }
    };
    TlsFiles { server: identity(), client: identity(), target: None }
}

#[tokio::test]
async fn nodes_of_one_authority_connect_and_others_do_not() {
    let (ours, theirs) = (keys(), keys());
    let rack = Rack::new(2);
    let with = |node, tls: Option<&TlsFiles>| Config { tls: tls.cloned(), ..rack.config(node) };
    let _first = rack.start_with(with(0, Some(&ours)), 0).await;
    rack.wait_until_ready(0).await;
    for stranger in [None, Some(&theirs)] {
        let second = rack.start_with(with(1, stranger), 1).await;
        rack.wait_until_ready(1).await;
        rack.wait_for_link(1, 1, ConnectionStatus::Connected).await;
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(rack.link(from, to).await, ConnectionStatus::NeverConnected);
        }
        second.shut_down().await;
    }
    let _second = rack.start_with(with(1, Some(&ours)), 1).await;
    rack.wait_for_link(0, 1, ConnectionStatus::Connected).await;
    rack.wait_for_link(1, 0, ConnectionStatus::Connected).await;
}

#[tokio::test]
async fn a_name_that_all_certificates_have_may_be_given() {
    let ours = TlsFiles { target: Some("node-1".to_owned()), ..keys() };
    let rack = Rack::new(1);
    let wrong = TlsFiles { target: Some("other".to_owned()), ..ours.clone() };
    let first = rack.start_with(Config { tls: Some(wrong), ..rack.config(0) }, 0).await;
    rack.wait_until_ready(0).await;
    assert_eq!(rack.link(0, 0).await, ConnectionStatus::NeverConnected);
    first.shut_down().await;
    let _first = rack.start_with(Config { tls: Some(ours), ..rack.config(0) }, 0).await;
    rack.wait_for_link(0, 0, ConnectionStatus::Connected).await;
}
