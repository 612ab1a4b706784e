use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::{ALL, CLAIM_A, V0_4, V0_5, V25_3, V25_8, read, refused};
use crate::checkpoint::checksum::checksum;
use crate::checkpoint::{CheckpointError, RequestedSharing, read_checkpoint};

/// The file with changed text, and the checksums that the driver would give it.
fn signed(v1: &str, v2: &str) -> String {
    let first = checksum(&[r#"{"checksum":0,"v1":"#, v1, "}"]);
    let rest = v2.strip_prefix(r#"{"checksum":0"#).unwrap();
    let second = checksum(&[v2]);
    format!(r#"{{"checksum":{first},"v1":{v1},"v2":{{"checksum":{second}{rest}}}"#)
}

fn with_claim(claim: &str) -> String {
    signed("{}", &format!(r#"{{"checksum":0,"preparedClaims":{{"{CLAIM_A}":{claim}}}}}"#))
}

#[test]
fn an_indented_file_is_the_same() {
    for text in ALL {
        let value: Value = serde_json::from_str(text).unwrap();
        let spaced =
            text.replace("\":", "\" :\n  ").replace("\\u003c", "<").replace("\\u003e", ">");
        assert_ne!(spaced, text);
        assert_eq!(serde_json::from_str::<Value>(&spaced).unwrap(), value);
        assert_eq!(read(&spaced), read(text));
    }
}

#[test]
fn changes_contradict_the_checksums() {
    let checksum = |text: &str| match refused(text) {
        CheckpointError::Checksum { part, expected, found } => {
            assert_ne!(expected, found);
            part
        }
        other => panic!("{other}"),
    };
    assert_eq!(checksum(&V25_3.replace("gpu-0", "gpu-1")), "v1");
    assert_eq!(checksum(&V25_8.replace("PrepareStarted", "PrepareCompleted")), "v2");
    // What the driver reads is `v2`, and it verifies `v1`, too.
    assert_eq!(checksum(&V25_8.replacen("gpu-1", "gpu-2", 1)), "v1");
    assert_eq!(checksum(&V0_4.replace("nodeBootID", "nodeBootId")), "v2");
    assert_eq!(checksum(&V0_5.replacen("\"checksum\":", "\"checksum\":1", 1)), "v1");
    let message = refused(&V25_3.replace("gpu-0", "gpu-1")).to_string();
    assert!(message.contains("the part v1") && message.contains("drain the node"), "{message}");
}

#[test]
fn other_versions_are_named() {
    let later = V0_5.replacen("\"v2\":", "\"v3\":{},\"v2\":", 1);
    assert_eq!(refused(&later), CheckpointError::UnknownVersion("v3".to_owned()));
    assert!(refused(&later).to_string().contains("a later release wrote it"));
    let none = format!(r#"{{"checksum":{}}}"#, checksum(&[r#"{"checksum":0}"#]));
    assert_eq!(refused(&none), CheckpointError::NoVersion);
    let null = none.replace('}', r#","v1":null,"v2":null}"#);
    assert_eq!(refused(&null), CheckpointError::NoVersion);
}

#[test]
fn files_that_were_cut_off_are_named() {
    for text in ["", "\n", "\0\0\0\0"] {
        assert_eq!(refused(text), CheckpointError::Empty);
    }
    for text in ["{", "{\"checksum\":1,\"v1\":{\"prepa", "nonsense"] {
        assert!(matches!(refused(text), CheckpointError::NotJson(_)), "{text}");
    }
    assert!(matches!(read_checkpoint(b"{\"\xff\":1}"), Err(CheckpointError::NotJson(_))));
    assert!(matches!(refused("[]"), CheckpointError::Field { .. }));
    assert!(matches!(refused(r#"{"checksum":"x","v1":{}}"#), CheckpointError::Field { .. }));
}

#[test]
fn fields_of_another_form_are_named() {
    let path = |claim: &str| match refused(&with_claim(claim)) {
        CheckpointError::Field { path, .. } => {
            path.strip_prefix(&format!("v2.preparedClaims.{CLAIM_A}")).unwrap().to_owned()
        }
        other => panic!("{other}"),
    };
    let device = |device: &str| {
        format!(
            r#"{{"checkpointState":"PrepareCompleted","status":{{}},"preparedDevices":[{{"devices":[{device}],"configState":{{}}}}]}}"#
        )
    };
    assert_eq!(path(r#"{"checkpointState":"Preparing","status":{}}"#), ".checkpointState");
    assert_eq!(path(r#"{"status":{}}"#), ".checkpointState");
    assert_eq!(path("7"), "");
    assert_eq!(path(&device("{}")), ".preparedDevices[0].devices[0]");
    assert_eq!(
        path(&device(r#"{"gpu":{"device":null}}"#)),
        ".preparedDevices[0].devices[0].gpu.info"
    );
    let both = r#"{"gpu":{"info":{"uuid":"GPU-1"}},"vfio":{}}"#;
    assert_eq!(path(&device(both)), ".preparedDevices[0].devices[0]");
    let config = r#"{"checkpointState":"PrepareStarted","status":{"allocation":{"devices":{"config":[{"source":"Other"}]}}}}"#;
    assert_eq!(path(config), ".status.allocation.devices.config[0].source");
}

#[test]
fn a_config_of_a_later_release_is_named_as_unknown() {
    let file: Value = serde_json::from_str(V0_4).unwrap();
    let claim = file["v2"]["preparedClaims"][CLAIM_A].to_string();
    let claim = claim.replace("timeSlicingConfig", "later");
    // As Go's encoder writes it.
    let claim = claim.replace('<', "\\u003c").replace('>', "\\u003e");
    let found = read(&with_claim(&claim));
    let sharing = &found.claims[CLAIM_A].groups[0].sharing;
    let RequestedSharing::Unknown(why) = &sharing.requested else { panic!("{sharing:?}") };
    assert!(why.contains("ResourceClaim") && why.contains("sharing.later"), "{why}");
}

proptest! {
    #[test]
    fn random_bytes_are_never_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(read_checkpoint(&bytes).is_err());
    }

    #[test]
    fn pieces_of_json_are_never_a_panic(text in "(\\{|\\}|\\[|\\]|,|:|\"|\\\\|\"v[12]\"|\"checksum\"|0|null| |é){0,60}") {
        let _ = read_checkpoint(text.as_bytes());
        let _ = crate::checkpoint::json_text::fields(&crate::checkpoint::json_text::compact(&text));
    }

    #[test]
    fn a_truncated_file_is_refused(file in proptest::sample::select(&ALL[..]), at in any::<proptest::sample::Index>()) {
        let text = &file.as_bytes()[..at.index(file.len())];
        prop_assert!(read_checkpoint(text).is_err());
    }

    #[test]
    fn a_changed_byte_changes_no_claim(
        file in proptest::sample::select(&ALL[..]),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = file.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(found) = read_checkpoint(&bytes) {
            prop_assert_eq!(found, read(file));
        }
    }
}
