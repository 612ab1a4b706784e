use super::*;
use crate::scheduler::cases::{ALL_BOUND, RATE};

/// Turns of `Case::Gpus`: contender, turn, rate, and how many of 100 pods were bound if not all.
fn results(turns: &[(Contender, u32, f64, Option<f64>)]) -> Vec<Figure> {
    let mut results = Results::new(Case::Gpus, 1.0);
    for (contender, turn, rate, bound) in turns {
        let mut measured = Measured::new(*contender, *turn);
        measured.add(RATE, "pods/s", *rate);
        if let Some(bound) = bound {
            measured.mark_unfinished();
            measured.add_with_required_goal(
                "bound within 4 min",
                "pods",
                Goal::Exactly(100.0),
                *bound,
            );
        } else {
            measured.add(ALL_BOUND, "s", 100.0 / rate);
        }
        results.keep(measured);
    }
    results.figures().unwrap()
}

fn find<'a>(figures: &'a [Figure], end: &str) -> &'a Figure {
    figures.iter().find(|figure| figure.what.ends_with(end)).unwrap()
}

#[test]
fn rates_are_compared_turn_by_turn() {
    // Kube-scheduler's first turn failed: its second is held against the second of others.
    let figures = results(&[
        (Contender::Raw, 1, 100.0, None),
        (Contender::Octavo, 1, 80.0, None),
        (Contender::Raw, 2, 50.0, None),
        (Contender::Kube, 2, 10.0, None),
        (Contender::Octavo, 2, 30.0, None),
    ]);
    let rate = find(&figures, "rate, of raw's: octavo");
    assert_eq!((rate.min, rate.max, rate.n), (60.0, 80.0, 2));
    assert_eq!(rate.met, Some(false));
    let rate = find(&figures, "rate, of raw's: kube-scheduler");
    assert_eq!((rate.median, rate.n, rate.met), (20.0, 1, None));
    let faster = find(&figures, "times that of kube-scheduler: octavo");
    assert_eq!((faster.median, faster.n), (3.0, 1));
}

#[test]
fn unfinished_contender_is_marked_and_compared_by_bound_pods() {
    let figures = results(&[
        (Contender::Raw, 1, 100.0, None),
        (Contender::Kube, 1, 5.0, Some(40.0)),
        (Contender::Octavo, 1, 90.0, None),
    ]);
    let bound = find(&figures, "bound within 4 min: kube-scheduler (did not finish)");
    assert_eq!((bound.median, bound.met), (40.0, None));
    assert!(!figures.iter().any(|figure| figure.what.contains("all bound: kube")));
    let rate = find(&figures, "rate, of raw's: kube-scheduler (did not finish)");
    assert_eq!((rate.median, rate.n), (5.0, 1));
    let faster = find(&figures, "rate, times that of kube-scheduler (did not finish): octavo");
    assert_eq!((faster.median, faster.n), (18.0, 1));
    let figures =
        results(&[(Contender::Kube, 1, 5.0, Some(40.0)), (Contender::Kube, 2, 10.0, None)]);
    let rate = find(&figures, ": rate: kube-scheduler (did not finish in 1 of 2 turns)");
    assert_eq!((rate.min, rate.max), (5.0, 10.0));
}

#[test]
fn octavo_or_raw_not_finishing_misses_a_goal() {
    for contender in [Contender::Raw, Contender::Octavo] {
        let figures = results(&[(contender, 1, 5.0, Some(99.0))]);
        let end = format!("bound within 4 min: {} (did not finish)", contender.name());
        assert_eq!(find(&figures, &end).met, Some(false));
    }
}

#[test]
fn failed_turn_misses_a_goal_except_for_kube_scheduler() {
    let mut results = Results::new(Case::Gang, 1.0);
    results.failed(Contender::Octavo, &anyhow::anyhow!("no pod was bound"));
    results.failed(Contender::Raw, &anyhow::anyhow!("no API server"));
    results.failed(Contender::Kube, &anyhow::anyhow!("ended"));
    let figures = results.figures().unwrap();
    let of = |text: &str| figures.iter().find(|figure| figure.what.contains(text)).unwrap();
    assert_eq!(of("octavo failed: no pod was bound").met, Some(false));
    assert_eq!(of("raw failed").met, Some(false));
    assert_eq!(of("kube-scheduler failed").met, None);
    assert_eq!(of("kube-scheduler has no gangs").n, 0);
}
