//! Prints quantities in Kubernetes' canonical form.

use std::fmt;

use super::{NANOS, Notation, Quantity};

const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Kubernetes prints no binary suffix if digits would be lost or none is needed.
        let small = self.nanos.unsigned_abs() < 1024 * NANOS.unsigned_abs();
        match self.notation {
            Notation::BinarySi if self.is_whole() && !small => {
                let (number, power) = reduce(self.nanos / NANOS, 1024, BINARY.len() - 1);
                write!(f, "{number}{}", BINARY.get(power).copied().unwrap_or_default())
            }
            Notation::BinarySi | Notation::DecimalSi => {
                let (number, power) = reduce(self.nanos, 1000, DECIMAL.len() - 1);
                let suffix = if number == 0 { "" } else { DECIMAL.get(power).unwrap_or(&"") };
                write!(f, "{number}{suffix}")
            }
            Notation::DecimalExponent => {
                let (number, power) = reduce(self.nanos, 1000, usize::MAX);
                match i64::try_from(power).unwrap_or_default() * 3 - 9 {
                    _ if number == 0 => f.write_str("0"),
                    0 => write!(f, "{number}"),
                    exponent => write!(f, "{number}e{exponent}"),
                }
            }
        }
    }
}

/// Divides by `by` while there is no remainder, at most `limit` times; also returns the number of
/// divisions.
fn reduce(mut value: i128, by: i128, limit: usize) -> (i128, usize) {
    let mut power = 0;
    while value != 0 && power < limit && value % by == 0 {
        value /= by;
        power += 1;
    }
    (value, power)
}
