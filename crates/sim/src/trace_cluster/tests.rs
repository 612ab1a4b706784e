use octavo_engine::fit;

use super::*;
use crate::trace::{nodes_from, pods_from};

fn trace(nodes: &str, pods: &str) -> Trace {
    let nodes = nodes_from(nodes.as_bytes(), "nodes").unwrap();
    let pods = pods_from(pods.as_bytes(), "pods", &nodes).unwrap();
    Trace { nodes, pods }
}

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nb,8000,1024,2,T4\na,8000,1024,1,A10\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
    any,1000,16,1,500,\nt4,1000,16,1,500,T4\nlost,1000,16,1,500,G3\ncpu,1000,16,0,0,T4\n\
    again,1000,16,1,500,\n";

#[test]
fn ids_follow_the_order_of_ties_and_not_that_of_names() {
    let trace = trace(NODES, PODS);
    let nodes = TraceCluster::new(&trace, &[0, 1]).unwrap();
    assert_eq!(nodes.cluster.name(NodeId(0)), "b");
    assert_eq!((nodes.row(NodeId(0)), nodes.row(NodeId(1))), (Some(0), Some(1)));
    assert_eq!(nodes.row(NodeId(2)), None);
    let nodes = TraceCluster::new(&trace, &[1, 0]).unwrap();
    assert_eq!(nodes.cluster.name(NodeId(0)), "a");
    assert_eq!(nodes.row(NodeId(0)), Some(1));
    assert_eq!(nodes.cluster.totals().gpu_milli, 3000);
}

#[test]
fn a_pod_fits_where_its_model_is() {
    let trace = trace(NODES, PODS);
    let nodes = TraceCluster::new(&trace, &[0, 1]).unwrap().cluster;
    let shapes = shapes(&trace);
    let fits = |node: u32, pod: usize| {
        let state = nodes.states().state(nodes.state(NodeId(node))).unwrap();
        fit::fits(&nodes, state, &shapes[pod])
    };
    assert_eq!([fits(0, 0), fits(1, 0)], [true, true], "any model");
    assert_eq!([fits(0, 1), fits(1, 1)], [true, false], "T4 only");
    assert_eq!([fits(0, 2), fits(1, 2)], [false, false], "no node has a G3");
    assert_eq!([fits(0, 3), fits(1, 3)], [true, true], "without GPUs the model is of no meaning");
}

#[test]
fn pods_that_ask_for_the_same_share_a_shape() {
    let shapes = shapes(&trace(NODES, PODS));
    assert!(Arc::ptr_eq(&shapes[0], &shapes[4]));
    assert_ne!(shapes[0], shapes[1]);
}

#[test]
fn a_node_with_more_gpus_than_the_engine_knows_is_refused() {
    let nodes = "sn,cpu_milli,memory_mib,gpu,model\nhuge,8000,1024,65,T4\n";
    let error =
        TraceCluster::new(&trace(nodes, PODS.split("t4").next().unwrap()), &[0]).unwrap_err();
    assert_eq!(error.to_string(), "GPUs of a node: 65, but at most 64 are possible");
}
