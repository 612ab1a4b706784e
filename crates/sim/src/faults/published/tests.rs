use super::*;
use crate::faults::study::Study;

/// With few seeds, so that it is quick: `octavo sim faults reproduce` takes many.
#[test]
fn published_figures_come_out() {
    for case in all() {
        let (seeds, more) = match case.seeds {
            1000.. => (300, 0.02),
            _ => (3, case.published * 0.02),
        };
        let case = Case { allowed: case.allowed + more, ..case };
        case.study.check().unwrap();
        let found = reproduce(&case, seeds, NonZeroUsize::MIN);
        assert!(found.is_reproduced, "{found:?}");
    }
}

#[test]
fn a_choice_by_chance_is_worse_than_the_list() {
    let of = |policy| {
        let case = Case { policy, ..all().swap_remove(1) };
        reproduce(&case, 4, NonZeroUsize::MIN).found.mean
    };
    let (list, uniform) = (of(Policy::List), of(Policy::Uniform));
    assert!(uniform > list + 100.0 && (uniform - 2403.0).abs() < 60.0, "{list} {uniform}");
}

#[test]
fn a_case_without_a_finished_run_is_not_reproduced() {
    let mut case = all().swap_remove(1);
    case.study.failures.per_day = 500.0;
    assert!(!reproduce(&case, 1, NonZeroUsize::MIN).is_reproduced);
}

#[test]
fn the_example_is_the_fleet_with_hard_repairs() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sim");
    let example: Study = crate::document::read(&path.join("faults.yaml"), "study").unwrap();
    assert_eq!(example.check(), Ok(()));
    // A checkpoint that is never written takes any time, as a live swap that never happens does.
    let mut wanted = hard_repairs();
    wanted.checkpoints.write = example.checkpoints.write;
    wanted.restart.live = example.restart.live;
    assert_eq!(example, wanted);
}

/// History alone, and what Octavo makes of it: with right blame, wrong blame, and a test.
#[test]
fn octavo_loses_less_than_every_published_policy() {
    let hours = |policy, wrong_blame, test_finds| {
        let mut study = hard_repairs();
        study.failures.wrong_blame = wrong_blame;
        study.repair.test_finds = test_finds;
        let outcomes =
            runs::run(&[Plan { study: &study, policy }], &[1, 2, 3, 4], NonZeroUsize::MIN);
        let hours = outcomes[0].iter().map(|outcome| Some(outcome.hours()));
        Spread::of(hours).unwrap().mean
    };
    assert!(hours(Policy::Octavo, 0.0, 0.0) < 1960.0);
    assert!(hours(Policy::Octavo, 0.2, 0.0) < 2110.0);
    assert!(hours(Policy::Octavo, 0.0, 0.5) < 1910.0);
    let of = |policy| hours(policy, 0.0, 0.0);
    let (oracle, risk, fewest) = (of(Policy::Oracle), of(Policy::Risk), of(Policy::FewestLifetime));
    assert!(oracle < risk && risk < fewest, "{oracle} {risk} {fewest}");
}
