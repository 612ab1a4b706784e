//! Cost limits of selectors, on one node and on all, at once and over cycles.

use octavo_dra::Request;
use octavo_kube_io::objects::Delta;

use super::fixtures::{PLAIN, cluster, pod, selecting, slices, whole};
use crate::devices::{AskError, CostLimitScope, Devices};

/// A selector of some ten thousand cost units for each device, for a depth of four.
fn loops(depth: u32) -> String {
    (0..depth).fold("true".to_owned(), |inner, level| {
        format!("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(n{level}, {inner})")
    })
}

/// Requests with different selectors, each of that cost.
fn different(count: usize, selector: &str) -> Vec<Request> {
    let one = |number: usize| Request {
        name: format!("r{number}"),
        ..selecting(&format!("{selector} && {number} == {number}")).remove(0)
    };
    (0..count).map(one).collect()
}

fn come(devices: &mut Devices, node: &str) {
    for slice in slices(PLAIN, node) {
        devices.apply_slices(&Delta::Upsert(slice));
    }
}

fn go(devices: &mut Devices, node: &str) {
    for slice in slices(PLAIN, node) {
        devices.apply_slices(&Delta::Delete(slice));
    }
}

fn nodes(count: usize) -> Devices {
    let names: Vec<_> = (0..count).map(|number| format!("n{number:03}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| (name.as_str(), PLAIN)).collect();
    cluster(&nodes)
}

#[test]
fn selectors_over_the_cluster_cost_limit_are_rejected() {
    let mut devices = nodes(40);
    let (costly, claim) = pod("dear", selecting(&loops(4)));
    devices.see(&claim);
    let refused = devices.ask(&costly).unwrap_err();
    let words = "request gpu: its CEL selectors cost more than 10000000 units on the devices of all nodes \
                 together, which would delay all scheduling";
    assert!(refused.to_string().contains(words), "{refused}");
    assert_eq!(devices.ask(&costly).unwrap_err(), refused, "nor is it run again");
    // Other asks are served.
    let (fair, claim) = pod("fair", selecting(&loops(2)));
    devices.see(&claim);
    assert!(devices.ask(&fair).unwrap().is_exact);
    // Half of the nodes go, including those that exceeded the limit.
    for number in 10..40 {
        let name = format!("n{number:03}");
        for slice in slices(PLAIN, &name) {
            devices.apply_slices(&Delta::Delete(slice));
        }
    }
    assert!(devices.ask(&costly).unwrap().is_exact, "what is left is few enough");
}

#[test]
fn cost_of_changed_hardware_is_not_accumulated() {
    let mut devices = nodes(2);
    let (fair, claim) = pod("fair", selecting(&loops(4)));
    devices.see(&claim);
    for round in 0..40 {
        for slice in slices(PLAIN, "n000") {
            devices.apply_slices(&Delta::Delete(slice.clone()));
            devices.apply_slices(&Delta::Upsert(slice));
        }
        assert!(devices.ask(&fair).unwrap().is_exact, "round {round}");
    }
}

#[test]
fn costly_selectors_are_spread_over_cycles() {
    let mut devices = nodes(10);
    let (costly, claim) = pod("dear", selecting(&loops(4)));
    devices.see(&claim);
    let (plain, claim) = pod("plain", whole(1));
    devices.see(&claim);
    let (other, claim) = pod("other", selecting("device.driver == 'gpu.nvidia.com'"));
    devices.see(&claim);
    let mut rounds = 0;
    let asked = loop {
        devices.begin_cycle();
        rounds += 1;
        let asked = devices.ask(&costly);
        assert!(devices.ask(&plain).unwrap().is_exact);
        assert!(devices.ask(&other).is_ok(), "further asks cost little");
        match asked {
            Err(error @ AskError::NotEvaluated { .. }) => assert!(error.is_transient()),
            asked => break asked,
        }
    };
    assert!((3..=10).contains(&rounds), "{rounds} rounds");
    let mut at_once = nodes(10);
    let (costly, claim) = pod("dear", selecting(&loops(4)));
    at_once.see(&claim);
    let found = asked.unwrap();
    let all = at_once.ask(&costly).unwrap();
    assert_eq!(
        (&found.demand, found.models),
        (&all.demand, all.models),
        "as if it were run at once"
    );
    // Exceeding the limit on one node is reported as such.
    let (costliest, claim) = pod("dearest", selecting(&loops(5)));
    devices.see(&claim);
    devices.begin_cycle();
    let refused = devices.ask(&costliest).unwrap_err();
    assert!(
        matches!(refused, AskError::TooCostly { scope: CostLimitScope::OnNode, .. }),
        "{refused}"
    );
}

#[test]
fn cluster_cost_limit_is_rechecked_when_nodes_go() {
    let mut devices = nodes(40);
    let (costly, claim) = pod("dear", selecting(&loops(4)));
    devices.see(&claim);
    let refused = devices.ask(&costly).unwrap_err();
    assert!(
        matches!(refused, AskError::TooCostly { scope: CostLimitScope::InAll, .. }),
        "{refused}"
    );
    // Nodes that were evaluated first go, but not the one that exceeded the limit.
    for number in 0..20 {
        go(&mut devices, &format!("n{number:03}"));
    }
    assert!(devices.ask(&costly).unwrap().is_exact, "what is left is few enough");
}

#[test]
fn replaced_nodes_are_not_counted_twice() {
    let mut devices = nodes(20);
    let (fair, claim) = pod("fair", selecting(&loops(4)));
    devices.see(&claim);
    assert!(devices.ask(&fair).unwrap().is_exact);
    for number in 0..20 {
        come(&mut devices, &format!("new{number:03}"));
    }
    for number in 0..20 {
        go(&mut devices, &format!("n{number:03}"));
    }
    assert!(
        devices.ask(&fair).unwrap().is_exact,
        "there were never more than 20 that it holds for"
    );
}

#[test]
fn too_many_distinct_requests_are_rejected_by_name() {
    let mut devices = nodes(1);
    let (most, claim) = pod("most", different(64, "true"));
    devices.see(&claim);
    assert!(devices.ask(&most).is_ok());
    let (many, claim) = pod("many", different(65, "true"));
    devices.see(&claim);
    let refused = devices.ask(&many).unwrap_err();
    assert!(!refused.is_transient());
    let words = "the pod's claims have 65 different requests and alternatives, but at most 64 are supported";
    assert!(refused.to_string().contains(words), "{refused}");
    // Equal requests count once.
    let same = (0..65).map(|number| Request { name: format!("r{number}"), ..whole(1).remove(0) });
    let (same, claim) = pod("same", same.collect());
    devices.see(&claim);
    assert!(devices.ask(&same).is_ok());
}

#[test]
fn costly_request_is_not_evicted_by_many_others() {
    let mut devices = nodes(3);
    let (costly, claim) = pod("dear", different(12, &loops(4)));
    devices.see(&claim);
    let others: Vec<_> = different(300, "device.driver != ''")
        .into_iter()
        .enumerate()
        .map(|(number, request)| pod(&format!("p{number}"), vec![request]))
        .collect();
    for (_, claim) in &others {
        devices.see(claim);
    }
    for _ in 0..30 {
        devices.begin_cycle();
        let asked = devices.ask(&costly);
        for (other, _) in &others {
            assert!(devices.ask(other).is_ok());
        }
        match asked {
            Err(AskError::NotEvaluated { .. }) => {}
            asked => {
                assert!(asked.is_ok());
                return;
            }
        }
    }
    panic!("each cycle has its own budget");
}

#[test]
fn cycle_budget_bounds_many_costly_selectors() {
    let mut devices = nodes(10);
    let mut pods = Vec::new();
    for (number, request) in different(256, &loops(4)).into_iter().enumerate() {
        let (pod, claim) = pod(&format!("p{number}"), vec![request]);
        devices.see(&claim);
        pods.push(pod);
    }
    let mut ask_all = || {
        devices.begin_cycle();
        let asked = pods.iter().filter(|pod| devices.ask(pod).is_ok()).count();
        (asked, devices.request_cache().spent())
    };
    let most = 3_000_000;
    let (first, spent) = ask_all();
    assert!(first < pods.len() && spent <= most, "{first} asked, {spent} spent");
    // Incomplete requests are not evaluated again and again.
    let (_, spent) = ask_all();
    assert!(spent <= most, "{spent} spent");
}
