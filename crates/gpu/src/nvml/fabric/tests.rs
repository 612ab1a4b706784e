use super::membership;
use crate::FabricState;

const CLUSTER: [u8; 16] = [
    0x3b, 0x1c, 0x4e, 0x2a, 0x90, 0x11, 0x4d, 0x6f, 0x8a, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06,
];
const COMPLETED: u8 = 3;

#[test]
fn a_registered_gpu_is_of_its_cluster_and_clique() {
    let fabric = membership(COMPLETED, 0, CLUSTER, 7, Some(0));
    let clique = fabric.clique.unwrap();
    assert_eq!(clique.to_string(), "3b1c4e2a-9011-4d6f-8a00-010203040506.7");
}

#[test]
fn a_cluster_of_zeroes_makes_no_clique() {
    let fabric = membership(COMPLETED, 0, [0; 16], 1, None);
    assert_eq!(fabric.clique, None);
    assert_eq!(fabric.cluster_uuid, "00000000-0000-0000-0000-000000000000");
}

#[test]
fn a_failed_or_unfinished_registration_makes_no_clique() {
    assert_eq!(membership(COMPLETED, 999, CLUSTER, 7, None).clique, None);
    let pending = membership(2, 0, CLUSTER, 7, None);
    assert_eq!((pending.state, pending.clique), (FabricState::InProgress, None));
    assert_eq!(membership(1, 0, CLUSTER, 7, None).state, FabricState::NotStarted);
    assert_eq!(membership(0, 0, CLUSTER, 7, None).state, FabricState::NotSupported);
    assert_eq!(membership(200, 0, CLUSTER, 7, None).state, FabricState::NotSupported);
}
