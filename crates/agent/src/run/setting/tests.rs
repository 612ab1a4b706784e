use super::*;

#[test]
fn the_label_goes_before_the_agent_s_own_setting() {
    let own = DynamicMig::Minors([1].into());
    let plain = Setting { dynamic: own.clone(), problem: None, is_read: true };
    assert_eq!(Setting::of(&own, None), plain);
    assert_eq!(Setting::of(&own, Some("none")).dynamic, DynamicMig::None);
    assert_eq!(Setting::of(&own, Some("all")).dynamic, DynamicMig::All);
    assert_eq!(Setting::of(&own, Some("0_3")).dynamic, DynamicMig::Minors([0, 3].into()));
}

#[test]
fn a_label_that_says_nothing_is_told_and_not_heeded() {
    let own = DynamicMig::All;
    let setting = Setting::of(&own, Some("yes"));
    assert_eq!(setting.dynamic, own);
    let problem = setting.problem.unwrap();
    assert_eq!(problem.reason, "DynamicMigLabelInvalid");
    assert!(problem.text.contains("octavo.dev/dynamic-mig"), "{}", problem.text);
    assert!(problem.text.contains("yes") && problem.text.contains("0_3"), "{}", problem.text);
}
