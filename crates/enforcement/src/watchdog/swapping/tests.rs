use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_node::ClaimRef;

use super::*;
use crate::share::ActiveShare;
use crate::swap::{HostBudget, SwapSettings};

const GIB: u64 = 1 << 30;

fn share(name: &str) -> (String, MonitoredShare) {
    let share = ActiveShare {
        claim: ClaimRef {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
        },
        pool: "node".to_owned(),
        device: "gpu-0".to_owned(),
        share_id: "s".to_owned(),
        gpu_uuid: "GPU-1".to_owned(),
        folder: format!("/nowhere/{name}").into(),
        memory_bytes: 40 * GIB,
        memory_request: 10 * GIB,
        swap_unit: octavo_api::config::SwapUnit::default(),
        compute_milli_percent: 0,
        compute_limit: None,
        quantum_ms: None,
        overflow: OverflowPolicy::Kill,
        strictness: Strictness::Lenient,
        class: ShareClass::Normal,
        backend: None,
        generation: 1,
    };
    (name.to_owned(), MonitoredShare::new(share, "node"))
}

fn swapping() -> Swapping {
    let gpu_time = GpuTime::start().unwrap();
    let settings = SwapSettings { host: HostBudget::of(None), driver_root: "/".into() };
    let proc = Proc::new("/proc".into());
    let mover = Mover::new(settings, "octavo".into(), proc, Arc::clone(&gpu_time));
    Swapping::new(gpu_time, mover)
}

/// A process with flags, whose guard can move memory or not, and has moved so much.
fn page(unmovable: u32, can_move: u32, moved: u64) -> ProcessMemory {
    ProcessMemory {
        pid: 1,
        need: None,
        is_waiting: false,
        is_running: false,
        is_active: false,
        unmovable,
        can_move,
        movable: 0,
        moved,
    }
}

#[test]
fn what_guards_have_moved_is_found_without_a_record() {
    let mut swapping = swapping();
    let (name, mut share) = share("a");
    let pages = vec![page(0, CAN_MOVE, 0), page(0, CAN_MOVE, GIB), page(0, CAN_MOVE, 2 * GIB)];
    assert_eq!(swapping.shown_out(&name, &share, Some(&pages)), None, "it is moved as a whole");
    share.share.swap_unit = SwapUnit::Pages;
    assert_eq!(swapping.shown_out(&name, &share, Some(&pages)), Some((3 * GIB, 0)));
    assert_eq!(swapping.shown_out(&name, &share, Some(&vec![page(0, CAN_MOVE, 0)])), None);
    swapping.moving.insert(name.clone());
    assert_eq!(swapping.shown_out(&name, &share, Some(&pages)), None, "it is on its way");
    swapping.moving.clear();
    let mut plan = new_plan();
    plan.adopt_out(&name, (3 * GIB, 0), Duration::ZERO);
    swapping.gpus.insert("GPU-1".to_owned(), plan);
    assert_eq!(swapping.shown_out(&name, &share, Some(&pages)), None, "the plan has it out");
}

#[test]
fn guards_that_move_memory_have_yet_to_connect() {
    let (_, mut share) = share("a");
    assert!(!is_connecting(&share, GIB, &[]), "the driver moves its processes");
    share.share.swap_unit = SwapUnit::Pages;
    assert!(is_connecting(&share, GIB, &[]));
    assert!(!is_connecting(&share, 0, &[]), "there is none");
    assert!(!is_connecting(&share, GIB, &[page(0, CAN_MOVE, 0)]));
}

#[test]
fn the_unit_decides_what_stands_in_the_way() {
    let of = |unit, page| obstacle(unit, Some(&vec![page]));
    let (processes, pages) = (SwapUnit::Processes, SwapUnit::Pages);
    assert_eq!(of(processes, page(MANAGED | SHARED, 0, 0)), Some(SwapState::Managed));
    assert_eq!(of(processes, page(SHARED, CANNOT_MOVE, 0)), Some(SwapState::Shared));
    assert_eq!(of(processes, page(0, CANNOT_MOVE, 0)), None);
    assert_eq!(of(pages, page(MANAGED | SHARED, CAN_MOVE, 0)), None, "the rest moves");
    assert_eq!(of(pages, page(0, CANNOT_MOVE, 0)), Some(SwapState::SeveralGpus));
}

#[test]
fn a_share_that_moves_does_not_count_against_its_own_room() {
    let mut swapping = swapping();
    let shares = ["a", "b", "c"].map(share).into();
    let mut plan = new_plan();
    plan.adopt_out("a", (5 * GIB, 0), Duration::ZERO);
    plan.adopt_out("b", (7 * GIB, 0), Duration::ZERO);
    swapping.gpus.insert("GPU-1".to_owned(), plan);
    let others = |name| swapping.others_on_host(name, &shares) / GIB;
    assert_eq!((others("a"), others("b"), others("c")), (7, 5, 12));
}
