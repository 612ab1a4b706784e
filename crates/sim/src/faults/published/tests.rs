use super::*;

/// With few seeds, so that it is quick: `octavo sim faults reproduce` takes many.
#[test]
fn published_figures_come_out() {
    for case in all() {
        let (seeds, more) = match case.seeds {
            1000.. => (1000, 0.01),
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
