//! Configs of shares that need something of the node.

use std::fs;
use std::sync::Arc;

use octavo_api::config::SwapUnit;
use octavo_api::names;
use octavo_enforcement::backend::{BackendKind, MemoryEnforcement};
use octavo_enforcement::share::ActiveShare;
use octavo_gpu::Driver;
use octavo_guard_abi::limits::PAGES;
use octavo_node::ClaimRef;
use serde_json::{Value, json};

use super::enforcement::{WithLimits, folder, share, start, terms};
use super::fixtures::Node;
use crate::claims::{Fact, SwapFact};

/// A claim with one share and a config of it.
fn configured(node: &Node, name: &str, fields: &Value) -> ClaimRef {
    let mut config = json!({"apiVersion": names::OCTAVO_API_VERSION, "kind": "GpuShareConfig"});
    if let (Some(config), Some(fields)) = (config.as_object_mut(), fields.as_object()) {
        config.extend(fields.clone());
    }
    with_config(node, name, &config)
}

/// A claim with one share and a config.
fn with_config(node: &Node, name: &str, config: &Value) -> ClaimRef {
    let claim = share(node, name);
    let mut object = node.delete(&claim);
    object["status"]["allocation"]["devices"]["config"] = json!([{
        "source": "FromClaim", "requests": ["request-0"],
        "opaque": {"driver": "gpu.nvidia.com", "parameters": config},
    }]);
    node.restore(&claim, object);
    claim
}

#[tokio::test]
async fn a_share_may_have_more_than_its_request_where_memory_is_swapped() {
    let node = Node::new();
    node.install_driver();
    let claims = start(&node, MemoryEnforcement::Guard).await;
    let claim = configured(&node, "a", &json!({"memoryLimit": "40Gi"}));
    let refusal = claims.prepare(&claim).await.expect_err("the node does not swap");
    assert_eq!(refusal.reason(), "EnforcementNotReady");
    let text = refusal.to_string();
    assert!(
        text.contains("memorySwap: processes") && text.contains("remove memoryLimit"),
        "{text}"
    );
    assert_eq!(node.files(), [""; 0], "a refusal leaves nothing");

    claims.set_has_swap(true);
    claims.prepare(&claim).await.expect("prepares");
    let limits = fs::read(folder(&node, &claim).join("limits.json")).expect("reads");
    let limits: Value = serde_json::from_slice(&limits).expect("is JSON");
    let (request, limit) = (20_u64 << 30, 40_u64 << 30);
    assert_eq!(
        (&limits["memoryBytes"], &limits["memoryRequestBytes"]),
        (&json!(limit), &json!(request))
    );
    assert_eq!(terms(&node, &claim).memory_bytes, limit, "guards count up to the limit");
    let shares = claims.active_shares();
    let bytes = |share: &ActiveShare| (share.memory_bytes, share.memory_request);
    assert_eq!(bytes(&shares.borrow()[0]), (limit, request));
    let swap = |has_swap| Some(SwapFact { request, limit, has_swap });
    let reported = || match node.facts(&claim).as_slice() {
        [Fact::Share { swap, .. }] => *swap,
        facts => panic!("{facts:?}"),
    };
    assert_eq!(reported(), swap(true));
    // Two such shares and a third fit the GPU of 80Gi by their requests.
    for name in ["b", "c"] {
        let other = configured(&node, name, &json!({"memoryLimit": "80Gi"}));
        claims.prepare(&other).await.expect("fits");
    }
    // A limit that is the request needs nothing of the node.
    claims.set_has_swap(false);
    assert_eq!(reported(), swap(false), "the setting may be turned off under the claim");
    let plain = configured(&node, "d", &json!({"memoryLimit": "20Gi"}));
    claims.prepare(&plain).await.expect("prepares");
    let less = configured(&node, "e", &json!({"memoryLimit": "10Gi"}));
    let refusal = claims.prepare(&less).await.expect_err("is less than the request");
    assert_eq!(refusal.reason(), "InvalidShare");
    assert!(refusal.to_string().contains("memoryLimit is less"), "{refusal}");
}

#[tokio::test]
async fn memory_is_moved_by_pages_where_some_is_lent() {
    let node = Node::new();
    node.install_driver();
    let claims = start(&node, MemoryEnforcement::Guard).await;
    claims.set_has_swap(true);
    let claim = configured(&node, "a", &json!({"memoryLimit": "40Gi", "swapUnit": "Pages"}));
    claims.prepare(&claim).await.expect("prepares");
    let units: Vec<_> = claims.active_shares().borrow().iter().map(|it| it.swap_unit).collect();
    assert_eq!(units, [SwapUnit::Pages]);
    assert_eq!(
        terms(&node, &claim).flags,
        PAGES,
        "its guards allocate so that memory can be moved"
    );
    for config in
        [json!({"swapUnit": "Pages"}), json!({"memoryLimit": "20Gi", "swapUnit": "Pages"})]
    {
        let vain = configured(&node, "b", &config);
        let refusal = claims.prepare(&vain).await.expect_err("nothing of it is ever moved");
        assert_eq!(refusal.reason(), "InvalidShare");
        assert!(refusal.to_string().contains("no memoryLimit above"), "{refusal}");
    }
}

#[tokio::test]
async fn a_time_slice_of_a_share_is_its_quantum_where_leases_are_given() {
    let node = Node::new();
    node.install_driver();
    let claims = start(&node, MemoryEnforcement::Auto).await;
    let sliced = |name, interval| {
        let sharing =
            json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}});
        let config = json!({
            "apiVersion": names::NVIDIA_API_VERSION, "kind": "GpuConfig", "sharing": sharing,
        });
        with_config(&node, name, &config)
    };
    let claim = sliced("a", "Short");
    claims.set_driver(Some(&(Arc::new(WithLimits(false)) as Arc<dyn Driver>))).await;
    assert!(!claims.enforces_time());
    let refusal = claims.prepare(&claim).await.expect_err("there are no leases");
    assert_eq!(refusal.reason(), "NotYetSupported");
    assert!(refusal.to_string().contains("timeEnforcement: leases"), "{refusal}");
    assert_eq!(node.files(), [""; 0], "a refusal leaves nothing");

    claims.set_has_leases(true);
    assert!(claims.enforces_time(), "the guard is the backend");
    let names = [("a", claim), ("b", sliced("b", "Long")), ("c", sliced("c", "Default"))];
    for (_, claim) in &names {
        claims.prepare(claim).await.expect("prepares");
    }
    let shares = claims.active_shares().borrow().to_vec();
    let quanta = names.map(|(_, claim)| {
        let share = shares.iter().find(|share| share.claim == claim).expect("is active");
        share.quantum_ms
    });
    assert_eq!(quanta, [Some(5), Some(100), None]);
    claims.set_memory_enforcement(MemoryEnforcement::Off);
    assert!(!claims.enforces_time());
    let mps = json!({
        "apiVersion": names::NVIDIA_API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": "MPS"},
    });
    let refusal = claims.prepare(&with_config(&node, "d", &mps)).await.expect_err("is MPS");
    assert_eq!(refusal.reason(), "NotYetSupported");
}

#[tokio::test]
async fn a_share_of_an_exempt_namespace_has_neither_guard_nor_leases() {
    let node = Node::new();
    node.install_driver();
    let claims = start(&node, MemoryEnforcement::Guard).await;
    claims.set_has_leases(true);
    claims.set_exempt_namespaces(["ns".to_owned()].into());
    let claim = configured(&node, "a", &json!({"memoryLimit": "40Gi"}));
    claims.prepare(&claim).await.expect("nothing needs to lend memory");
    let spec = fs::read_to_string(node.path(&Node::cdi(&claim))).expect("reads");
    assert!(!spec.contains("/run/octavo/guard"), "{spec}");
    let reported = || match node.facts(&claim).as_slice() {
        [Fact::Share { is_exempt, backend, time, swap, .. }] => {
            (*is_exempt, *backend, time.has_leases, *swap)
        }
        facts => panic!("{facts:?}"),
    };
    let exempt = (true, Some(BackendKind::Off), false, None);
    assert_eq!(reported(), exempt);

    // It is fixed for the share's life, also for the next agent. Other namespaces are held.
    drop(claims);
    let claims = start(&node, MemoryEnforcement::Guard).await;
    claims.set_exempt_namespaces(["kube-system".to_owned()].into());
    claims.prepare(&claim).await.expect("prepares again");
    assert_eq!(claims.active_shares().borrow()[0].backend, Some(BackendKind::Off));
    assert_eq!(reported(), exempt);
    claims.unprepare(&claim).await.expect("unprepares");
    let held = share(&node, "b");
    claims.prepare(&held).await.expect("prepares");
    assert_eq!(claims.active_shares().borrow()[0].backend, Some(BackendKind::Guard));
}
