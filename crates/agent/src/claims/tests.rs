mod adoption;
mod damage;
mod driver;
mod enforcement;
mod fixtures;
mod hook;
mod instances;
mod mig;
mod mig_faults;
mod modules;
mod parts;
mod plugin_daemons;
mod random;
mod refusals;
mod share_configs;
mod shares;
mod sharing;
mod withheld;

use std::time::{Duration, Instant};

use fixtures::Node;

use super::Claims;
use super::conflict::GONE_GRACE_PERIOD;

/// Half a minute passes, and a sweep comes.
async fn sweep_later(claims: &Claims) -> super::Swept {
    claims.sweep_at(Instant::now() + GONE_GRACE_PERIOD).await
}

#[tokio::test]
async fn a_claim_is_prepared_and_unprepared_and_leaves_nothing() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0", "gpu-1"]);
    let devices = claims.prepare(&claim).await.expect("prepares");
    let ids: Vec<_> = devices.iter().flat_map(|device| device.cdi_ids.clone()).collect();
    let expected =
        ["gpu-0", "gpu-1"].map(|d| format!("k8s.gpu.nvidia.com/claim={}-{d}", claim.uid));
    assert_eq!(ids, expected);
    assert_eq!(devices[1].requests, ["request-1"]);
    assert_eq!((devices[1].pool.as_str(), devices[1].device.as_str()), ("node-a", "gpu-1"));
    assert_eq!(node.files(), [Node::checkpoint(&claim), Node::cdi(&claim)]);

    let again = claims.prepare(&claim).await.expect("prepares again");
    assert_eq!(again, devices);
    assert_eq!(node.reads(), 1, "a repeated prepare reads nothing");

    claims.unprepare(&claim).await.expect("unprepares");
    claims.unprepare(&claim).await.expect("unprepares again");
    assert_eq!(node.files(), [""; 0]);
    assert_eq!(claims.holdings(), []);
}

#[tokio::test]
async fn a_restart_knows_what_was_given() {
    let node = Node::new();
    let claim = node.allocate("a", &["gpu-0"]);
    let other = node.allocate("b", &["gpu-0"]);
    let claims = node.start().await;
    let devices = claims.prepare(&claim).await.expect("prepares");
    drop(claims);
    let claims = node.start().await;
    let refusal = claims.prepare(&other).await.expect_err("is taken");
    assert_eq!(refusal.reason(), "DeviceInUse");
    assert!(refusal.to_string().contains("ns/a"), "{refusal}");
    assert_eq!(claims.prepare(&claim).await, Ok(devices));
    assert_eq!(node.reported(), [("b".to_owned(), "DeviceInUse")]);
}

#[tokio::test]
async fn a_new_boot_forgets_everything() {
    let node = Node::new();
    let claim = node.allocate("a", &["gpu-0"]);
    let other = node.allocate("b", &["gpu-0"]);
    node.start().await.prepare(&claim).await.expect("prepares");
    node.reboot();
    let claims = node.start().await;
    assert_eq!(node.files(), [""; 0]);
    claims.prepare(&other).await.expect("the GPU is free");
}

#[tokio::test]
async fn a_holder_whose_object_is_gone_makes_way() {
    let node = Node::new();
    let claims = node.start().await;
    let first = node.allocate("a", &["gpu-0"]);
    claims.prepare(&first).await.expect("prepares");
    node.delete(&first);
    let second = node.allocate("b", &["gpu-0"]);
    // A pod that was deleted by force: its claim is gone before its containers are.
    let refusal = claims.prepare(&second).await.expect_err("may still run");
    assert_eq!(refusal.reason(), "DeviceNotFreed");
    assert!(refusal.to_string().contains("ns/a") && refusal.to_string().contains("30 s"));
    assert_eq!(claims.sweep().await, super::Swept::default(), "not yet");
    assert_eq!(sweep_later(&claims).await.released, [first]);
    claims.prepare(&second).await.expect("prepares");
    assert_eq!(node.cleared(), ["b"], "the refusal is taken back");
    assert_eq!(node.files(), [Node::checkpoint(&second), Node::cdi(&second)]);

    // The same name again is another claim.
    node.delete(&second);
    let namesake = node.allocate("b", &["gpu-0"]);
    assert_ne!(namesake.uid, second.uid);
    claims.prepare(&namesake).await.expect_err("the old one's containers may still run");
    claims.unprepare(&second).await.expect("the kubelet says that they do not");
    claims.prepare(&namesake).await.expect("prepares");
    assert_eq!(node.files(), [Node::checkpoint(&namesake), Node::cdi(&namesake)]);
    let refusal = claims.prepare(&second).await.expect_err("is another claim now");
    assert_eq!(refusal.reason(), "ClaimReplaced");
    // The kubelet's late unprepare of the old one does not touch the new one.
    claims.unprepare(&second).await.expect("is done already");
    assert_eq!(node.files(), [Node::checkpoint(&namesake), Node::cdi(&namesake)]);

    // Its allocation is taken back.
    node.deallocate(&namesake);
    let third = node.allocate("c", &["gpu-0"]);
    claims.prepare(&third).await.expect_err("its containers may still run");
    sweep_later(&claims).await;
    claims.prepare(&third).await.expect("prepares");
}

#[tokio::test]
async fn a_sweep_frees_what_is_gone_and_repairs_what_is_missing() {
    let node = Node::new();
    let claims = node.start().await;
    let gone = node.allocate("a", &["gpu-0"]);
    let stays = node.allocate("b", &["gpu-1"]);
    claims.prepare(&gone).await.expect("prepares");
    claims.prepare(&stays).await.expect("prepares");
    node.delete(&gone);
    let files = [Node::checkpoint(&stays), Node::cdi(&stays)];
    for file in &files {
        std::fs::remove_file(node.path(file)).expect("removes");
    }
    let swept = claims.sweep().await;
    assert_eq!((swept.released, swept.repaired.len()), (vec![], 1), "a first look frees nothing");
    let swept = sweep_later(&claims).await;
    assert_eq!((swept.released, swept.repaired), (vec![gone], vec![]));
    assert_eq!(claims.holdings().len(), 1, "{stays}");
    assert_eq!(node.files(), files);
    assert_eq!(sweep_later(&claims).await, super::Swept::default(), "nothing is left to do");

    node.set_away(true);
    for _ in 0..2 {
        let swept = sweep_later(&claims).await;
        assert_eq!(swept, super::Swept::default(), "nothing is known, nothing is freed");
    }
}

#[tokio::test]
async fn reappeared_claim_restarts_its_grace_period() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0"]);
    claims.prepare(&claim).await.expect("prepares");
    let object = node.delete(&claim);
    claims.sweep().await;
    node.restore(&claim, object);
    assert_eq!(sweep_later(&claims).await.released, []);
    node.delete(&claim);
    assert_eq!(sweep_later(&claims).await.released, [], "a first look again");
}

#[tokio::test]
async fn without_the_api_server_a_prepare_is_refused_and_works_again_later() {
    let node = Node::new();
    let claims = node.start().await;
    let held = node.allocate("a", &["gpu-0"]);
    let new = node.allocate("b", &["gpu-1"]);
    claims.prepare(&held).await.expect("prepares");
    node.set_away(true);
    assert_eq!(claims.prepare(&new).await.expect_err("is away").reason(), "ApiUnavailable");
    claims.prepare(&held).await.expect("is prepared already");
    claims.unprepare(&held).await.expect("needs no API server");
    node.set_away(false);
    claims.prepare(&new).await.expect("prepares");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_prepared_in_parallel_and_each_claim_once() {
    let node = Node::new();
    let claims = node.start().await;
    let slow = node.allocate("slow", &["gpu-0"]);
    let quick = node.allocate("quick", &["gpu-1"]);
    let gate = node.block_reads_of(&slow);
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let (claims, slow) = (claims.clone(), slow.clone());
            tokio::spawn(async move { claims.prepare(&slow).await })
        })
        .collect();
    claims.prepare(&quick).await.expect("does not wait");
    gate.add_permits(1);
    for call in calls {
        call.await.expect("ends").expect("prepares");
    }
    assert_eq!(node.reads(), 2, "one for each claim");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_kubelet_gives_up_runs_to_its_end() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0"]);
    let gate = node.block_reads_of(&claim);
    let read = async {
        while node.reads() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = claims.prepare(&claim) => panic!("it waits for the read"),
        begun = tokio::time::timeout(Duration::from_mins(1), read) => begun.expect("it is read"),
    }
    gate.add_permits(1);
    // The abandoned call holds the lock. Unprepare runs after it and releases its devices.
    claims.unprepare(&claim).await.expect("unprepares");
    assert_eq!(node.files(), [""; 0]);
    assert_eq!(claims.holdings(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_deleted_while_it_is_prepared_leaves_nothing() {
    for has_unprepare in [true, false] {
        let node = Node::new();
        let claims = node.start().await;
        let claim = node.allocate("a", &["gpu-0"]);
        let gate = node.block_reads_of(&claim);
        let call = tokio::spawn({
            let (claims, claim) = (claims.clone(), claim.clone());
            async move { claims.prepare(&claim).await }
        });
        while node.reads() == 0 {
            tokio::task::yield_now().await;
        }
        // The API server has answered, the answer is on its way, and now the claim goes.
        node.delete(&claim);
        gate.add_permits(2);
        if has_unprepare {
            let (prepared, unprepared) = tokio::join!(call, claims.unprepare(&claim));
            prepared.expect("ends").expect("knows of no deletion");
            unprepared.expect("unprepares");
        } else {
            call.await.expect("ends").expect("knows of no deletion");
            gate.add_permits(2);
            claims.sweep().await;
            assert_eq!(sweep_later(&claims).await.released, [claim]);
        }
        assert_eq!(node.files(), [""; 0]);
        assert_eq!(claims.holdings(), []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_claims_for_one_gpu_at_once_one_gets_it() {
    for _ in 0..10 {
        let node = Node::new();
        let claims = node.start().await;
        let (a, b) = (node.allocate("a", &["gpu-0"]), node.allocate("b", &["gpu-0"]));
        let (first, second) = tokio::join!(claims.prepare(&a), claims.prepare(&b));
        assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
    }
}

#[tokio::test]
async fn an_administrator_sees_a_gpu_that_another_claim_holds() {
    let node = Node::new();
    let claims = node.start().await;
    let user = node.allocate("user", &["gpu-0"]);
    let admin = node.allocate_with("admin", &["gpu-0"], |claim| {
        claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = true.into();
    });
    claims.prepare(&user).await.expect("prepares");
    claims.prepare(&admin).await.expect("overlaps");
    claims.unprepare(&user).await.expect("unprepares");
    claims.prepare(&user).await.expect("the administrator is not in the way");
    let holdings = claims.holdings();
    let admin = holdings.iter().find(|holding| holding.claim == admin).expect("is held");
    assert_eq!(
        (admin.devices.len(), admin.admin_devices.as_slice()),
        (0, ["gpu-0".to_owned()].as_slice())
    );
}

#[tokio::test]
async fn a_failed_write_keeps_the_gpu_until_it_is_unprepared_or_tried_again() {
    let node = Node::new();
    let claims = node.start().await;
    let claim = node.allocate("a", &["gpu-0"]);
    let other = node.allocate("b", &["gpu-0"]);
    // A folder stands where the spec should be: it cannot be replaced by a file.
    let obstacle = node.path(&Node::cdi(&claim));
    std::fs::create_dir(&obstacle).expect("makes");
    let refusal = claims.prepare(&claim).await.expect_err("cannot write");
    assert_eq!(refusal.reason(), "Storage");
    assert!(refusal.to_string().contains(&claim.uid), "{refusal}");
    assert_eq!(claims.prepare(&other).await.expect_err("is reserved").reason(), "DeviceInUse");
    assert_eq!(node.files(), [Node::checkpoint(&claim), Node::cdi(&claim)], "nothing half-written");
    std::fs::remove_dir(&obstacle).expect("removes");
    claims.prepare(&claim).await.expect("is tried again");
    assert_eq!(node.cleared(), ["a"], "the refusal is taken back");
    claims.prepare(&claim).await.expect("is prepared already");
    assert_eq!(node.cleared(), ["a"], "once");
    assert_eq!(node.files(), [Node::checkpoint(&claim), Node::cdi(&claim)]);
}

#[tokio::test]
async fn a_thousand_claims_come_and_go_and_leave_nothing() {
    let node = Node::new();
    let claims = node.start().await;
    for round in 0..1000 {
        let claim = node.allocate(&format!("claim-{round}"), &["gpu-0"]);
        claims.prepare(&claim).await.expect("prepares");
        claims.unprepare(&claim).await.expect("unprepares");
        node.delete(&claim);
    }
    assert_eq!(node.files(), [""; 0]);
    assert_eq!(claims.holdings(), []);
}
