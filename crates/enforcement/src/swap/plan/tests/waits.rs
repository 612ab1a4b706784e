//! How long a request waits for others, and what pages that lie bring.

use super::*;

#[test]
fn a_victim_that_never_moves_is_waited_for_three_times() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60), ("b", 40, 80, 20)]);
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    for _ in 0..3 {
        assert!(gpu.answered.is_empty());
        assert_eq!(gpu.step(&mut memory, 30), [out("a", 60)]);
        memory.left("a", gpu.at, false);
    }
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!((gpu.granted("b"), gpu.answered.as_slice()), (20, &["b".to_owned()][..]));
    // Later requests try it again, and wait for that alone.
    assert_eq!(gpu.step(&mut memory, 30), [out("a", 60)]);
    memory.left("a", gpu.at, false);
    gpu.step(&mut memory, 1);
    assert_eq!(gpu.answered, ["b"]);
    assert_eq!(gpu.step(&mut memory, 30), [out("a", 60)]);
    gpu.leaves(&mut memory, "a");
    gpu.step(&mut memory, 1);
    assert_eq!((gpu.granted("b"), gpu.answered.as_slice()), (40, &["b".to_owned()][..]));
}

#[test]
fn processes_that_have_ended_take_their_failures_along() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60), ("b", 40, 80, 20)]);
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    for _ in 0..3 {
        assert_eq!(gpu.step(&mut memory, 30), [out("a", 60)]);
        memory.left("a", gpu.at, false);
    }
    *gpu.share("a") = ShareMemory { processes: 0, used: 0, driver: Some(0), ..*gpu.share("a") };
    gpu.share("b").need = None;
    gpu.step(&mut memory, 1);
    let used = 60 * GIB;
    *gpu.share("a") = ShareMemory { processes: 1, used, driver: Some(used), ..*gpu.share("a") };
    gpu.needs("b", 20);
    gpu.step(&mut memory, 1);
    assert!(gpu.answered.is_empty(), "the new ones may move later");
}

#[test]
fn a_request_waits_for_guards_that_have_yet_to_connect() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60), ("b", 40, 80, 20)]);
    *gpu.share("a") =
        ShareMemory { processes: 0, movable: Some(0), is_connecting: true, ..*gpu.share("a") };
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    for _ in 0..10 {
        assert_eq!(gpu.step(&mut memory, 1), []);
        assert!(gpu.answered.is_empty());
    }
    // They do connect.
    let connected = ShareMemory {
        processes: 1,
        movable: Some(58 * GIB),
        is_connecting: false,
        ..*gpu.share("a")
    };
    *gpu.share("a") = connected;
    assert_eq!(gpu.step(&mut memory, 1), [out("a", 58)]);
    // They do not.
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60), ("b", 40, 80, 20)]);
    gpu.share("a").movable = Some(0);
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    gpu.step(&mut memory, 1);
    assert_eq!(gpu.answered, ["b"]);
}

#[test]
fn a_request_above_a_shares_own_waits_for_guards_as_for_others() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60), ("b", 10, 80, 15)]);
    *gpu.share("a") =
        ShareMemory { processes: 0, movable: Some(0), is_connecting: true, ..*gpu.share("a") };
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    for _ in 0..3 {
        gpu.step(&mut memory, 1);
        assert!(gpu.answered.is_empty());
    }
    gpu.step(&mut memory, 1);
    assert_eq!(gpu.answered, ["b"]);
}

#[test]
fn a_share_whose_guards_have_yet_to_connect_waits_with_what_it_wants() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 60, 40)]);
    *gpu.share("a") =
        ShareMemory { movable: Some(5 * GIB), is_connecting: true, ..*gpu.share("a") };
    gpu.step(&mut memory, 0);
    gpu.needs("a", 10);
    gpu.step(&mut memory, 1);
    assert!(gpu.answered.is_empty());
    gpu.share("a").is_connecting = false;
    gpu.share("a").movable = Some(40 * GIB);
    gpu.step(&mut memory, 1);
    assert_eq!((gpu.granted("a"), gpu.answered.as_slice()), (50, &["a".to_owned()][..]));
    // What it can never have is refused at once.
    gpu.share("a").is_connecting = true;
    gpu.needs("a", 30);
    gpu.step(&mut memory, 1);
    assert_eq!(gpu.answered, ["a"]);
}

#[test]
fn a_page_that_lies_frees_no_memory() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 10), ("b", 40, 80, 20)]);
    gpu.step(&mut memory, 0);
    gpu.needs("a", 30);
    gpu.step(&mut memory, 1);
    gpu.share("a").need = None;
    assert_eq!((gpu.granted("a"), gpu.granted("b")), (40, 40));
    // It uses 10 GiB of that, and shows 20 on the host.
    let mut tenants = Tenants(&gpu.shares, &mut gpu.granted, &mut gpu.answered);
    memory.adopt_shown("a", (20 * GIB, 10 * GIB), gpu.at, &mut tenants);
    assert_eq!(gpu.granted("a"), 20, "it may not use what others get");
    gpu.needs("b", 45);
    for _ in 0..4 {
        assert_eq!(gpu.step(&mut memory, 1), [], "it does not return at once");
        assert_eq!((gpu.granted("a"), gpu.granted("b")), (20, 40));
    }
    gpu.needs("b", 40);
    gpu.step(&mut memory, 1);
    assert_eq!((gpu.granted("a"), gpu.granted("b")), (20, 60));
}

#[test]
fn memory_that_guards_show_on_the_host_comes_back() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 40)]);
    gpu.step(&mut memory, 0);
    let mut tenants = Tenants(&gpu.shares, &mut gpu.granted, &mut gpu.answered);
    memory.adopt_shown("a", (30 * GIB, 10 * GIB), gpu.at, &mut tenants);
    gpu.share("a").driver = Some(10 * GIB);
    assert_eq!((gpu.granted("a"), memory.parts("a")), (40, Some((30 * GIB, 10 * GIB))));
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!(gpu.step(&mut memory, 30), [Move::In("a".to_owned())]);
}
