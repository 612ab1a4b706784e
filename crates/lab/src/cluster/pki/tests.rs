use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::X509Certificate;

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

    fn with<T>(&self, stem: &str, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let text = std::fs::read(self.path(&format!("{stem}.crt"))).unwrap();
        let (_, pem) = parse_x509_pem(&text).unwrap();
        look(&pem.parse_x509().unwrap())
    }

    fn is_signed_by(&self, stem: &str, authority: &str) -> bool {
        self.with(authority, |issuer| {
            self.with(stem, |leaf| {
                leaf.issuer() == issuer.subject()
                    && leaf.verify_signature(Some(issuer.public_key())).is_ok()
            })
        })
    }
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
fn authorities_may_sign_leaves_may_not_and_all_are_valid_now() {
    let folder = Folder::new();
    for stem in ["ca", "etcd-ca", "front-proxy-ca", "apiserver", "admin", "etcd"] {
        folder.with(stem, |certificate| {
            assert_eq!(certificate.is_ca(), stem.ends_with("ca"), "{stem}");
            assert!(certificate.validity().is_valid(), "{stem}");
        });
    }
}

#[test]
fn the_server_is_known_by_loopback_and_by_its_service() {
    let folder = Folder::new();
    folder.with("apiserver", |certificate| {
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        let has = |name: GeneralName<'_>| names.value.general_names.contains(&name);
        assert!(has(GeneralName::IPAddress(&[127, 0, 0, 1])));
        assert!(has(GeneralName::IPAddress(&[10, 96, 0, 1])));
        assert!(has(GeneralName::DNSName("kubernetes.default.svc")));
        let usage = certificate.extended_key_usage().unwrap().unwrap();
        assert!(usage.value.server_auth && !usage.value.client_auth);
    });
}

#[test]
fn users_and_groups_stand_in_the_subject() {
    let folder = Folder::new();
    let subject = |stem: &str| folder.with(stem, |certificate| certificate.subject().to_string());
    assert_eq!(subject("admin"), "CN=lab-admin, O=system:masters");
    assert_eq!(subject("scheduler"), "CN=system:kube-scheduler");
}

#[test]
fn real_kubelets_have_a_client_and_a_server_certificate() {
    let nodes = "1:t4".parse::<crate::RealNodeSet>().unwrap().nodes();
    let real = RealNodes { containerd: "/c".into(), network: 7, nodes };
    let folder = Folder::with_nodes(Some(&real));
    for stem in ["kubelet-real-0", "kubelet-real-0-server", KUBELET_CLIENT] {
        assert!(folder.is_signed_by(stem, "ca"), "{stem}");
    }
    let user = folder.with("kubelet-real-0", |certificate| certificate.subject().to_string());
    assert_eq!(user, "CN=system:node:real-0, O=system:nodes");
    let is_known_by = |stem: &str, address: &[u8]| {
        folder.with(stem, |certificate| {
            let names = certificate.subject_alternative_name().unwrap().unwrap();
            names.value.general_names.contains(&GeneralName::IPAddress(address))
        })
    };
    assert!(is_known_by("kubelet-real-0-server", &real.address(0).octets()));
    assert!(is_known_by("apiserver", &real.gateway().octets()));
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
