use proptest::prelude::*;

use super::*;

fn nodes() -> Vec<NodeRow> {
    let node = |name: &str, gpus, model: &str| NodeRow {
        name: name.into(),
        cpu_milli: 10_000,
        memory_mib: 1_000,
        gpus,
        model: model.into(),
    };
    vec![node("a", 2, "T4"), node("b", 4, "P100")]
}

fn pod(num_gpu: u32, gpu_milli: u32) -> PodRow {
    PodRow { cpu_milli: 1_000, memory_mib: 100, num_gpu, gpu_milli, ..PodRow::default() }
}

fn on<'a>(name: &'a str, pod: &'a PodRow, node: &'a str, gpus: &[(u32, u32)]) -> Event<'a> {
    let placement = Some(Placement { node, gpus: gpus.to_vec() });
    Event::Arrive { name, pod, gang: None, placement }
}

fn member<'a>(name: &'a str, pod: &'a PodRow, id: &'a str, gpu: Option<u32>) -> Event<'a> {
    let placement = gpu.map(|gpu| Placement { node: "b", gpus: vec![(gpu, pod.gpu_milli)] });
    Event::Arrive { name, pod, gang: Some(Gang { id, min_members: 2 }), placement }
}

fn gone(name: &str, why: Departure) -> Event<'_> {
    Event::Depart { name, why }
}

fn finished(name: &str) -> Event<'_> {
    gone(name, Departure::Finished)
}

/// The first violation's event and fault.
fn fault(log: &[Event<'_>]) -> (usize, Fault) {
    let violation = validate(&nodes(), log).unwrap_err();
    (violation.event, violation.fault)
}

#[test]
fn a_valid_log_is_counted() {
    let (share, whole, cpu) = (pod(1, 400), pod(2, 1000), pod(0, 0));
    let log = [
        on("s1", &share, "a", &[(0, 400)]),
        on("s2", &share, "a", &[(0, 400)]),
        on("w", &whole, "b", &[(3, 1000), (1, 1000)]),
        on("c", &cpu, "a", &[]),
        Event::Arrive { name: "late", pod: &share, gang: None, placement: None },
        finished("s1"),
        on("late", &share, "a", &[(0, 400)]),
        Event::Settled,
    ];
    let totals = Totals {
        events: 8,
        arrivals: 6,
        placed: 5,
        skipped: 1,
        departed: 1,
        running: 4,
        allocated_gpu_milli: 2800,
        capacity_gpu_milli: 6000,
    };
    assert_eq!(validate(&nodes(), &log).unwrap(), totals);
}

#[test]
fn cpu_beyond_the_nodes_is_caught() {
    let greedy = PodRow { cpu_milli: 5_001, ..pod(0, 0) };
    let log = [on("p", &greedy, "a", &[]), on("q", &greedy, "b", &[]), on("r", &greedy, "a", &[])];
    let expected = Fault::CpuOverfull { node: "a".into(), cpu_milli: 10_002, has: 10_000 };
    assert_eq!(fault(&log), (2, expected));
}

#[test]
fn memory_beyond_the_nodes_is_caught() {
    let greedy = PodRow { memory_mib: 501, ..pod(0, 0) };
    let log = [on("p", &greedy, "a", &[]), on("q", &greedy, "a", &[])];
    let expected = Fault::MemoryOverfull { node: "a".into(), memory_mib: 1_002, has: 1_000 };
    assert_eq!(fault(&log), (1, expected));
    let vast = PodRow { memory_mib: u64::MAX, cpu_milli: u64::MAX, ..pod(0, 0) };
    assert_eq!(fault(&[on("p", &pod(0, 0), "a", &[]), on("q", &vast, "a", &[])]).0, 1);
}

#[test]
fn a_gpu_given_twice_is_caught() {
    let (whole, sliver) = (pod(1, 1000), pod(1, 1));
    let log = [on("p", &whole, "a", &[(1, 1000)]), on("q", &sliver, "a", &[(1, 1)])];
    assert_eq!(fault(&log), (1, Fault::GpuOverfull { node: "a".into(), gpu: 1, milli: 1001 }));
    let shares: Vec<_> = (0..3).map(|_| pod(1, 334)).collect();
    let log = [
        on("p", &shares[0], "a", &[(0, 334)]),
        on("q", &shares[1], "a", &[(0, 334)]),
        on("r", &shares[2], "a", &[(0, 334)]),
    ];
    assert_eq!(fault(&log), (2, Fault::GpuOverfull { node: "a".into(), gpu: 0, milli: 1002 }));
}

#[test]
fn too_few_and_too_many_gpus_are_caught() {
    let wrong = |pod: &PodRow, gpus: &[(u32, u32)]| fault(&[on("p", pod, "b", gpus)]);
    let number = |got, wanted| (0, Fault::WrongNumberOfGpus { got, wanted });
    assert_eq!(wrong(&pod(2, 1000), &[(0, 1000)]), number(1, 2));
    assert_eq!(wrong(&pod(1, 500), &[(0, 500), (1, 500)]), number(2, 1));
    assert_eq!(wrong(&pod(1, 500), &[]), number(0, 1));
    assert_eq!(wrong(&pod(0, 0), &[(0, 0)]), number(1, 0));
}

#[test]
fn a_share_of_another_size_is_caught() {
    let log = |milli| fault(&[on("p", &pod(1, 500), "a", &[(0, milli)])]).1;
    assert_eq!(log(499), Fault::WrongShare { gpu: 0, got: 499, wanted: 500 });
    assert_eq!(log(501), Fault::WrongShare { gpu: 0, got: 501, wanted: 500 });
}

#[test]
fn one_gpu_counted_as_two_is_caught() {
    let pod = pod(2, 500);
    let log = [on("p", &pod, "b", &[(2, 500), (2, 500)])];
    assert_eq!(fault(&log), (0, Fault::SameGpuTwice { node: "b".into(), gpu: 2 }));
}

#[test]
fn gpus_and_nodes_that_are_not_there_are_caught() {
    let pod = pod(1, 500);
    let log = [on("p", &pod, "a", &[(2, 500)])];
    assert_eq!(fault(&log), (0, Fault::UnknownGpu { node: "a".into(), gpu: 2, has: 2 }));
    let log = [on("p", &pod, "c", &[(0, 500)])];
    assert_eq!(fault(&log), (0, Fault::UnknownNode { node: "c".into() }));
    let twice = [nodes(), nodes()].concat();
    let violation = validate(&twice, &[]).unwrap_err();
    assert_eq!(violation.fault, Fault::TwoNodes { node: "a".into() });
}

#[test]
fn a_model_that_the_pod_does_not_want_is_caught() {
    let choosy = PodRow { models: vec!["G2".into(), "T4".into()], ..pod(1, 500) };
    assert!(validate(&nodes(), &[on("p", &choosy, "a", &[(0, 500)])]).is_ok());
    let (node, model, allowed) = ("b".into(), "P100".into(), "G2|T4".into());
    let log = [on("p", &choosy, "b", &[(0, 500)])];
    assert_eq!(fault(&log), (0, Fault::ModelNotAllowed { node, model, allowed }));
    // Without GPUs the model does not matter.
    let plain = PodRow { models: vec!["T4".into()], ..pod(0, 0) };
    assert!(validate(&nodes(), &[on("p", &plain, "b", &[])]).is_ok());
}

#[test]
fn pods_that_come_twice_or_leave_unseen_are_caught() {
    let pod = pod(1, 500);
    let come = || on("p", &pod, "a", &[(0, 500)]);
    assert_eq!(fault(&[come(), come()]), (1, Fault::RunsAlready));
    assert_eq!(fault(&[finished("p")]), (0, Fault::DoesNotRun));
    assert_eq!(fault(&[come(), finished("p"), finished("p")]), (2, Fault::DoesNotRun));
    assert!(validate(&nodes(), &[come(), finished("p"), come()]).is_ok());
}

#[test]
fn a_gang_placed_in_part_is_caught_when_its_decision_is_over() {
    let pod = pod(1, 1000);
    let in_part = Fault::GangInPart { gang: "g".into(), running: 1, finished: 0, min_members: 2 };
    let first = || member("p", &pod, "g", Some(0));
    let second = |gpu| member("q", &pod, "g", gpu);
    assert_eq!(fault(&[first(), second(None), Event::Settled]), (2, in_part.clone()));
    assert_eq!(fault(&[first(), second(None)]), (2, in_part.clone()), "at the end, too");
    assert_eq!(fault(&[first()]), (1, in_part));
    assert!(validate(&nodes(), &[first(), second(Some(1)), Event::Settled]).is_ok());
    let none = [member("p", &pod, "g", None), second(None), Event::Settled];
    assert!(validate(&nodes(), &none).is_ok());
    // Two of three members are enough.
    let log = [first(), second(Some(1)), member("r", &pod, "g", None), Event::Settled];
    assert!(validate(&nodes(), &log).is_ok());
}

#[test]
fn a_gang_that_loses_a_member_is_mended_or_goes_whole() {
    let pod = pod(1, 1000);
    let stands = [member("p", &pod, "g", Some(0)), member("q", &pod, "g", Some(1)), Event::Settled];
    let then = |rest: &[Event<'_>]| {
        let mut validator = Validator::new(&nodes()).unwrap();
        stands.iter().chain(rest).try_for_each(|event| validator.apply(event))?;
        validator.finish().map(|totals| totals.running)
    };
    let evicted = |name| gone(name, Departure::Evicted);
    assert_eq!(then(&[finished("p"), Event::Settled]), Ok(1), "an end is no loss");
    assert_eq!(then(&[evicted("p"), evicted("q"), Event::Settled]), Ok(0));
    assert_eq!(then(&[evicted("p"), member("p", &pod, "g", Some(2)), Event::Settled]), Ok(2));
    assert_eq!(then(&[finished("p"), evicted("q"), Event::Settled]), Ok(0));
    let left = then(&[evicted("p"), Event::Settled]).unwrap_err();
    let in_part = Fault::GangInPart { gang: "g".into(), running: 1, finished: 0, min_members: 2 };
    assert_eq!((left.event, left.fault), (4, in_part));
}

#[test]
fn members_that_disagree_are_caught() {
    let pod = pod(1, 1000);
    let mut other = member("q", &pod, "g", None);
    if let Event::Arrive { gang: Some(gang), .. } = &mut other {
        gang.min_members = 3;
    }
    let expected = Fault::MinMembersDiffer { gang: "g".into(), before: 2, now: 3 };
    assert_eq!(fault(&[member("p", &pod, "g", Some(0)), other]), (1, expected));
}

#[test]
fn a_violation_says_which_event_which_pod_and_what() {
    let pod = pod(1, 500);
    let message = validate(&nodes(), &[on("p", &pod, "c", &[(0, 500)])]).unwrap_err().to_string();
    assert_eq!(message, "event 0, pod `p`: placed on `c`, which is not in the cluster");
}

proptest! {
    /// Compares with a count that needs no replay: a log of arrivals is valid if and only if no sum
    /// exceeds the capacity.
    #[test]
    fn a_log_is_valid_as_long_as_every_sum_fits(
        picks in proptest::collection::vec((0..2usize, 0..2u32, 1..700u32, 0..3000u64), 1..12),
    ) {
        let pods: Vec<_> = picks.iter()
            .map(|(_, _, milli, cpu)| PodRow { cpu_milli: *cpu, ..pod(1, *milli) })
            .collect();
        let names: Vec<_> = (0..picks.len()).map(|index| index.to_string()).collect();
        let log: Vec<_> = picks.iter().zip(&pods).zip(&names)
            .map(|(((node, gpu, milli, _), pod), name)| {
                on(name, pod, ["a", "b"][*node], &[(*gpu, *milli)])
            })
            .collect();
        let fits = (0..2).all(|node| {
            let here = || picks.iter().filter(|pick| pick.0 == node);
            here().map(|pick| pick.3).sum::<u64>() <= 10_000
                && here().count() <= 10
                && (0..2).all(|gpu| {
                    here().filter(|pick| pick.1 == gpu).map(|pick| pick.2).sum::<u32>() <= 1000
                })
        });
        let total: u32 = picks.iter().map(|pick| pick.2).sum();
        match validate(&nodes(), &log) {
            Ok(totals) => {
                prop_assert!(fits);
                prop_assert_eq!(totals.allocated_gpu_milli, u64::from(total));
            }
            Err(violation) => prop_assert!(!fits, "{violation}"),
        }
    }
}
