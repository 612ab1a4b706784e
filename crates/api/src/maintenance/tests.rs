use proptest::prelude::{any, prop_assert_eq, proptest};
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
fn nodes_are_meant_by_all_labels_or_by_name() {
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut named = spec();
    named.node_selector.insert("zone".to_owned(), "z".to_owned());
    named.node_names = vec!["n1".to_owned()];
    let plan = named.check().unwrap();
    assert!(plan.is_meant("n0", &labels(&[("rack", "r7"), ("zone", "z"), ("more", "")])));
    assert!(!plan.is_meant("n0", &labels(&[("rack", "r7")])));
    assert!(plan.is_meant("n1", &labels(&[])));
    let by_name = MaintenanceSpec { node_selector: BTreeMap::new(), ..named };
    assert!(!by_name.check().unwrap().is_meant("n0", &labels(&[("rack", "r7")])));
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

proptest! {
    #[test]
    fn a_window_is_open_from_its_start_until_it_is_over(
        start in 0_u64..1_000, length in 1_u64..1_000, now in 0_u64..3_000,
    ) {
        let window = Window { start, end: start + length };
        prop_assert_eq!(window.is_open(now), start <= now && !window.is_over(now));
    }

    #[test]
    fn no_text_is_a_panic(text in any::<String>(), number in any::<i64>()) {
        let spec = MaintenanceSpec { start_time: text, notice_seconds: number, ..spec() };
        let _ = spec.check();
    }
}
