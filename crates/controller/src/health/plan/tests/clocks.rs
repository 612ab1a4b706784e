use super::*;

const BREAKER: &str = "BreakerOpen";

#[test]
fn a_storm_is_one_also_where_clocks_of_nodes_are_behind() {
    let mut bench = Bench::new(20, 1);
    bench.round();
    for (number, ago) in [(0, 0), (1, 2 * HOUR), (2, 900 * HOUR)] {
        bench.now += 10;
        bench.report(number, 0, fenced(Remedy::ResetFunction), ago);
        bench.round();
    }
    assert_eq!(bench.condition("a", BREAKER).0, "True");
}

#[test]
fn fences_that_a_controller_finds_when_it_starts_are_as_old_as_they_are() {
    let mut bench = Bench::new(20, 1);
    for number in 0..3 {
        bench.report(number, 0, fenced(Remedy::ResetFunction), HOUR);
    }
    bench.round();
    bench.restart();
    bench.round();
    assert_eq!(bench.condition("a", BREAKER).0, "False");
    // What was seen is not new a second time, and old fences make no storm with a new one.
    bench.now += 10;
    bench.report(3, 0, fenced(Remedy::ResetFunction), 0);
    bench.round();
    bench.round();
    assert_eq!(bench.condition("a", BREAKER).0, "False");
}

#[test]
fn fences_of_the_last_minutes_count_for_a_controller_that_starts() {
    let mut bench = Bench::new(20, 1);
    for number in 0..3 {
        bench.report(number, 0, fenced(Remedy::ResetFunction), 60);
    }
    bench.round();
    assert_eq!(bench.condition("a", BREAKER).0, "True");
}
