use std::time::Duration;

use super::{Timeout, parse_timeout};

#[test]
fn times_are_read_as_kubectl_writes_them() {
    let limit = |text| parse_timeout(text).unwrap();
    assert_eq!(limit("5s"), Timeout(Some(Duration::from_secs(5))));
    assert_eq!(limit("7"), Timeout(Some(Duration::from_secs(7))));
    assert_eq!(limit("250ms"), Timeout(Some(Duration::from_millis(250))));
    assert_eq!(limit("2m"), Timeout(Some(Duration::from_mins(2))));
    assert_eq!(limit("1h"), Timeout(Some(Duration::from_hours(1))));
    assert_eq!(limit("0"), Timeout(None));
    assert_eq!(limit("0s"), Timeout(None));
}

#[test]
fn invalid_timeouts_are_rejected_with_a_remedy() {
    assert_eq!(
        parse_timeout("soon").unwrap_err(),
        "\"soon\" is not a time: write a number and a unit, such as 5s"
    );
    assert_eq!(
        parse_timeout("5 days").unwrap_err(),
        "\" days\" is not a unit of time: use ms, s, m or h"
    );
}
