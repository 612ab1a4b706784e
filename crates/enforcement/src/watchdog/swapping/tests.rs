use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_node::ClaimRef;

use super::*;
use crate::share::ActiveShare;
use crate::swap::SwapSettings;

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

#[test]
fn a_share_that_moves_does_not_count_against_its_own_room() {
    let gpu_time = GpuTime::start().unwrap();
    let settings = SwapSettings { host_bytes: None, driver_root: "/".into() };
    let proc = Proc::new("/proc".into());
    let mover = Mover::new(settings, "octavo".into(), proc, Arc::clone(&gpu_time));
    let mut swapping = Swapping::new(gpu_time, mover);
    let shares = ["a", "b", "c"].map(share).into();
    let mut plan = new_plan();
    plan.adopt_out("a", 5 * GIB, Duration::ZERO);
    plan.adopt_out("b", 7 * GIB, Duration::ZERO);
    swapping.gpus.insert("GPU-1".to_owned(), plan);
    let others = |name| swapping.others_on_host(name, &shares) / GIB;
    assert_eq!((others("a"), others("b"), others("c")), (7, 5, 12));
}
