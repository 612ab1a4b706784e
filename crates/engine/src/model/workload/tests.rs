use super::*;

fn job(name: &str) -> Workload {
    let (profile, coupling) = (Profile::new(name), Coupling::default());
    Workload { profile, min_members: 1, coupling, members: Vec::new() }
}

#[test]
fn ids_are_not_reused_and_removed_workloads_leave_nothing() {
    let mut workloads = Workloads::default();
    let first = workloads.add(job("first")).unwrap();
    assert_eq!(workloads.add(job("first")), None, "the name is taken");
    let mut last = first;
    for _ in 0..100 {
        let next = workloads.add(job("next")).unwrap();
        assert!(next > last);
        workloads.remove(next).unwrap();
        last = next;
    }
    assert_eq!((workloads.list.len(), workloads.ids.len()), (1, 1));
    assert!(workloads.workload(last).is_none() && workloads.remove(last).is_none());
    let second = workloads.add(job("second")).unwrap();
    let ids: Vec<WorkloadId> = workloads.iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [first, second]);
}
