//! The certificate that the server shows, which may change while it serves.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The current certificate; none: every connection is refused.
#[derive(Debug, Default)]
pub(super) struct Identity(RwLock<Option<Arc<CertifiedKey>>>);

impl Identity {
    /// Shows another certificate from now on. Both are PEM.
    ///
    /// # Errors
    ///
    /// They cannot be read, or do not belong together.
    pub(super) fn set(&self, certificate: &str, key: &str) -> anyhow::Result<()> {
        let own = certified(certificate, key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(own));
        Ok(())
    }

    /// Whether there is one.
    pub(super) fn is_set(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// A certificate with its key. Both are PEM.
///
/// # Errors
///
/// They cannot be read, or do not belong together.
pub(super) fn certified(certificate: &str, key: &str) -> anyhow::Result<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    Ok(CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())?)
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
