//! The checkpoint of NVIDIA's DRA driver, as its `cmd/gpu-kubelet-plugin` writes it.

use serde_json::{Value, json};

/// A file of the part `v1` with these `preparedClaims`.
pub fn nvidia_checkpoint(claims: &Value) -> String {
    let part = json!({"preparedClaims": claims});
    let text = |checksum: u32| format!("{{\"checksum\":{checksum},\"v1\":{part}}}");
    text(checksum(&text(0)))
}

/// The checksum of Kubernetes' checkpoint manager: FNV-1a over the bytes as go-spew prints them.
fn checksum(text: &str) -> u32 {
    let bytes: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
    let spewed = format!("([]uint8)[{}]", bytes.join(" "));
    let add = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    spewed.bytes().fold(0x811c_9dc5, add)
}
