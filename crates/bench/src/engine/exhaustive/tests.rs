use octavo_engine::GpuDemand;

use super::*;
use crate::engine::clusters;

#[test]
fn a_ring_of_two_racks_is_entered_and_left() {
    // Racks of two nodes with eight GPUs each. A level counts twice.
    let world = clusters::empty(4, 2).unwrap();
    let hops = |count| {
        let shape = clusters::pod(GpuDemand::Whole { count: 4 });
        fewest_hops(&world, &Gang::new("g", (*shape).clone(), count)).unwrap()
    };
    assert_eq!([2, 4, 6, 8, 9].map(hops), [Some(0), Some(4), Some(10), Some(12), None]);
}
