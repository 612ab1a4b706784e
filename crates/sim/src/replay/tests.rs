use std::fmt::Write as _;
use std::sync::Arc;

use octavo_engine::{Choice, Cluster, GpuPart, Packing, Placement, Shape};

use super::*;
use crate::arrivals::{self, Arrivals};
use crate::trace::{nodes_from, pods_from};

mod departures;
mod named;
mod policies;

use policies::{FirstFit, Greedy, Lazy};

const POD: &str =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time";

/// A trace of these lines: `node,gpus,model` and `name,cpu,gpus,milli,models,from,to`.
pub(super) fn trace(nodes: &[&str], pods: &[&str]) -> Trace {
    let mut list = "sn,cpu_milli,memory_mib,gpu,model\n".to_owned();
    for node in nodes {
        let (name, gpus) = node.split_once(',').unwrap();
        writeln!(list, "{name},10000,1024,{gpus}").unwrap();
    }
    let nodes = nodes_from(list.as_bytes(), "nodes").unwrap();
    let mut list = format!("{POD}\n");
    for pod in pods {
        let mut fields = pod.splitn(3, ',');
        let (name, cpu) = (fields.next().unwrap(), fields.next().unwrap());
        writeln!(list, "{name},{cpu},1,{}", fields.next().unwrap()).unwrap();
    }
    let pods = pods_from(list.as_bytes(), "pods", &nodes).unwrap();
    Trace { nodes, pods }
}

fn listed(trace: &Trace, policy: &mut dyn Packing) -> ReplayResult {
    let arrivals = Arrivals::of(trace, arrivals::Order::Listed).unwrap();
    replay_with(trace, &arrivals, false, policy).unwrap()
}

/// One node of four GPUs. The second, fourth and last of six pods do not fit.
fn six_pods() -> Trace {
    let pods = [
        "one,1000,1,1000,,,",
        "a10,1000,1,500,A10,,",
        "two,1000,2,1000,,,",
        "cpu,20000,0,0,,,",
        "part,1000,1,250,,,",
        "late,1000,2,1000,,,",
    ];
    trace(&["node,4,T4"], &pods)
}

fn is_near(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-12
}

#[test]
fn figures_are_those_counted_by_hand() {
    let Metrics { accepted, .. } = listed(&six_pods(), &mut FirstFit).metrics;
    let metrics = listed(&six_pods(), &mut FirstFit).metrics;
    assert_eq!((metrics.nodes, metrics.gpus, metrics.pods, metrics.skipped), (1, 4, 6, 3));
    assert_eq!((metrics.wanted_ratio, metrics.allocated_ratio), (5.75 / 4.0, 3.25 / 4.0));
    assert_eq!((metrics.idle_gpus, metrics.unused_gpus), (0.75, 0));
    // The pod that is tied to a model that is not there does not count, nor that without GPUs.
    assert_eq!(metrics.first_skip, Some(5.75 / 4.0));
    assert_eq!(metrics.first_skip_any, Some(1.5 / 4.0));
    // The wanted GPUs first reach 90 % when `part` arrives.
    assert_eq!(metrics.allocated_at_0_9, Some(3.25 / 4.0));
    assert_eq!(metrics.accepted_multi_gpu, Some(0.5));
    assert_eq!(metrics.refused, 0);
    assert_eq!(metrics.over_time, None);
    assert_eq!(metrics.allocated_ratio_published, None, "the list was brought to no demand");
    let counts = |class: crate::metrics::ClassCount| (class.arrived, class.placed, class.ratio);
    assert_eq!(counts(accepted.cpu_only), (1, 0, Some(0.0)));
    assert_eq!(counts(accepted.share), (2, 1, Some(0.5)));
    assert_eq!(counts(accepted.one_gpu), (1, 1, Some(1.0)));
    assert_eq!(counts(accepted.multi_gpu), (2, 1, Some(0.5)));
    assert_eq!(counts(accepted.model_constrained), (1, 0, Some(0.0)));
    assert_eq!(accepted.cpu_only.first_skip, Some(3.5 / 4.0));
    assert_eq!(accepted.one_gpu.first_skip, None);
}

#[test]
fn fragments_are_what_the_typical_pods_cannot_use() {
    // All six are typical, with a weight of one sixth each. At the end, 750 milli of one GPU and 7
    // cores are free. Only `part` can use them. `one` and `two` (the same request as `late`) lack
    // the GPUs. `cpu` lacks the cores and needs no GPU. `a10` accepts another model only.
    let fragments = listed(&six_pods(), &mut FirstFit).metrics.fragmentation;
    assert!(is_near(fragments.ratio, 5.0 / 6.0), "{fragments:?}");
    assert!(is_near(fragments.gpus, 0.75 * 5.0 / 6.0));
    let stranded = fragments.stranded;
    assert!(is_near(stranded.usable, 0.125));
    assert!(is_near(stranded.lacks_gpu, 0.375));
    assert!(is_near(stranded.no_access, 0.125));
    assert!(is_near(stranded.not_asked_for_lacks_cpu, 0.125));
    assert_eq!((stranded.lacks_both, stranded.lacks_cpu, stranded.not_asked_for), (0.0, 0.0, 0.0));
}

#[test]
fn a_curve_has_a_point_at_each_percent_that_was_reached() {
    let curve = listed(&six_pods(), &mut FirstFit).curve;
    let points: Vec<_> =
        curve.iter().map(|point| (point.wanted, point.allocated, point.skipped)).collect();
    // `cpu` needs no GPU, so the demand does not change.
    let expected = [
        (0.25, 0.25, 0),
        (0.375, 0.25, 1),
        (0.875, 0.75, 1),
        (0.9375, 0.8125, 2),
        (1.4375, 0.8125, 3),
    ];
    assert_eq!(points, expected);
    assert!(curve.iter().all(|point| point.time.is_none()));
}

#[test]
fn policy_that_refuses_fitting_pods_is_caught() {
    let result = listed(&six_pods(), &mut Lazy);
    // All except the pod without its model and the pod with too much CPU.
    assert_eq!((result.metrics.skipped, result.metrics.refused), (6, 4));
    assert_eq!(result.metrics.first_skip, Some(0.25));
    // The empty node is of use to all but those two.
    assert!(is_near(result.metrics.fragmentation.gpus, 4.0 * 2.0 / 6.0));
    assert!(result.verdict.is_ok());
}

#[test]
fn policy_that_allocates_a_gpu_twice_is_caught() {
    let trace = trace(&["node,4,T4"], &["one,1000,1,1000,,,", "two,1000,1,500,,,"]);
    let result = listed(&trace, &mut Greedy);
    let violation = result.verdict.unwrap_err();
    assert_eq!(violation, "event 1, pod `two`: takes GPU 0 of `node` to 1500 of 1000 milli");
}

#[test]
fn a_log_has_a_line_for_each_pod_and_one_hash() {
    let log = listed(&six_pods(), &mut FirstFit).log;
    let lines: Vec<String> = log.lines().collect();
    let expected =
        ["one,node,0,1000", "a10,,,", "two,node,1 2,1000", "cpu,,,", "part,node,3,250", "late,,,"];
    assert_eq!(lines, expected);
    // sha256sum of these lines.
    assert_eq!(log.hash(), "5d64a4301554baab85e5ab1d7dec083f74508e5d0daea2abecd2437b785c8dab");
    assert_ne!(log.hash(), listed(&six_pods(), &mut Lazy).log.hash());
}

#[test]
fn names_that_csv_would_cut_are_quoted() {
    let trace = trace(&["node,4,T4"], &["\"a,\"\"b\",1000,1,1000,,,"]);
    let lines: Vec<String> = listed(&trace, &mut FirstFit).log.lines().collect();
    assert_eq!(lines, ["\"a,\"\"b\",node,0,1000"]);
}

#[test]
fn a_cluster_without_gpus_has_no_ratios() {
    let trace = trace(&["node,0,"], &["cpu,1000,0,0,,,", "gpu,1000,1,1000,,,"]);
    let metrics = listed(&trace, &mut FirstFit).metrics;
    assert_eq!((metrics.allocated_ratio, metrics.allocated_at_0_9), (0.0, None));
    assert_eq!(metrics.accepted.cpu_only.placed, 1);
    assert_eq!(metrics.first_skip, Some(0.0));
}
