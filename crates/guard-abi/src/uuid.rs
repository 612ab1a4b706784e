//! UUIDs of GPUs as sixteen bytes.

/// Parses `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`. The bytes are in the order of the text, as
/// `cuDeviceGetUuid` returns them. `None` for any other text.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let text = text.strip_prefix("GPU-")?.as_bytes();
    if text.len() != 36 {
        return None;
    }
    let mut uuid = [0; 16];
    let mut digits = 0;
    for (position, byte) in text.iter().enumerate() {
        if DASHES.contains(&position) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = u8::try_from(char::from(*byte).to_digit(16)?).ok()?;
        uuid[digits / 2] = uuid[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_its_bytes_in_the_order_of_the_text() {
        let uuid = parse("GPU-00112233-4455-6677-8899-aabbccddeeff").expect("a UUID");
        assert_eq!(uuid[..3], [0x00, 0x11, 0x22]);
        assert_eq!(uuid[15], 0xff);
    }

    #[test]
    fn what_is_not_a_uuid_of_a_gpu_is_none() {
        for text in [
            "",
            "GPU-",
            "MIG-00112233-4455-6677-8899-aabbccddeeff",
            "GPU-00112233-4455-6677-8899-aabbccddeef",
            "GPU-0011223344-55-6677-8899-aabbccddeeff",
            "GPU-0011223g-4455-6677-8899-aabbccddeeff",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
