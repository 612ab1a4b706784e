//! Connections between peers: plain, or TLS with certificates of both sides.

use std::io;
use std::sync::Arc;

use anyhow::Context;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::config::{Identity, TlsKeys};

/// Longest line in bytes: a list of nodes with long names fits.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// A connection in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection that is read by lines.
pub(crate) type Lines = BufReader<Box<dyn Stream>>;

/// How connections are made.
pub(crate) enum Transport {
    /// As they are.
    Plain,
    /// With TLS.
    Tls { acceptor: TlsAcceptor, connector: TlsConnector, target: Option<String> },
}

impl Transport {
    /// With TLS if there are keys.
    pub(crate) fn new(keys: Option<&TlsKeys>) -> anyhow::Result<Self> {
        let Some(keys) = keys else { return Ok(Self::Plain) };
        let provider = Arc::new(ring::default_provider());
        Ok(Self::Tls {
            acceptor: acceptor(&provider, &keys.server).context("in the server's keys")?,
            connector: connector(&provider, &keys.client).context("in the client's keys")?,
            target: keys.target.clone(),
        })
    }

    /// The side that was called.
    pub(crate) async fn accept(&self, tcp: TcpStream) -> io::Result<Lines> {
        Ok(lines(match self {
            Self::Plain => Box::new(tcp),
            Self::Tls { acceptor, .. } => Box::new(acceptor.accept(tcp).await?),
        }))
    }

    /// The side that calls the node `host`.
    pub(crate) async fn connect(&self, tcp: TcpStream, host: &str) -> io::Result<Lines> {
        Ok(lines(match self {
            Self::Plain => Box::new(tcp),
            Self::Tls { connector, target, .. } => {
                let name = target.as_deref().unwrap_or(host).to_owned();
                let name = ServerName::try_from(name).map_err(io::Error::other)?;
                Box::new(connector.connect(name, tcp).await?)
            }
        }))
    }
}

fn lines(stream: Box<dyn Stream>) -> Lines {
    BufReader::new(stream)
}

/// The next line, without its end. The end of the stream is an error.
pub(crate) async fn next_line(
    stream: &mut (impl tokio::io::AsyncBufRead + Unpin),
) -> io::Result<String> {
    let mut line = String::new();
    let read = stream.take(MAX_LINE_BYTES).read_line(&mut line).await?;
    if read == 0 || !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.pop();
    Ok(line)
}

fn acceptor(provider: &Arc<CryptoProvider>, own: &Identity) -> anyhow::Result<TlsAcceptor> {
    let (chain, key) = parts(own)?;
    let roots = Arc::new(roots(own)?);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build()?;
    let config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn connector(provider: &Arc<CryptoProvider>, own: &Identity) -> anyhow::Result<TlsConnector> {
    let (chain, key) = parts(own)?;
    let config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(own)?)
        .with_client_auth_cert(chain, key)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

type Parts = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn parts(own: &Identity) -> anyhow::Result<Parts> {
    let chain = own.certificate.read()?;
    let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_slice(&own.key.read()?);
    Ok((chain.context("reading the certificate")?, key.context("reading the private key")?))
}

fn roots(own: &Identity) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&own.authority.read()?) {
        roots.add(certificate.context("reading the authority")?)?;
    }
    Ok(roots)
}
