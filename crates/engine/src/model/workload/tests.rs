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

fn member(node: u32, milli: u16, cpu_milli: i64) -> Member {
    let slices = crate::gpu::Slices::NONE;
    let part = crate::GpuPart { gpu: 0, milli, slices, memory_mib: 0 };
    let gpus = std::iter::once(part).collect();
    let resources = crate::Resources::of_pod(cpu_milli, 0);
    let shape = Arc::new(Shape::new(resources, crate::shape::GpuDemand::None));
    Member { shape, placement: Placement { node: NodeId(node), gpus }, limit: None }
}

/// The sums, computed from all workloads and members.
fn counted(workloads: &Workloads) -> Totals {
    let mut totals = Totals::default();
    for (_, workload) in workloads.iter() {
        totals.add_workload(&workload.profile);
        for member in workload.members.iter().flatten() {
            totals.add(&workload.profile.tenant, member);
        }
    }
    totals
}

/// A profile with attributes that the sums look at.
fn mixed(profile: Profile, tenant: &Arc<str>, step: u32) -> Profile {
    let (priority, is_preemptible) = (i32::try_from(step % 3).unwrap(), step.is_multiple_of(2));
    let tenant = Arc::clone(tenant);
    Profile { tenant, priority, is_preemptible, is_movable: step % 5 < 2, ..profile }
}

#[test]
fn sums_are_those_of_all_workloads_and_members_after_each_change() {
    let mut workloads = Workloads::default();
    let tenants: [Arc<str>; 3] = ["a", "b", "c"].map(Arc::from);
    let mut ids: Vec<WorkloadId> = Vec::new();
    for step in 0..600_u32 {
        // Mixed, and the same in each run.
        let roll = step.wrapping_mul(2_654_435_761) >> 8;
        let tenant = &tenants[roll as usize % tenants.len()];
        let new = member(roll % 5, u16::try_from(roll % 1000).unwrap(), i64::from(roll % 4));
        match (roll % 7, ids.get(roll as usize % ids.len().max(1)).copied()) {
            (0 | 1, _) | (_, None) => {
                let mut added = job(&format!("job-{step}"));
                added.profile = mixed(added.profile, tenant, step);
                added.members = vec![Some(new.clone()), None, Some(new)];
                ids.extend(workloads.add(added));
            }
            (2, Some(id)) => {
                let profile = workloads.workload(id).unwrap().profile.clone();
                let profile = mixed(profile, tenant, step);
                workloads.describe(id, profile, 1, Coupling::default());
            }
            (3, Some(id)) => {
                workloads.remove(id).unwrap();
                ids.retain(|other| *other != id);
            }
            (kind, Some(id)) => {
                let id = MemberId { workload: id, member: roll % 4 };
                workloads.set_member(id, (kind > 4).then_some(new));
            }
        }
        assert_eq!(workloads.totals, counted(&workloads), "step {step}");
    }
    assert!(workloads.used_by_tenant().count() == 3 && workloads.shapes().count() == 4);
    for id in ids {
        workloads.remove(id);
    }
    assert_eq!(workloads.totals, Totals::default());
}
