//! The certificate with which this node's service meets its peers: whether it can be used, and whether they have one of the
//! same authority.
//!
//! `nvidia-imex` is ready without its peers, and so also beside peers that it can never reach: some that are not encrypted, or
//! have a certificate of another authority. A node must not seem ready then.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use octavo_api::compute_domain::{ComputeDomainDaemon, Readiness};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::clique::Seen;
use crate::entry::OwnEntry;
use crate::slots;

/// Time for a connection to a peer. One that does not answer is not asked: it may be lost.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// What to do where certificates do not fit.
const REMEDY: &str = "once no pod uses the daemons of this DaemonSet, delete it: the controller makes it again, with another \
                      certificate";

/// Key, certificate and authority, as the service uses them.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a folder with `tls.key`, `tls.crt` and `ca.crt`. The certificate must be valid now, for peers that call this node
    /// `name`.
    ///
    /// # Errors
    ///
    /// What is wrong with the files, and what to do.
    pub(crate) fn read(folder: &Path, name: &str) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let path = |file: &str| folder.join(file);
        let unreadable = |file: &str, error: &dyn fmt::Display| {
            format!("{} cannot be read: {error}", folder.join(file).display())
        };
        let certificates = |file: &str| -> Result<Vec<CertificateDer<'static>>, String> {
            let found = CertificateDer::pem_file_iter(path(file))
                .and_then(Iterator::collect::<Result<_, _>>);
            found.map_err(|error| unreadable(file, &error))
        };
        let chain = certificates("tls.crt")?;
        let key = PrivateKeyDer::from_pem_file(path("tls.key"))
            .map_err(|error| unreadable("tls.key", &error))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("ca.crt")? {
            roots.add(authority).map_err(|error| unreadable("ca.crt", &error))?;
        }
        let certificate = path("tls.crt");
        let wrong = |what: &str| {
            format!("the certificate {} cannot be used: {what}; {REMEDY}", certificate.display())
        };
        let roots = Arc::new(roots);
        let [own, intermediates @ ..] = chain.as_slice() else {
            return Err(wrong("there is none"));
        };
        let server = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        let (provider_, roots_) = (Arc::clone(&provider), Arc::clone(&roots));
        WebPkiServerVerifier::builder_with_provider(roots_, provider_)
            .build()
            .map_err(|error| unreadable("ca.crt", &error))?
            .verify_server_cert(own, intermediates, &server, &[], UnixTime::now())
            .map_err(|error| wrong(&problem(&error, name)))?;
        let (provider_, roots_) = (Arc::clone(&provider), Arc::clone(&roots));
        WebPkiClientVerifier::builder_with_provider(roots_, provider_)
            .build()
            .map_err(|error| unreadable("ca.crt", &error))?
            .verify_client_cert(own, intermediates, UnixTime::now())
            .map_err(|error| wrong(&problem(&error, name)))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| wrong(&problem(&error, name)))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Greets a peer, which is called `name`.
    ///
    /// # Errors
    ///
    /// It answers without a certificate of this authority. A peer that cannot be reached is no error.
    async fn greet(&self, name: String, address: SocketAddr) -> Result<(), String> {
        let Ok(server) = ServerName::try_from(name.clone()) else { return Ok(()) };
        let Ok(Ok(tcp)) = timeout(PEER_TIMEOUT, TcpStream::connect(address)).await else {
            return Ok(());
        };
        let what = match timeout(PEER_TIMEOUT, self.connector.connect(server, tcp)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => match inner(&error) {
                Some(error @ rustls::Error::InvalidCertificate(_)) => problem(error, &name),
                Some(error) => format!("it does not speak TLS as this node does: {error}"),
                None => format!("it does not speak TLS: {error}"),
            },
            Err(_) => "it does not speak TLS, or does not answer".to_owned(),
        };
        Err(format!(
            "this node encrypts its connections, and its peer {name} at {address} has another certificate or none: {what}; \
             {REMEDY}"
        ))
    }
}

fn inner(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What is wrong with a certificate, in plain words.
fn problem(error: &rustls::Error, name: &str) -> String {
    use CertificateError as E;
    match error {
        rustls::Error::InvalidCertificate(E::Expired | E::ExpiredContext { .. }) => {
            "it has expired".to_owned()
        }
        rustls::Error::InvalidCertificate(E::NotValidYet | E::NotValidYetContext { .. }) => {
            "it is not valid yet, by the clock of this node".to_owned()
        }
        rustls::Error::InvalidCertificate(E::UnknownIssuer | E::BadSignature) => {
            "it is not signed by the authority in ca.crt".to_owned()
        }
        rustls::Error::InvalidCertificate(
            E::NotValidForName | E::NotValidForNameContext { .. },
        ) => {
            format!("it has not the name {name}")
        }
        rustls::Error::InconsistentKeys(_) => "it is not of the key in tls.key".to_owned(),
        other => other.to_string(),
    }
}

/// Whether this node may say that it is ready. Its peers are greeted once: what they do later does not end what runs.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) tls: Tls,
    pub(crate) own: OwnEntry,
    pub(crate) seen: watch::Receiver<Seen>,
    pub(crate) port: u16,
    pub(crate) is_admitted: bool,
}

impl Admission {
    /// Greets the peers that are ready, unless they were greeted before.
    ///
    /// # Errors
    ///
    /// Why this node cannot be ready: a peer is a stranger.
    pub(crate) async fn check(&mut self) -> Result<(), String> {
        if !self.is_admitted {
            let Some(clique) = self.seen.borrow().clone() else { return Ok(()) };
            let peers = self.own.peers(&clique).filter_map(place);
            let greetings = peers
                .map(|(name, address)| self.tls.greet(name, SocketAddr::new(address, self.port)));
            join_all(greetings).await.into_iter().collect::<Result<(), String>>()?;
            self.is_admitted = true;
        }
        Ok(())
    }
}

/// Name and address of a peer that is ready.
fn place(peer: &ComputeDomainDaemon) -> Option<(String, IpAddr)> {
    let index = usize::try_from(peer.index?).ok()?;
    let address = peer.ip_address.parse().ok()?;
    (peer.status == Readiness::Ready).then(|| (slots::name(index), address))
}

#[cfg(test)]
pub(crate) mod tests;
