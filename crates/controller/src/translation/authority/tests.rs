use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::*;

const DAY: i64 = 24 * 3600;

fn hosts() -> Vec<String> {
    vec!["octavo-controller.octavo.svc".to_owned(), "127.0.0.1".to_owned()]
}

fn after(days: i64) -> Timestamp {
    let first: Timestamp = "2028-02-29T12:34:56Z".parse().unwrap();
    Timestamp::from_second(first.as_second() + days * DAY).unwrap()
}

fn first() -> Certificates {
    match step(None, &hosts(), after(0)).unwrap() {
        Step::Replace(made) => made,
        Step::Nothing | Step::Renew(_) => panic!("there is none yet"),
    }
}

/// Whether the API server accepts the certificate under a name.
fn is_accepted(certificates: &Certificates, bundle: &str, name: &str, at: Timestamp) -> bool {
    let authorities: Vec<CertificateDer<'_>> =
        CertificateDer::pem_slice_iter(bundle.as_bytes()).map(Result::unwrap).collect();
    let anchors: Vec<_> =
        authorities.iter().map(|it| anchor_from_trusted_cert(it).unwrap()).collect();
    let own = CertificateDer::from_pem_slice(certificates.certificate.as_bytes()).unwrap();
    let own = EndEntityCert::try_from(&own).unwrap();
    let at = Duration::from_secs(at.as_second().unsigned_abs());
    let (all, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::server_auth());
    let at = UnixTime::since_unix_epoch(at);
    own.verify_for_usage(all, &anchors, &[], at, usage, None, None).is_ok()
        && own.verify_is_valid_for_subject_name(&ServerName::try_from(name).unwrap()).is_ok()
}

#[test]
fn the_first_certificate_is_accepted_under_each_host() {
    let made = first();
    for (name, is_known) in
        [("octavo-controller.octavo.svc", true), ("127.0.0.1", true), ("other.octavo.svc", false)]
    {
        assert_eq!(is_accepted(&made, &made.bundle(after(0)), name, after(0)), is_known, "{name}");
    }
    assert!(Certificates::read(&made.data()) == Some(made));
}

#[test]
fn a_certificate_is_renewed_under_the_same_authority() {
    let made = first();
    assert!(matches!(step(Some(&made), &hosts(), after(240)).unwrap(), Step::Nothing));
    let Step::Renew(renewed) = step(Some(&made), &hosts(), after(250)).unwrap() else { panic!() };
    assert!(renewed.certificate != made.certificate && renewed.key != made.key);
    assert_eq!(renewed.bundle(after(250)), made.bundle(after(250)));
    assert!(is_accepted(&renewed, &made.bundle(after(0)), "127.0.0.1", after(500)));
    let other = vec!["other".to_owned()];
    assert!(matches!(step(Some(&made), &other, after(0)).unwrap(), Step::Renew(_)));
}

#[test]
fn another_authority_is_trusted_together_with_the_one_before() {
    let made = first();
    let now = after(7 * 365);
    let Step::Replace(replaced) = step(Some(&made), &hosts(), now).unwrap() else { panic!() };
    let both = replaced.bundle(now);
    assert!(both.contains(&made.bundle(now)));
    assert!(is_accepted(&replaced, &both, "127.0.0.1", now));
    // A replica that has not read it yet.
    assert!(is_accepted(&made, &both, "127.0.0.1", after(1)));
    let later = now + OVERLAP;
    assert!(!replaced.bundle(later).contains(&made.bundle(now)));
    let Step::Renew(renewed) = step(Some(&replaced), &hosts(), after(7 * 365 + 250)).unwrap()
    else {
        panic!()
    };
    assert_eq!(renewed.bundle(later), replaced.bundle(later));
}

#[test]
fn an_incomplete_secret_is_made_again() {
    let complete = first().data();
    for key in complete.keys() {
        let mut data = complete.clone();
        data.remove(key);
        assert!(Certificates::read(&data).is_none(), "{key}");
    }
}
