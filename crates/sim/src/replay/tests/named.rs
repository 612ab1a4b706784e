use clap::ValueEnum;

use super::*;

fn small() -> Trace {
    let nodes = include_str!("../../../testdata/small_nodes.csv");
    let pods = include_str!("../../../testdata/small_pods.csv");
    let nodes = nodes_from(nodes.as_bytes(), "small_nodes.csv").unwrap();
    let pods = pods_from(pods.as_bytes(), "small_pods.csv", &nodes).unwrap();
    Trace { nodes, pods }
}

fn all(order: Order) -> Options {
    Options {
        policies: Policy::value_variants().to_vec(),
        seeds: vec![42, 43, 44],
        order,
        inflate: Options::default().inflate.filter(|_| order == Order::Shuffled),
        departures: order == Order::Created,
        ..Options::default()
    }
}

/// All of a run that is no time.
fn without_times(runs: &[Run]) -> Vec<Run> {
    let strip =
        |run: &Run| Run { times: DecisionTimes::default(), wall_time_s: 0.0, ..run.clone() };
    runs.iter().map(strip).collect()
}

#[test]
fn every_policy_is_valid_and_keeps_working_in_every_order() {
    for order in [Order::Shuffled, Order::Created, Order::File] {
        let outcome = run(&small(), &all(order), &NoObserver).unwrap();
        assert_eq!(outcome.runs.len(), 7 * 3);
        for run in &outcome.runs {
            assert_eq!(run.violation, None, "{order} {}", run.policy);
            assert!(run.valid);
            assert_eq!(run.metrics.refused, 0, "{order} {}", run.policy);
            assert!(run.metrics.allocated_ratio > 0.5, "{order} {}: {:?}", run.policy, run.metrics);
        }
        let order: Vec<_> = outcome.runs.iter().map(|run| (run.policy, run.seed)).collect();
        let expected = Policy::value_variants().iter();
        let expected = expected.flat_map(|policy| [42, 43, 44].map(|seed| (*policy, seed)));
        assert_eq!(order, expected.collect::<Vec<_>>());
    }
}

#[test]
fn any_number_of_jobs_gives_the_same() {
    let jobs = |jobs| {
        let jobs = NonZeroUsize::new(jobs).unwrap();
        let options = Options { jobs, ..all(Order::Shuffled) };
        without_times(&run(&small(), &options, &NoObserver).unwrap().runs)
    };
    let one = jobs(1);
    assert_eq!(one, jobs(2));
    assert_eq!(one, jobs(8));
    let hash = |seed| &one.iter().find(|run| run.seed == seed).unwrap().placement_hash;
    assert_ne!(hash(42), hash(43), "another seed is another order");
}

#[test]
fn the_order_of_lines_in_the_lists_decides_nothing() {
    let (trace, mut turned) = (small(), small());
    turned.nodes.reverse();
    turned.pods.reverse();
    for order in [Order::Shuffled, Order::Created] {
        let runs = |trace| without_times(&run(trace, &all(order), &NoObserver).unwrap().runs);
        assert_eq!(runs(&trace), runs(&turned), "{order}");
    }
}

#[test]
fn policies_say_what_they_know_of_what_will_come() {
    let knows = |policy: Policy| policy.popularity(Popularity::Learned);
    assert_eq!(knows(Policy::Octavo), Some(Popularity::Learned));
    assert_eq!(Policy::Octavo.popularity(Popularity::Known), Some(Popularity::Known));
    assert_eq!(knows(Policy::Fgd), Some(Popularity::Known));
    assert_eq!(knows(Policy::BestFit), None);
}

#[test]
fn policies_of_the_published_table_are_found_in_it() {
    let mut names: Vec<_> =
        Policy::value_variants().iter().filter_map(|policy| policy.published_name()).collect();
    let mut expected = crate::published::POLICIES.to_vec();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn options_that_make_no_sense_together_are_refused() {
    let error = |options: &Options| run(&small(), options, &NoObserver).unwrap_err();
    let shuffled = Options { departures: true, ..Options::default() };
    let error_text = error(&shuffled);
    assert!(error_text.is_usage());
    assert_eq!(
        error_text.to_string(),
        "departures need the creation order, not the shuffled order; omit --order"
    );
    let inflated = Options { order: Order::File, ..Options::default() };
    let error_text = error(&inflated);
    assert!(error_text.is_usage());
    assert!(error_text.to_string().contains("omit --inflate or --order file"), "{error_text}");
}

#[test]
fn departures_of_a_list_without_times_are_refused() {
    let mut trace = small();
    trace.pods.iter_mut().for_each(|pod| pod.deletion_time = None);
    let options = Options { policies: vec![Policy::Fgd], ..all(Order::Created) };
    let error = run(&trace, &options, &NoObserver).unwrap_err();
    assert!(!error.is_usage());
    assert!(error.to_string().contains("none of the 12 pods has a deletion_time"), "{error}");
    trace.pods.iter_mut().for_each(|pod| pod.creation_time = None);
    let options = Options { departures: false, ..options };
    let error = run(&trace, &options, &NoObserver).unwrap_err();
    assert!(error.to_string().contains("has no creation_time (12 of 12"), "{error}");
}

#[test]
fn a_target_gives_the_figure_of_the_published_tables() {
    let pods: Vec<String> = (0..20).map(|pod| format!("pod-{pod:02},100,1,1000,,,")).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    let trace = trace(&["one,5,T4", "two,5,T4"], &pods);
    let options = Options { policies: vec![Policy::Fgd, Policy::Octavo], ..Options::default() };
    for run in run(&trace, &options, &NoObserver).unwrap().runs {
        let Metrics { pods, wanted_ratio, allocated_ratio_published, .. } = run.metrics;
        assert_eq!((pods, wanted_ratio, allocated_ratio_published), (13, 1.3, Some(1.0)));
    }
    let options = Options { order: Order::File, inflate: None, ..options };
    for run in run(&trace, &options, &NoObserver).unwrap().runs {
        assert_eq!((run.metrics.pods, run.metrics.allocated_ratio_published), (20, None));
    }
}

#[test]
fn observer_sees_every_run() {
    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicUsize);
    impl ReplayObserver for Count {
        fn advanced(&self, _: usize, _: usize) {}
        fn finished(&self, _: &Run) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let count = Count::default();
    run(&small(), &all(Order::Shuffled), &count).unwrap();
    assert_eq!(count.0.into_inner(), 21);
}
