use std::path::PathBuf;

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_guard_abi::state::Damage;
use octavo_node::ClaimRef;

use super::{
    ActiveShare, Notice, Response, StateDamage, long_wait_finding, overflow_message,
    unknown_functions_finding,
};

#[test]
fn messages_say_what_happened_and_what_to_do() {
    let share = ActiveShare {
        claim: ClaimRef { namespace: "team".into(), name: "train".into(), uid: "u".into() },
        pool: "node".to_owned(),
        device: "gpu-3".to_owned(),
        share_id: "s-1".to_owned(),
        gpu_uuid: "GPU-1".to_owned(),
        folder: PathBuf::from("/run/octavo/shares/u_s-1"),
        memory_bytes: 20 << 30,
        memory_request: 20 << 30,
        swap_unit: octavo_api::config::SwapUnit::default(),
        compute_milli_percent: 0,
        compute_limit: None,
        quantum_ms: None,
        overflow: OverflowPolicy::Freeze,
        strictness: Strictness::Lenient,
        class: ShareClass::Normal,
        backend: None,
        generation: 1,
    };
    let overflow =
        Notice::Overflow { driver_bytes: 23 << 30, response: Response::Frozen, has_failed: false };
    assert_eq!(
        overflow_message(&overflow, &share),
        "the driver counts 23552 MiB for share s-1 of gpu-3 with a limit of 20480 MiB: its containers are \
         frozen until its use is below the limit; delete the pod to end it"
    );
    for (response, part) in [
        (Response::Frozen, "some of its containers could not be frozen"),
        (Response::Killed, "beyond the limit could not be killed"),
    ] {
        let overflow = Notice::Overflow { driver_bytes: 23 << 30, response, has_failed: true };
        let reported = overflow_message(&overflow, &share);
        assert!(reported.contains(part) && reported.contains("Delete the pod"), "{reported}");
    }
    for (damage, part) in [
        (StateDamage::Gone, "the ledger of share s-1 of gpu-3 is gone:"),
        (StateDamage::Damaged(Damage::Size), "was truncated"),
        (StateDamage::Damaged(Damage::Magic), "was changed (Magic)"),
        (StateDamage::Reported(2), "as one of its own guards says (code 2)"),
    ] {
        let reported = overflow_message(&Notice::Tampered(damage), &share);
        assert!(reported.contains(part) && reported.contains("delete the pod"), "{reported}");
    }
    let names = [("cuA".to_owned(), true), ("cuB".to_owned(), false)].into();
    let news = unknown_functions_finding(&share, &names);
    assert!(news.message.contains("cuA (refused), cuB (let through)"), "{}", news.message);
    assert_eq!((news.reason, news.condition), ("UnknownDriverFunction", None));
    let waits = long_wait_finding(&share);
    assert!(
        waits.message.contains("others use the GPU; `octavo top --shares`"),
        "{}",
        waits.message
    );
    let last = ActiveShare { class: ShareClass::BestEffort, ..share };
    let waits = long_wait_finding(&last);
    assert!(waits.message.contains("only the time that other shares leave"), "{}", waits.message);
    assert_eq!((waits.reason, waits.condition), ("WaitsForGpuTime", None));
}
