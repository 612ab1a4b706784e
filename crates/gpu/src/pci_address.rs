//! Addresses of PCI devices.

use std::fmt;
use std::str::FromStr;

/// A PCI address; prints in sysfs's form, `0000:1b:00.0`. It is parsed from that form and from NVML's,
/// which has eight digits for the domain, in either case of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device.
    pub device: u8,
    /// Function.
    pub function: u8,
}

/// A text is no [`PciAddress`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no PCI address: it is written as 0000:1b:00.0")]
pub struct PciAddressError(String);

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| PciAddressError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let number = |digits: &str, most: usize| {
        let is_hex = digits.len() <= most && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex { u32::from_str_radix(digits, 16).ok() } else { None }
    };
    let byte = |digits: &str, most| u8::try_from(number(digits, most)?).ok();
    Some(PciAddress {
        domain: number(domain, 8)?,
        bus: byte(bus, 2)?,
        device: byte(device, 2)?,
        function: byte(function, 1)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_sysfs_and_nvml_write_it() {
        let address = PciAddress { domain: 0, bus: 0x1b, device: 0, function: 0 };
        for text in ["0000:1b:00.0", "00000000:1B:00.0", &address.to_string()] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
        let far = PciAddress { domain: 0x10000, bus: 7, device: 31, function: 7 };
        assert_eq!(far.to_string().parse(), Ok(far));
    }

    #[test]
    fn a_text_that_is_no_address_is_refused_with_one_that_is() {
        for text in
            ["", "1b:00.0", "0000:1b:00", "0000:1b:00.0.0", "0000:+1:00.0", "000000000:1b:00.0"]
        {
            let error = text.parse::<PciAddress>().unwrap_err().to_string();
            assert!(error.contains("0000:1b:00.0"), "{error}");
        }
    }
}
