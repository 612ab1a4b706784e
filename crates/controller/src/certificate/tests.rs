use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::*;

const DAY: i64 = 24 * 3600;

fn request() -> CertificateRequest {
    CertificateRequest {
        namespace: "octavo".to_owned(),
        domain: "a".to_owned(),
        title: "ComputeDomain a".to_owned(),
        owner: "u".to_owned(),
        slots: 3,
    }
}

fn now() -> Timestamp {
    "2028-02-29T12:34:56Z".parse().unwrap()
}

/// What a peer says of a certificate at a time, as server and as client.
fn verify(issued: &Issued, authority: &str, at: Timestamp) -> [Result<(), webpki::Error>; 2] {
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
    let anchors = [anchor_from_trusted_cert(&authority).unwrap()];
    let own = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let own = EndEntityCert::try_from(&own).unwrap();
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        u64::try_from(at.as_second()).unwrap(),
    ));
    [KeyUsage::server_auth(), KeyUsage::client_auth()].map(|usage| {
        own.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, &[], at, usage, None, None)
            .map(drop)
    })
}

#[test]
fn peers_accept_it_as_servers_and_clients_by_the_name_of_each_slot() {
    let issued = issue(&request(), now()).unwrap();
    assert_eq!(verify(&issued, &issued.authority, now()), [Ok(()), Ok(())]);
    let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let own = EndEntityCert::try_from(&der).unwrap();
    for (slot, is_known) in [(0, true), (2, true), (3, false)] {
        let name = format!("compute-domain-daemon-{slot:04}");
        let name = ServerName::try_from(name).unwrap();
        assert_eq!(own.verify_is_valid_for_subject_name(&name).is_ok(), is_known, "{name:?}");
    }
    // The key is that of the certificate.
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(vec![der], key, &provider).unwrap().keys_match().unwrap();
}

#[test]
fn it_is_valid_for_five_years_also_where_a_clock_is_behind() {
    let issued = issue(&request(), now()).unwrap();
    let after = |seconds: i64| Timestamp::from_second(now().as_second() + seconds).unwrap();
    assert_eq!(issued.expires.to_string(), "2033-02-27T00:00:00Z");
    for (at, is_valid) in [
        (after(-DAY), true),
        (after(-2 * DAY), false),
        (after(VALID_DAYS * DAY - DAY), true),
        (issued.expires, true),
        (after(VALID_DAYS * DAY), false),
    ] {
        let results = verify(&issued, &issued.authority, at);
        assert!(results.iter().all(|result| result.is_ok() == is_valid), "{at}: {results:?}");
    }
}

#[test]
fn each_has_an_authority_and_a_key_of_its_own() {
    let [one, other] = [(); 2].map(|()| issue(&request(), now()).unwrap());
    assert!(one.key != other.key);
    assert!(verify(&one, &other.authority, now()).iter().all(Result::is_err));
}
