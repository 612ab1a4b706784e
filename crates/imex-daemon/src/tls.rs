//! The certificate with which this node's service meets its peers: whether it can be used.
//!
//! All daemons of an IMEX domain have the same, so no node asks its peers for theirs. `nvidia-imex` would start with one that
//! has expired, and be ready beside peers that refuse it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, ClientConfig, RootCertStore};

/// What to do where certificates do not fit.
const REMEDY: &str = "once no pod uses the daemons of this DaemonSet, delete it: the controller makes it again, with another \
                      certificate";

/// The problem of a clock that is wrong. Another certificate would begin later still.
const NOT_VALID_YET: &str = "it is not valid yet, by the clock of this node";

/// Reads a folder with `tls.key`, `tls.crt` and `ca.crt`. The certificate must be valid now, for peers that call this node
/// `name`.
///
/// # Errors
///
/// What is wrong with the files, and what to do.
pub(crate) fn verify(folder: &Path, name: &str) -> Result<(), String> {
    let provider = Arc::new(ring::default_provider());
    let path = |file: &str| folder.join(file);
    let unreadable = |file: &str, error: &dyn fmt::Display| {
        format!("{} cannot be read: {error}", folder.join(file).display())
    };
    let certificates = |file: &str| -> Result<Vec<CertificateDer<'static>>, String> {
        let found =
            CertificateDer::pem_file_iter(path(file)).and_then(Iterator::collect::<Result<_, _>>);
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
        let remedy = if what == NOT_VALID_YET { "set the clock of the node" } else { REMEDY };
        format!("the certificate {} cannot be used: {what}; {remedy}", certificate.display())
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
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| wrong(&problem(&error, name)))?;
    Ok(())
}

/// What is wrong with a certificate, in plain words.
fn problem(error: &rustls::Error, name: &str) -> String {
    use CertificateError as E;
    match error {
        rustls::Error::InvalidCertificate(E::Expired | E::ExpiredContext { .. }) => {
            "it has expired".to_owned()
        }
        rustls::Error::InvalidCertificate(E::NotValidYet | E::NotValidYetContext { .. }) => {
            NOT_VALID_YET.to_owned()
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

#[cfg(test)]
pub(crate) mod tests;
