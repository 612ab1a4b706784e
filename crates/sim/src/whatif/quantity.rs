//! Amounts on the command line, written as in manifests.

use std::str::FromStr;

use octavo_dra::Quantity;

/// CPU in thousandths of a core: `4`, `500m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu(pub i64);

/// Memory in MiB, rounded up: `32Gi`, `512Mi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub i64);

/// Why a text is no amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Not a quantity.
    #[error(
        "`{0}` is not a quantity; write it as in manifests: 4 or 500m of CPU, 32Gi or 512Mi of memory"
    )]
    DocumentFormat(String),
    /// Negative, or larger than any machine.
    #[error("`{0}` is negative or more than any machine has")]
    Size(String),
}

/// Far above any machine.
const MAX_AMOUNT: i128 = 1 << 40;

impl FromStr for Cpu {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        amount(text, Quantity::milli_value).map(Self)
    }
}

impl FromStr for Memory {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let mib = |quantity: Quantity| quantity.value().saturating_add((1 << 20) - 1) >> 20;
        amount(text, mib).map(Self)
    }
}

fn amount(text: &str, of: impl Fn(Quantity) -> i128) -> Result<i64, AmountError> {
    let quantity =
        text.parse::<Quantity>().map_err(|_| AmountError::DocumentFormat(text.to_owned()))?;
    let amount = of(quantity);
    let size = || AmountError::Size(text.to_owned());
    if quantity.nanos() < 0 || amount > MAX_AMOUNT {
        return Err(size());
    }
    i64::try_from(amount).map_err(|_| size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_those_of_manifests() {
        assert_eq!(
            ["4", "500m", "0.5"].map(|text| text.parse::<Cpu>().unwrap().0),
            [4000, 500, 500]
        );
        let memory = ["32Gi", "512Mi", "1", "1G"].map(|text| text.parse::<Memory>().unwrap().0);
        assert_eq!(memory, [32768, 512, 1, 954]);
        for text in ["", "four", "4 Gi", "-1", "9E", "9999999999999Gi"] {
            assert!(text.parse::<Memory>().is_err(), "{text}");
        }
        let error = "-1".parse::<Cpu>().unwrap_err().to_string();
        assert_eq!(error, "`-1` is negative or more than any machine has");
    }
}
