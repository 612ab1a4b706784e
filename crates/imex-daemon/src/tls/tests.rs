use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use super::*;
use crate::slots;

const NAME: &str = "compute-domain-daemon-0000";

/// An authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate with the names of four slots, which ends with a year.
    pub(crate) fn issue(&self, folder: &Path, last_year: i32) {
        let names: Vec<String> = (0..4).map(slots::name).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
        fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
        fs::write(folder.join("ca.crt"), &self.pem).unwrap();
    }
}

fn folder(authority: &Authority, last_year: i32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    authority.issue(folder.path(), last_year);
    let path = folder.path().to_owned();
    (folder, path)
}

#[test]
fn a_certificate_is_used_while_it_is_valid_and_of_this_authority() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (_kept, path) = folder(&ours, 2090);
    assert!(verify(&path, NAME).is_ok());
    let problem = |name: &str| verify(&path, name).unwrap_err();
    let other_name = problem("compute-domain-daemon-0004");
    assert!(other_name.contains("has not the name compute-domain-daemon-0004"), "{other_name}");

    fs::write(path.join("ca.crt"), &theirs.pem).unwrap();
    let foreign = problem(NAME);
    assert!(foreign.contains("not signed by the authority"), "{foreign}");
    assert!(foreign.contains("DaemonSet"), "{foreign}");

    ours.issue(&path, 2021);
    let expired = problem(NAME);
    assert!(expired.contains("it has expired"), "{expired}");
}

#[test]
fn files_that_do_not_fit_or_are_missing_are_named() {
    let ours = Authority::new();
    let ((_kept, path), (_kept_too, other)) = (folder(&ours, 2090), folder(&ours, 2090));
    fs::copy(other.join("tls.key"), path.join("tls.key")).unwrap();
    let mixed = verify(&path, NAME).unwrap_err();
    assert!(mixed.contains("not of the key in tls.key"), "{mixed}");
    fs::remove_file(path.join("ca.crt")).unwrap();
    let missing = verify(&path, NAME).unwrap_err();
    assert!(missing.contains("ca.crt cannot be read"), "{missing}");
}
