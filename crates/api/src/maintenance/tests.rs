use std::collections::BTreeMap;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use serde_json::json;

use super::*;

/// 2026-01-05T12:00:00Z.
const NOON: u64 = 1_767_614_400;

fn spec() -> MaintenanceSpec {
    let spec = json!({
        "nodeSelector": {"rack": "r7"},
        "startTime": "2026-01-05T12:00:00Z", "endTime": "2026-01-05T14:00:00+01:00",
    });
    serde_json::from_value(spec).unwrap()
}

fn error(change: impl Fn(&mut MaintenanceSpec)) -> String {
    let mut spec = spec();
    change(&mut spec);
    spec.check().unwrap_err().to_string()
}

fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_spec_has_defaults_and_times_of_any_zone() {
    let plan = spec().check().unwrap();
    assert_eq!(plan.window, Window { start: NOON, end: NOON + 3_600 });
    assert_eq!((plan.drain, plan.notice), (Drain::AtStart, Some(86_400)));
    let silent = MaintenanceSpec { notice_seconds: 0, drain: Drain::None, ..spec() };
    let plan = silent.check().unwrap();
    assert_eq!((plan.drain, plan.notice), (Drain::None, None));
    for wrong in [json!({"until": 1}), json!({"drain": "Later"})] {
        let mut value = serde_json::to_value(spec()).unwrap();
        value.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        assert!(serde_json::from_value::<MaintenanceSpec>(value).is_err(), "{wrong}");
    }
}

#[test]
fn errors_name_the_field_and_the_reason() {
    assert_eq!(
        error(|spec| spec.node_selector.clear()),
        "nodeSelector and nodeNames are both empty; name at least one label or node"
    );
    assert_eq!(
        error(|spec| spec.start_time = "tomorrow".to_owned()),
        "startTime: \"tomorrow\" is no time of RFC 3339, such as 2026-01-05T12:00:00Z"
    );
    for end in ["2026-01-05T12:00:00Z", "2026-01-05T12:30:00+01:00"] {
        let error = error(|spec| end.clone_into(&mut spec.end_time));
        assert!(error.starts_with("endTime: it must be after startTime 2026-01-05T12:00:00Z"));
    }
    for number in [-1, 31_536_001] {
        let error = error(|spec| spec.notice_seconds = number);
        assert_eq!(error, format!("noticeSeconds: it is {number}, and must be from 0 to 31536000"));
    }
}

#[test]
fn nodes_are_meant_by_all_labels_or_by_name() {
    let mut spec = spec();
    spec.node_selector.insert("pool".to_owned(), "h100".to_owned());
    spec.node_names.push("n1".to_owned());
    let plan = spec.check().unwrap();
    assert!(plan.selects("n2", &labels(&[("rack", "r7"), ("pool", "h100"), ("zone", "a")])));
    assert!(!plan.selects("n2", &labels(&[("rack", "r7")])));
    assert!(plan.selects("n1", &labels(&[])));
    spec.node_selector.clear();
    let named = spec.check().unwrap();
    assert!(!named.selects("n2", &labels(&[])), "an empty selector means no node");
}

#[test]
fn windows_of_a_node_come_soonest_first_and_those_that_are_over_do_not() {
    let later = MaintenanceSpec {
        start_time: "2026-01-06T12:00:00Z".to_owned(),
        end_time: "2026-01-06T13:00:00Z".to_owned(),
        ..spec()
    };
    let (first, later) = (spec().check().unwrap(), later.check().unwrap());
    let other = MaintenanceSpec {
        node_selector: BTreeMap::new(),
        node_names: vec!["n9".to_owned()],
        ..spec()
    };
    let other = other.check().unwrap();
    let plans = [("a-later", &later), ("first", &first), ("other", &other)];
    let names = |now| {
        let windows = windows_of(plans, "n1", &labels(&[("rack", "r7")]), now);
        windows.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(NOON - 10), ["first", "a-later"]);
    assert_eq!(names(NOON + 3_600), ["a-later"]);
}

proptest! {
    /// What has room never runs in the window, and a longer run has no more room than a shorter one.
    #[test]
    fn what_has_room_does_not_run_in_the_window(
        start in 0_u64..1_000, length in 1_u64..1_000, now in 0_u64..3_000, lasts in 0_u64..3_000,
    ) {
        let window = Window { start, end: start + length };
        if window.leaves_room(now, Some(lasts)) {
            let runs = now..now + lasts;
            prop_assert!(runs.is_empty() || runs.end <= window.start || runs.start >= window.end);
            prop_assert!(window.leaves_room(now, Some(lasts / 2)));
        }
        prop_assert_eq!(window.leaves_room(now, None), window.is_over(now));
        prop_assert!(!(window.is_open(now) && window.is_over(now)));
    }

    #[test]
    fn no_text_is_a_panic(text in any::<String>(), number in any::<i64>()) {
        let spec = MaintenanceSpec { start_time: text, notice_seconds: number, ..spec() };
        let _ = spec.check();
    }
}
