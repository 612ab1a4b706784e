use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage, anchor_from_trusted_cert};

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self::with_nodes(None)
    }

    fn with_nodes(real: Option<&RealNodes>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path(), real).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn certificate(&self, stem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path(&format!("{stem}.crt"))).unwrap()
    }

    /// Verifies a certificate as a peer would: signature, dates, extensions and usage.
    fn verify(&self, stem: &str, authority: &str, usage: KeyUsage) -> Result<(), Error> {
        let (leaf, root) = (self.certificate(stem), self.certificate(authority));
        let anchors = [anchor_from_trusted_cert(&root).unwrap()];
        let provider = rustls::crypto::ring::default_provider();
        let algorithms = provider.signature_verification_algorithms.all;
        EndEntityCert::try_from(&leaf)
            .unwrap()
            .verify_for_usage(algorithms, &anchors, &[], UnixTime::now(), usage, None, None)
            .map(|_| ())
    }

    fn is_server(&self, stem: &str, authority: &str) -> bool {
        self.verify(stem, authority, KeyUsage::server_auth()).is_ok()
    }

    fn is_client(&self, stem: &str, authority: &str) -> bool {
        self.verify(stem, authority, KeyUsage::client_auth()).is_ok()
    }

    fn is_signed_by(&self, stem: &str, authority: &str) -> bool {
        self.is_server(stem, authority) || self.is_client(stem, authority)
    }

    /// Whether a server's certificate is valid for a DNS name or an IP address.
    fn is_valid_for(&self, stem: &str, name: &str) -> bool {
        let name = ServerName::try_from(name).unwrap();
        let certificate = self.certificate(stem);
        let certificate = EndEntityCert::try_from(&certificate).unwrap();
        certificate.verify_is_valid_for_subject_name(&name).is_ok()
    }

    /// The subject's attributes in DER.
    fn subject(&self, stem: &str) -> Vec<u8> {
        EndEntityCert::try_from(&self.certificate(stem)).unwrap().subject().to_vec()
    }
}

/// Last byte of the object identifiers 2.5.4.3 and 2.5.4.10 (X.520).
const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;

/// One attribute of a subject in DER: a SET of one SEQUENCE of identifier and `UTF8String`.
fn attribute(kind: u8, value: &str) -> Vec<u8> {
    let length = |bytes: usize| u8::try_from(bytes).unwrap();
    let value_length = value.len();
    let mut der = vec![0x31, length(value_length + 9), 0x30, length(value_length + 7)];
    der.extend([0x06, 3, 0x55, 0x04, kind, 0x0c, length(value_length)]);
    der.extend(value.as_bytes());
    der
}

#[test]
fn every_certificate_chains_to_its_own_authority_and_to_no_other() {
    let folder = Folder::new();
    let cluster = ["apiserver", "admin", "kubelets", "controller-manager", "scheduler"];
    for stem in cluster {
        assert!(folder.is_signed_by(stem, "ca"), "{stem}");
        assert!(!folder.is_signed_by(stem, "etcd-ca"), "{stem}");
    }
    assert!(
        folder.is_signed_by("etcd", "etcd-ca") && folder.is_signed_by("etcd-client", "etcd-ca")
    );
    assert!(folder.is_signed_by("front-proxy-client", "front-proxy-ca"));
    assert!(!folder.is_signed_by("front-proxy-client", "ca"));
}

#[test]
fn authorities_may_sign_and_leaves_may_not() {
    let folder = Folder::new();
    for stem in ["ca", "etcd-ca", "front-proxy-ca"] {
        let refusal = folder.verify(stem, stem, KeyUsage::server_auth()).unwrap_err();
        assert!(matches!(refusal, Error::CaUsedAsEndEntity), "{stem}: {refusal:?}");
    }
    // A certificate that could sign would be refused here.
    assert!(folder.is_server("apiserver", "ca") && folder.is_client("admin", "ca"));
    assert!(folder.is_server("etcd", "etcd-ca"));
}

#[test]
fn the_server_is_known_by_loopback_and_by_its_service() {
    let folder = Folder::new();
    for name in ["127.0.0.1", "10.96.0.1", "kubernetes.default.svc"] {
        assert!(folder.is_valid_for("apiserver", name), "{name}");
    }
    assert!(!folder.is_valid_for("apiserver", "10.96.0.2"));
    assert!(folder.is_server("apiserver", "ca") && !folder.is_client("apiserver", "ca"));
}

#[test]
fn users_and_groups_are_in_the_subject() {
    let folder = Folder::new();
    let masters =
        [attribute(COMMON_NAME, "lab-admin"), attribute(ORGANIZATION, "system:masters")].concat();
    assert_eq!(folder.subject("admin"), masters);
    assert_eq!(folder.subject("scheduler"), attribute(COMMON_NAME, "system:kube-scheduler"));
}

#[test]
fn real_kubelets_have_a_client_and_a_server_certificate() {
    let nodes = "1:t4".parse::<crate::RealNodeSet>().unwrap().nodes();
    let real = RealNodes { containerd: "/c".into(), network: 7, nodes, virtual_machines: None };
    let folder = Folder::with_nodes(Some(&real));
    for stem in ["kubelet-real-0", "kubelet-real-0-server", KUBELET_CLIENT] {
        assert!(folder.is_signed_by(stem, "ca"), "{stem}");
    }
    let node =
        [attribute(COMMON_NAME, "system:node:real-0"), attribute(ORGANIZATION, "system:nodes")];
    assert_eq!(folder.subject("kubelet-real-0"), node.concat());
    assert!(folder.is_valid_for("kubelet-real-0-server", &real.address(0).to_string()));
    assert!(folder.is_valid_for("apiserver", &real.gateway().to_string()));
}

#[test]
fn keys_are_readable_by_their_owner_only() {
    let folder = Folder::new();
    for entry in std::fs::read_dir(folder.0.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "key") {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
    }
}
