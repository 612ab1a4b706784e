use super::check;
use crate::DriverError;

const CALL: &str = "nvmlDeviceGetName";

fn error(code: u32) -> DriverError {
    check(CALL, code, || Some("words".to_owned())).unwrap_err()
}

#[test]
fn success_is_no_error_and_asks_for_no_words() {
    let mut asked = false;
    let answer = check(CALL, 0, || {
        asked = true;
        None
    });
    assert_eq!(answer, Ok(()));
    assert!(!asked);
}

#[test]
fn codes_that_callers_decide_on_have_their_own_variant() {
    assert_eq!(error(3), DriverError::NotSupported { call: CALL });
    assert_eq!(error(6), DriverError::NotFound { call: CALL });
    assert_eq!(error(28), DriverError::NotFound { call: CALL });
    assert_eq!(error(13), DriverError::Missing { call: CALL });
    assert_eq!(error(15), DriverError::GpuLost { call: CALL });
    assert_eq!(error(19), DriverError::InUse { call: CALL });
    assert_eq!(error(23), DriverError::NoRoom { call: CALL });
}

#[test]
fn any_other_code_keeps_its_number_and_the_drivers_words() {
    assert_eq!(error(999).to_string(), "nvmlDeviceGetName: words (code 999)");
    let silent = check(CALL, 7777, || None).unwrap_err();
    assert_eq!(
        silent,
        DriverError::Failed {
            call: CALL,
            code: 7777,
            message: "the driver gave no reason".to_owned()
        }
    );
}

#[test]
fn a_broken_installation_is_reported_with_its_remedy() {
    assert!(error(9).to_string().contains("modprobe nvidia"));
    assert!(error(18).to_string().contains("reboot the node"));
    assert!(error(4).to_string().contains("/dev/nvidiactl"));
}
