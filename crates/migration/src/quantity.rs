//! Amounts as Kubernetes writes them.

use octavo_dra::Quantity;

/// A quantity as whole bytes.
pub(crate) fn whole_bytes(text: &str) -> Result<i128, String> {
    let quantity: Quantity = text.parse().map_err(|error| format!("{error}"))?;
    Ok(quantity.value())
}
