use super::*;

fn job(name: &str) -> Workload {
    let (profile, bonds) = (Profile::new(name), Bonds::default());
    Workload { profile, min_members: 1, bonds, members: Vec::new() }
}

#[test]
fn ids_are_not_used_again_and_nothing_is_kept_of_who_has_gone() {
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
