use super::*;

/// One GPU. The second pod finds it allocated and leaves before the third arrives.
const PODS: [&str; 3] = ["a,1000,1,1000,,0,10", "b,1000,1,1000,,5,15", "c,1000,1,1000,,12,20"];

fn by_time(pods: &[&str], departures: bool) -> ReplayResult {
    let trace = trace(&["node,1,T4"], pods);
    let arrivals = Arrivals::of(&trace, arrivals::Order::ByCreationTime).unwrap();
    replay_with(&trace, &arrivals, departures, &mut FirstFit).unwrap()
}

#[test]
fn gpus_come_back_when_pods_leave() {
    let result = by_time(&PODS, true);
    let lines: Vec<String> = result.log.lines().collect();
    assert_eq!(lines, ["a,node,0,1000", "b,,,", "c,node,0,1000"]);
    let totals = result.verdict.unwrap();
    assert_eq!((totals.departed, totals.running, totals.allocated_gpu_milli), (2, 0, 0));
    let without = by_time(&PODS, false);
    assert_eq!(without.metrics.skipped, 2, "no pod leaves");
    assert_eq!(without.metrics.over_time, None);
}

#[test]
fn sums_over_time_are_those_counted_by_hand() {
    let sums = by_time(&PODS, true).metrics.over_time.unwrap();
    assert_eq!(sums.seconds, 20);
    assert_eq!((sums.gpu_seconds_wanted, sums.gpu_seconds_given), (28.0, 18.0));
    assert_eq!(sums.given_ratio, Some(18.0 / 28.0));
    assert_eq!((sums.allocated_ratio_mean, sums.allocated_ratio_peak), (Some(0.9), 1.0));
}

#[test]
fn demand_falls_when_a_pods_lifetime_ends() {
    let metrics = by_time(&PODS, true).metrics;
    assert_eq!(metrics.first_skip, Some(2.0), "a and b");
    // After the last arrival, not after the last event: b and c are wanted, a has left.
    assert_eq!((metrics.wanted_ratio, metrics.allocated_ratio), (2.0, 1.0));
}

#[test]
fn a_pod_without_an_end_stays() {
    let result = by_time(&["a,1000,1,1000,,0,", "b,1000,1,1000,,5,15"], true);
    let sums = result.metrics.over_time.unwrap();
    assert_eq!((sums.gpu_seconds_wanted, sums.gpu_seconds_given), (25.0, 15.0));
    assert_eq!(result.verdict.unwrap().running, 1);
}

#[test]
fn a_curve_over_time_has_times() {
    let curve = by_time(&PODS, true).curve;
    let points: Vec<_> = curve.iter().map(|point| (point.time.unwrap(), point.allocated)).collect();
    assert_eq!(points, [(0, 1.0), (5, 1.0), (10, 0.0), (12, 1.0), (15, 1.0), (20, 0.0)]);
}
