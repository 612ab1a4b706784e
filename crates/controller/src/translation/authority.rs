//! The webhook's certificates: an authority, which the API server trusts by `caBundle`, and the certificate that replicas serve under.
//!
//! The authority's key stays, so that a certificate can be renewed without a change of `caBundle`. It is in the Secret of the
//! certificate's key: a reader of one may stand in for the webhook in any case.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::certificate::params;

/// Days for which an authority is valid.
const AUTHORITY_DAYS: i64 = 10 * 365;
/// Days for which a certificate is valid.
const SERVING_DAYS: i64 = 365;
/// An authority or a certificate is replaced when less of its time is left: a third.
const RENEW_BEFORE: [(i64, i64); 2] = [(AUTHORITY_DAYS, 3), (SERVING_DAYS, 3)];
/// How long the API server trusts the authority before, so that replicas may still serve under it. A replica that could not read the
/// Secret for half of it is not ready.
pub(crate) const OVERLAP: Duration = Duration::from_mins(10);
/// What the authority is called.
const AUTHORITY_NAME: &str = "authority of the webhook of Octavo";

/// Keys of the Secret.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const PREVIOUS_AUTHORITY: &str = "previous-ca.crt";
const AUTHORITY_EXPIRES: &str = "ca-expires";
const AUTHORITY_SINCE: &str = "ca-since";
const EXPIRES: &str = "expires";
const HOSTS: &str = "hosts";

/// The content of the Secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Certificates {
    /// PEM of the certificate that replicas serve under.
    pub(crate) certificate: String,
    /// PEM of its key.
    pub(crate) key: String,
    /// When it ends.
    expires: Timestamp,
    /// Its names and addresses.
    hosts: Vec<String>,
    authority: Authority,
    /// PEM of the authority before this one.
    previous: Option<String>,
    /// Since when the authority signs.
    since: Timestamp,
}

#[derive(Clone, PartialEq, Eq)]
struct Authority {
    certificate: String,
    key: String,
    expires: Timestamp,
}

/// What is to be done.
pub(crate) enum Step {
    /// Nothing.
    Nothing,
    /// The Secret gets this: the authority stays.
    Renew(Certificates),
    /// The Secret gets this, once the API server trusts both authorities.
    Replace(Certificates),
}

impl Certificates {
    /// Reads the Secret's data. `None` if something is missing: it is then made.
    pub(crate) fn read(data: &BTreeMap<String, String>) -> Option<Self> {
        let time = |key: &str| data.get(key)?.parse().ok();
        Some(Self {
            certificate: data.get(CERTIFICATE)?.clone(),
            key: data.get(KEY)?.clone(),
            expires: time(EXPIRES)?,
            hosts: data.get(HOSTS)?.split(',').map(str::to_owned).collect(),
            authority: Authority {
                certificate: data.get(AUTHORITY)?.clone(),
                key: data.get(AUTHORITY_KEY)?.clone(),
                expires: time(AUTHORITY_EXPIRES)?,
            },
            previous: data.get(PREVIOUS_AUTHORITY).cloned(),
            since: time(AUTHORITY_SINCE)?,
        })
    }

    /// PEM of the authority's certificate, and of its key.
    pub(crate) fn authority(&self) -> (&str, &str) {
        (&self.authority.certificate, &self.authority.key)
    }

    /// PEM of the certificate that replicas serve under, and of its key.
    pub(crate) fn serving(&self) -> (&str, &str) {
        (&self.certificate, &self.key)
    }

    /// The Secret's data.
    pub(crate) fn data(&self) -> BTreeMap<String, String> {
        let values = [
            (CERTIFICATE, Some(self.certificate.clone())),
            (KEY, Some(self.key.clone())),
            (EXPIRES, Some(self.expires.to_string())),
            (HOSTS, Some(self.hosts.join(","))),
            (AUTHORITY, Some(self.authority.certificate.clone())),
            (AUTHORITY_KEY, Some(self.authority.key.clone())),
            (AUTHORITY_EXPIRES, Some(self.authority.expires.to_string())),
            (PREVIOUS_AUTHORITY, self.previous.clone()),
            (AUTHORITY_SINCE, Some(self.since.to_string())),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }

    /// The authorities that the API server has to trust, as PEM: this one, and for a while the one before.
    pub(crate) fn bundle(&self, now: Timestamp) -> String {
        let age = Duration::try_from(now.duration_since(self.since)).unwrap_or_default();
        let previous = self.previous.as_deref().filter(|_| age < OVERLAP);
        format!("{}{}", self.authority.certificate, previous.unwrap_or_default())
    }
}

/// What is to be done about the certificates that are there.
///
/// # Errors
///
/// Keys cannot be made, or a host is no name.
pub(crate) fn step(
    found: Option<&Certificates>,
    hosts: &[String],
    now: Timestamp,
) -> Result<Step, rcgen::Error> {
    let is_due = |expires: Timestamp, (days, part): (i64, i64)| {
        expires.duration_since(now).as_hours() < days * 24 / part
    };
    let [of_authority, of_certificate] = RENEW_BEFORE;
    let Some(found) = found.filter(|found| !is_due(found.authority.expires, of_authority)) else {
        let previous = found.map(|found| found.authority.certificate.clone());
        let authority = authority(now)?;
        return Ok(Step::Replace(sign(authority, previous, now, hosts, now)?));
    };
    if found.hosts == hosts && !is_due(found.expires, of_certificate) {
        return Ok(Step::Nothing);
    }
    let previous = found.previous.clone();
    sign(found.authority.clone(), previous, found.since, hosts, now).map(Step::Renew)
}

fn authority_params(now: Timestamp) -> Result<(rcgen::CertificateParams, Timestamp), rcgen::Error> {
    let (mut own, expires) = params(Vec::new(), AUTHORITY_NAME.to_owned(), now, AUTHORITY_DAYS)?;
    own.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    own.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok((own, expires))
}

fn authority(now: Timestamp) -> Result<Authority, rcgen::Error> {
    let (own, expires) = authority_params(now)?;
    let issuer = CertifiedIssuer::self_signed(own, KeyPair::generate()?)?;
    let key = issuer.key().serialize_pem();
    Ok(Authority { certificate: issuer.pem(), key, expires })
}

fn sign(
    authority: Authority,
    previous: Option<String>,
    since: Timestamp,
    hosts: &[String],
    now: Timestamp,
) -> Result<Certificates, rcgen::Error> {
    // The issuer's name and key are what a certificate has of its authority.
    let (of_authority, _) = authority_params(now)?;
    let issuer = Issuer::new(of_authority, KeyPair::from_pem(&authority.key)?);
    let name = hosts.first().cloned().unwrap_or_default();
    let (mut own, expires) = params(hosts.to_vec(), name, now, SERVING_DAYS)?;
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    own.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = own.signed_by(&key, &issuer)?;
    Ok(Certificates {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        expires: expires.min(authority.expires),
        hosts: hosts.to_vec(),
        authority,
        previous,
        since,
    })
}
