use proptest::prelude::*;

use super::*;

const KINDS: [Kind; 4] = [Kind::Hello, Kind::Unknown, Kind::Tampered, Kind::Refused];

#[test]
fn each_kind_of_frame_comes_back() {
    for kind in KINDS {
        let frame = Frame::new(kind, 1023, u64::MAX, b"cuMemAllocQuantum_v3");
        assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        assert_eq!(frame.text(), b"cuMemAllocQuantum_v3");
    }
}

#[test]
fn a_text_that_is_too_long_is_cut() {
    let long = [b'x'; TEXT + 50];
    let frame = Frame::new(Kind::Unknown, 0, 0, &long);
    assert_eq!(frame.text(), &long[..TEXT]);
    assert_eq!(Frame::decode(&frame.encode()), Some(frame));
}

#[test]
fn a_frame_lies_as_it_is_documented() {
    let bytes = Frame::new(Kind::Tampered, 5, 9, b"ab").encode();
    assert_eq!(bytes[..4], 3_u32.to_ne_bytes());
    assert_eq!(bytes[4..8], 5_u32.to_ne_bytes());
    assert_eq!(bytes[8..16], 9_u64.to_ne_bytes());
    assert_eq!(bytes[16], 2);
    assert_eq!(&bytes[24..26], b"ab");
    assert!(bytes[26..].iter().all(|byte| *byte == 0));
}

#[test]
fn an_unknown_kind_is_no_frame() {
    for kind in [0_u32, 5, 256, u32::MAX] {
        let mut bytes = Frame::new(Kind::Hello, 1, 1, b"").encode();
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        assert_eq!(Frame::decode(&bytes), None, "{kind}");
    }
}

#[test]
fn a_text_longer_than_the_frame_is_no_frame() {
    let mut bytes = Frame::new(Kind::Unknown, 1, 1, b"name").encode();
    bytes[16] = u8::try_from(TEXT).unwrap();
    assert!(Frame::decode(&bytes).is_some());
    bytes[16] += 1;
    assert_eq!(Frame::decode(&bytes), None);
    bytes[16] = u8::MAX;
    assert_eq!(Frame::decode(&bytes), None);
}

proptest! {
    #[test]
    fn any_frame_comes_back(
        kind in prop::sample::select(&KINDS[..]),
        slot: u32,
        value: u64,
        text in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let frame = Frame::new(kind, slot, value, &text);
        prop_assert_eq!(frame.text(), &text[..text.len().min(TEXT)]);
        prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
    }

    #[test]
    fn any_bytes_are_a_frame_or_none(kind in 0..6_u32, mut bytes: [u8; SIZE], length: Option<u8>) {
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        if let Some(length) = length {
            bytes[16] = length % 112;
        }
        match Frame::decode(&bytes) {
            Some(frame) => {
                prop_assert!(frame.text().len() <= TEXT);
                prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
            }
            None => prop_assert!(!(1..=4).contains(&kind) || usize::from(bytes[16]) > TEXT),
        }
    }
}
