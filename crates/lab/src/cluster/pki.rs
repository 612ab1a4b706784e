//! The lab's keys and certificates, which exist as long as the state folder.
//!
//! There are three authorities, as Kubernetes requires. The cluster's authority signs servers and
//! clients of the API. etcd has its own, so that no API client is a database client. The front
//! proxy of the aggregation layer has its own, because its clients may impersonate users.

use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::cluster::settings::RealNodes;
use crate::real_node::config::identities;

/// A client of the API server: file stem, common name (the user) and organisations (the groups).
pub(crate) struct ClientIdentity {
    pub(crate) stem: &'static str,
    user: &'static str,
    groups: &'static [&'static str],
}

/// The clients with a certificate of the cluster's authority.
pub(crate) const CLIENTS: [ClientIdentity; 4] = [
    ClientIdentity { stem: "admin", user: "lab-admin", groups: &["system:masters"] },
    // One process acts as the simulated kubelets of all nodes. The lab does not test the node
    // authorizer's separation of kubelets. Agents never use this identity.
    ClientIdentity { stem: "kubelets", user: "lab-kubelets", groups: &["system:masters"] },
    ClientIdentity {
        stem: "controller-manager",
        user: "system:kube-controller-manager",
        groups: &[],
    },
    ClientIdentity { stem: "scheduler", user: "system:kube-scheduler", groups: &[] },
];

/// A real node's kubelet as a client of the API server.
pub(crate) struct NodeClient {
    pub(crate) stem: String,
    pub(crate) user: String,
}

/// A real node's kubelet as a server, which the API server calls for logs and exec.
pub(crate) struct NodeServer {
    pub(crate) stem: String,
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
}

/// File stem of the API server as a client of kubelets.
pub(crate) const KUBELET_CLIENT: &str = "apiserver-kubelet-client";

/// Names and addresses of the API server. Pods use the service `kubernetes`, which has the first
/// address of the service range.
const APISERVER_NAMES: [&str; 7] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
];

/// Creates `folder` with every key and certificate.
pub(crate) fn create(folder: &Path, real: Option<&RealNodes>) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let cluster = Authority::create(folder, "ca", "octavo-lab")?;
    let gateway = real.map(|real| real.gateway().to_string());
    let names: Vec<&str> = APISERVER_NAMES.into_iter().chain(gateway.as_deref()).collect();
    cluster.server(folder, "apiserver", "kube-apiserver", &names)?;
    for client in CLIENTS {
        cluster.client(folder, client.stem, client.user, client.groups)?;
    }
    if let Some(real) = real {
        // The group has all rights, as with kubeadm, including logs and exec of kubelets.
        let groups = ["system:masters"];
        cluster.client(folder, KUBELET_CLIENT, "kube-apiserver-kubelet-client", &groups)?;
        for (client, server) in identities(real) {
            cluster.client(folder, &client.stem, &client.user, &["system:nodes"])?;
            let hosts = [server.name.as_str(), &server.address.to_string()];
            cluster.server(folder, &server.stem, &server.name, &hosts)?;
        }
    }
    let etcd = Authority::create(folder, "etcd-ca", "octavo-lab-etcd")?;
    etcd.peer(folder, "etcd", "etcd", &["127.0.0.1", "localhost"])?;
    etcd.client(folder, "etcd-client", "kube-apiserver", &[])?;
    let front_proxy = Authority::create(folder, "front-proxy-ca", "octavo-lab-front-proxy")?;
    front_proxy.client(folder, "front-proxy-client", "front-proxy-client", &[])?;

    let accounts = KeyPair::generate().context("generate the service account key")?;
    write_secret(&folder.join("sa.key"), &accounts.serialize_pem())?;
    write_public(&folder.join("sa.pub"), &accounts.public_key_pem())
}

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn create(folder: &Path, stem: &str, name: &str) -> anyhow::Result<Self> {
        let mut params = params(name, &[], &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let key = KeyPair::generate().with_context(|| format!("generate the key of {stem}"))?;
        write_secret(&folder.join(format!("{stem}.key")), &key.serialize_pem())?;
        let issuer = CertifiedIssuer::self_signed(params, key)
            .with_context(|| format!("sign the certificate of {stem}"))?;
        write_public(&folder.join(format!("{stem}.crt")), &issuer.pem())?;
        Ok(Self { issuer })
    }

    fn server(&self, folder: &Path, stem: &str, name: &str, hosts: &[&str]) -> anyhow::Result<()> {
        let params = params(name, &[], hosts)?;
        self.issue(folder, stem, params, &[ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// A server that is also its own client: etcd's gateway connects to etcd.
    fn peer(&self, folder: &Path, stem: &str, name: &str, hosts: &[&str]) -> anyhow::Result<()> {
        let params = params(name, &[], hosts)?;
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(folder, stem, params, &usages)
    }

    fn client(&self, folder: &Path, stem: &str, user: &str, groups: &[&str]) -> anyhow::Result<()> {
        let params = params(user, groups, &[])?;
        self.issue(folder, stem, params, &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn issue(
        &self,
        folder: &Path,
        stem: &str,
        mut params: CertificateParams,
        usages: &[ExtendedKeyUsagePurpose],
    ) -> anyhow::Result<()> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().with_context(|| format!("generate the key of {stem}"))?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("sign the certificate of {stem}"))?;
        write_secret(&folder.join(format!("{stem}.key")), &key.serialize_pem())?;
        write_public(&folder.join(format!("{stem}.crt")), &certificate.pem())
    }
}

fn params(name: &str, groups: &[&str], hosts: &[&str]) -> anyhow::Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).context("read the names of a certificate")?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for &group in groups {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    let year = i32::from(jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year());
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + 10, 1, 1);
    Ok(params)
}

fn write_public(path: &Path, pem: &str) -> anyhow::Result<()> {
    std::fs::write(path, pem).with_context(|| format!("write {}", path.display()))
}

/// Writes a file that only its owner can read.
pub(crate) fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    };
    write().with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests;
