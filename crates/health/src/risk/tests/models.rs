//! Both models beside the same formulas in `f64`.

use proptest::prelude::*;

use super::{two_classes, *};

#[derive(Clone, Debug)]
enum Event {
    Work { seconds: u64 },
    Idle { seconds: u64 },
    Fail { suspects: u32 },
    Repair { in_vain: u64 },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (1..3 * DAY).prop_map(|seconds| Event::Work { seconds }),
        (1..3 * DAY).prop_map(|seconds| Event::Idle { seconds }),
        (1..20_u32).prop_map(|suspects| Event::Fail { suspects }),
        (0..=ONE).prop_map(|in_vain| Event::Repair { in_vain }),
    ];
    proptest::collection::vec(event, 0..60)
}

/// The history in `f64`: faded blame, faded days at work, log odds of being bad.
struct Floats {
    blame: f64,
    days: f64,
    log_odds: f64,
}

fn run(events: &[Event], settings: &Settings, base: Rate) -> (History, u64, Floats) {
    let model = settings.two_classes;
    let share = model.share_bad as f64 / 1e9;
    let times = model.times as f64 / 1e3;
    let a_day = base.0 as f64 / 1e9;
    let memory = settings.memory_seconds.map(|memory| memory as f64 / DAY as f64);
    let mut floats = Floats { blame: 0.0, days: 0.0, log_odds: (share / (1.0 - share)).ln() };
    let (mut history, mut now) = (History::default(), 0);
    for event in events {
        match *event {
            Event::Work { seconds } | Event::Idle { seconds } => {
                now += seconds;
                let days = seconds as f64 / DAY as f64;
                let left = memory.map_or(1.0, |memory| (-days / memory).exp());
                floats.blame *= left;
                floats.days *= left;
                if matches!(event, Event::Work { .. }) {
                    history.expose(settings, now, seconds);
                    floats.days += memory.map_or(days, |memory| memory * (1.0 - left));
                    floats.log_odds -= (times - 1.0) * a_day * days;
                }
            }
            Event::Fail { suspects } => {
                history.fail(settings, now, Blame::one_of(suspects));
                floats.blame += 1.0 / f64::from(suspects);
                floats.log_odds += times.ln() / f64::from(suspects);
            }
            Event::Repair { in_vain } => {
                history.repaired(settings, base, in_vain);
                let in_vain = in_vain.max(1) as f64 / 1e9;
                let bad = in_vain / (1.0 + (-floats.log_odds).exp());
                floats.log_odds = bad.ln() - (-bad).ln_1p();
            }
        }
    }
    (history, now, floats)
}

proptest! {
    #[test]
    fn decayed_evidence_is_that_of_floats(
        events in events(),
        a_day in 100_000..100_000_000_u64,
        memory in proptest::option::of(DAY..60 * DAY),
        shape in 20_000_000..2 * ONE,
    ) {
        let settings = Settings { memory_seconds: memory, shape, ..Settings::default() };
        let (history, now, floats) = run(&events, &settings, Rate(a_day));
        let found = history.score(&settings, Rate(a_day), now).rate.0 as f64;
        let a = shape as f64 / 1e9;
        let base = a_day as f64;
        let wanted = base * (a + floats.blame) / (a + base / 1e9 * floats.days);
        prop_assert!((found - wanted).abs() <= 1.0 + wanted * 1e-5, "{found} {wanted}");
    }

    #[test]
    fn two_classes_are_those_of_floats(
        events in events(),
        a_day in 100_000..100_000_000_u64,
        share in 0.001..0.5_f64,
        times in 1_001..300_000_u64,
    ) {
        let settings = two_classes(share, times);
        let (history, now, floats) = run(&events, &settings, Rate(a_day));
        let found = history.log_odds_of_bad(&settings, Rate(a_day)) as f64 / 1e9;
        // Odds beyond a billion to one are not told apart by a repair.
        let is_far = floats.log_odds.abs() > 18.0;
        let off = (found - floats.log_odds).abs();
        prop_assert!(is_far || off <= 1e-4 * (1.0 + floats.log_odds.exp()), "{found} {}", floats.log_odds);
        let rate = history.score(&settings, Rate(a_day), now).rate;
        let bad = 1.0 / (1.0 + (-floats.log_odds).exp());
        let wanted = a_day as f64 * (1.0 + bad * (times as f64 / 1e3 - 1.0));
        prop_assert!(is_far || (rate.0 as f64 - wanted).abs() <= 2.0 + wanted * 1e-4, "{rate:?} {wanted}");
    }

    #[test]
    fn nothing_overflows(
        times in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..20),
        base: u64,
        shape: u64,
        memory in proptest::option::of(any::<u64>()),
        share_bad: u64,
        multiple: u64,
    ) {
        let two_classes = TwoClasses { share_bad, times: multiple };
        for model in [Model::Decayed, Model::TwoClasses] {
            let settings = Settings { model, memory_seconds: memory, shape, two_classes };
            let mut history = History::default();
            for (now, seconds, suspects) in &times {
                history.expose(&settings, *now, *seconds);
                history.fail(&settings, *now, Blame::one_of(*suspects));
                history.repaired(&settings, Rate(base), *seconds);
                let score = history.score(&settings, Rate(base), *now);
                prop_assert!(score.at_least <= score.rate || model == Model::TwoClasses);
            }
        }
    }
}

/// The policy `bayes` of the simulator `AIReSim`, restated: a share of 8% is bad, good servers fail 0.02 times a day, bad ones 21 times as
/// often. After 10 days without a failure, a failure, and a repair that is in vain with 30%.
#[test]
fn the_posterior_of_a_study_is_reproduced() {
    let settings = two_classes(0.08, 21_000);
    let base = Rate(20_000_000);
    let mut history = History::default();
    let odds = |history: &History| history.log_odds_of_bad(&settings, base) as f64 / 1e9;
    assert!((odds(&history) - (0.08_f64 / 0.92).ln()).abs() < 1e-8);
    history.expose(&settings, 10 * DAY, 10 * DAY);
    assert!((odds(&history) - ((0.08_f64 / 0.92).ln() - 4.0)).abs() < 1e-8);
    history.fail(&settings, 10 * DAY, Blame::WHOLE);
    let wanted = (0.08_f64 / 0.92).ln() - 4.0 + 21_f64.ln();
    assert!((odds(&history) - wanted).abs() < 1e-8);
    history.repaired(&settings, base, 300_000_000);
    let bad = 0.3 / (1.0 + (-wanted).exp());
    assert!((odds(&history) - (bad / (1.0 - bad)).ln()).abs() < 1e-7);
}

#[test]
fn a_repair_that_always_or_never_helps() {
    let settings = two_classes(0.08, 21_000);
    let base = Rate(20_000_000);
    let mut history = History::default();
    history.fail(&settings, 0, Blame::WHOLE);
    let before = history.log_odds_of_bad(&settings, base);
    history.repaired(&settings, base, ONE);
    assert_eq!(history.log_odds_of_bad(&settings, base), before);
    history.repaired(&settings, base, 0);
    assert!(history.log_odds_of_bad(&settings, base) < -20_000_000_000);
    assert_eq!(history.score(&settings, base, 0).rate, base);
}

#[test]
fn bad_units_are_sure_from_nine_tenths_on() {
    let settings = two_classes(0.05, 20_000);
    let mut history = History::default();
    let bound = |history: &History| history.score(&settings, Rate::GPU, 0).at_least;
    history.fail(&settings, 0, Blame::WHOLE);
    // Odds of 1/19 times 20 are even: 51%.
    assert_eq!(bound(&history), Rate::GPU);
    history.fail(&settings, 0, Blame::WHOLE);
    assert_eq!(bound(&history), Rate::GPU.times(20_000));
}
