//! The checksum of Kubernetes' checkpoint manager over the JSON text of a part.
//!
//! It is `pkg/kubelet/checkpointmanager/checksum` of Kubernetes: FNV-1a of 32 bits over the text's bytes as go-spew prints a
//! slice of bytes (`%#v`): `([]uint8)[123 125]`.

const OFFSET_BASIS: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// The checksum of a text, made of its pieces in order.
pub(super) fn checksum(pieces: &[&str]) -> u64 {
    let mut hash = add(OFFSET_BASIS, b"([]uint8)[");
    let mut is_first = true;
    for byte in pieces.iter().flat_map(|piece| piece.bytes()) {
        if !is_first {
            hash = add(hash, b" ");
        }
        is_first = false;
        hash = add(hash, byte.to_string().as_bytes());
    }
    u64::from(add(hash, b"]"))
}

fn add(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}
