//! Certificates of daemons: one for all daemons of a `DaemonSet`, of an authority of its own.
//!
//! The key of the authority is forgotten once the certificate is signed, so no second certificate can be made. All daemons have
//! the same key and certificate, with the names of all slots, since a Secret is the same on all nodes.

#[cfg(test)]
mod tests;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use octavo_api::names::IMEX_SLOT_PREFIX;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// Days for which a certificate is valid: longer than daemons run. They read it at their start only.
const VALID_DAYS: i64 = 5 * 365;

/// A certificate that is to be issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Namespace of the daemons.
    pub namespace: String,
    /// UID of the domain, or what stands for it.
    pub domain: String,
    /// What the certificate calls the daemons.
    pub title: String,
    /// UID of the daemons' `DaemonSet`.
    pub owner: String,
    /// Number of slots.
    pub slots: u32,
}

/// A key and its certificate, as PEM.
pub struct Issued {
    /// The private key.
    pub key: String,
    /// Its certificate.
    pub certificate: String,
    /// The certificate of the authority.
    pub authority: String,
    /// When both certificates end.
    pub expires: Timestamp,
}

/// Names of an IMEX domain's slots, by which daemons call each other.
pub fn slot_names(count: u32) -> Vec<String> {
    (0..count).map(|index| format!("{IMEX_SLOT_PREFIX}{index:04}")).collect()
}

/// Issues a certificate.
///
/// # Errors
///
/// Keys cannot be made.
pub fn issue(request: &CertificateRequest, now: Timestamp) -> Result<Issued, rcgen::Error> {
    let title = format!("authority of {}", request.title);
    let (mut authority, expires) = params(Vec::new(), title, now, VALID_DAYS)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let title = format!("daemons of {}", request.title);
    let (mut own, _) = params(slot_names(request.slots), title, now, VALID_DAYS)?;
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    own.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    own.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = own.signed_by(&key, &authority)?;
    Ok(Issued {
        key: key.serialize_pem(),
        certificate: certificate.pem(),
        authority: authority.pem(),
        expires,
    })
}

/// Parameters of a certificate for these names and addresses, and when it ends. It begins a day before: another clock may be behind.
pub(crate) fn params(
    names: Vec<String>,
    common_name: String,
    now: Timestamp,
    valid_days: i64,
) -> Result<(CertificateParams, Timestamp), rcgen::Error> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let (begin, end) = (today.saturating_sub(1.day()), today.saturating_add(valid_days.days()));
    let midnight = |date: Date| {
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        date_time_ymd(date.year().into(), month, day)
    };
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    (params.not_before, params.not_after) = (midnight(begin), midnight(end));
    Ok((params, TimeZone::UTC.to_timestamp(end.into()).unwrap_or(Timestamp::MAX)))
}
