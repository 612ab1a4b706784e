#![expect(clippy::cast_precision_loss, reason = "comparison with f64")]

mod bounds;
mod models;

use super::{Blame, History, Model, Rate, RiskClass, Score, Settings, TwoClasses};
use crate::{DAY, HOUR, ONE};

fn two_classes(share_bad: f64, times: u64) -> Settings {
    let share_bad = (share_bad * 1e9).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
    let two_classes = TwoClasses { share_bad: share_bad as u64, times };
    Settings { model: Model::TwoClasses, two_classes, ..Settings::default() }
}

#[test]
fn without_evidence_the_rate_is_that_of_the_model() {
    let settings = Settings::default();
    let score = History::default().score(&settings, Rate::GPU, 5 * DAY);
    assert_eq!(score, Score { rate: Rate::GPU, at_least: Rate(0) });
    assert_eq!(RiskClass::of(score, Rate::GPU), RiskClass::Usual);
    // Eight GPUs fail 2.93 times in 1,000 days.
    assert_eq!(Rate::GPU.probability_within(8_000 * DAY), 946_602_962);
}

#[test]
fn a_failure_raises_the_rate_and_fades() {
    let settings = Settings::default();
    let mut history = History::default();
    history.fail(&settings, 0, Blame::WHOLE);
    let at = |days: u64| history.score(&settings, Rate::GPU, days * DAY);
    // (0.22 + 1) / 0.22 = 5.5 times, and 1/e of the failure is left after 14 days.
    assert_eq!(at(0).rate, Rate(2_031_023));
    assert_eq!(at(14).rate, Rate(978_686));
    assert_eq!(RiskClass::of(at(0), Rate::GPU), RiskClass::Raised);
    assert_eq!(RiskClass::of(at(28), Rate::GPU), RiskClass::Usual);
    assert!(at(0).at_least > Rate(0) && at(0).at_least < at(0).rate);
    assert_eq!(at(200).at_least, Rate(0));
}

#[test]
fn evidence_that_does_not_fade_stays() {
    let settings = Settings { memory_seconds: None, ..Settings::default() };
    let mut history = History::default();
    history.fail(&settings, 0, Blame::WHOLE);
    let scores = [0, 1000].map(|days| history.score(&settings, Rate::GPU, days * DAY));
    assert_eq!(scores[0], scores[1]);
    history.expose(&settings, 1000 * DAY, 1000 * DAY);
    // 0.22 + 1 failures, where 0.22 + 0.36625 were expected.
    let wanted = Rate::GPU.0 as f64 * 1.22 / 0.586_25;
    let found = history.score(&settings, Rate::GPU, 1000 * DAY).rate;
    assert!((found.0 as f64 - wanted).abs() <= 1.0, "{found:?} {wanted}");
}

#[test]
fn blame_is_divided_among_suspects_and_applications_have_none() {
    let settings = Settings::default();
    let rate = |blame| {
        let mut history = History::default();
        history.fail(&settings, 0, blame);
        history.score(&settings, Rate::GPU, 0).rate
    };
    assert_eq!(rate(Blame::NONE), Rate::GPU);
    assert_eq!(rate(Blame::one_of(1)), rate(Blame::WHOLE));
    assert!(rate(Blame::one_of(8)) > Rate::GPU && rate(Blame::one_of(8)) < rate(Blame::WHOLE));
    assert_eq!(Blame::one_of(0), Blame::WHOLE);
    assert_eq!(Blame::one_of(8).billionths(), ONE / 8);
}

#[test]
fn a_clock_that_goes_backwards_fades_nothing() {
    let settings = Settings::default();
    let mut history = History::default();
    history.fail(&settings, 100 * DAY, Blame::WHOLE);
    let before = history.score(&settings, Rate::GPU, 100 * DAY);
    assert_eq!(history.score(&settings, Rate::GPU, 0), before);
    history.expose(&settings, 50 * DAY, 0);
    assert_eq!(history.score(&settings, Rate::GPU, 100 * DAY), before);
    assert!(history.score(&settings, Rate::GPU, 101 * DAY).rate < before.rate);
}

#[test]
fn new_units_fail_more_often() {
    assert_eq!(Rate::GPU.at_age(30 * DAY), Rate::GPU);
    assert_eq!(Rate::GPU.at_age(u64::MAX), Rate::GPU);
    assert_eq!(Rate::GPU.at_age(0), Rate::GPU.at_age(HOUR));
    // 30^0.3 = 2.774.
    let found = Rate::GPU.at_age(DAY).0 as f64;
    assert!((found / Rate::GPU.0 as f64 - 30_f64.powf(0.3)).abs() < 1e-5);
}

#[test]
fn the_engine_gets_millionths_an_hour() {
    // 3.79 failures in 1,000 days of a node are 158 millionths an hour.
    assert_eq!(Rate(3_790_000).millionths_an_hour(), 158);
    let classes = RiskClass::ALL.map(|class| class.rate(Rate(24_000)).millionths_an_hour());
    assert_eq!(classes, [1, 5, 17, 55]);
    for class in RiskClass::ALL {
        let rate = class.rate(Rate::GPU);
        assert_eq!(RiskClass::of(Score { rate, at_least: rate }, Rate::GPU), class);
    }
}

#[test]
fn a_history_keeps_its_evidence_as_text() {
    let settings = Settings::default();
    let mut history = History::default();
    history.expose(&settings, DAY, HOUR);
    history.fail(&settings, 2 * DAY, Blame::one_of(3));
    let text = serde_json::to_string(&history).unwrap();
    assert_eq!(serde_json::from_str::<History>(&text).unwrap(), history);
}
