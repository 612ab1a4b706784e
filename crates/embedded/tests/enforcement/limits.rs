//! Limits of a share, and reports to programs.

use crate::container::{Container, GENERATION, GIB, Interposition, MIB, terms};

const OUT_OF_MEMORY: u32 = 2;

#[test]
fn memory_is_granted_up_to_the_limit_and_no_further() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.allocate(3 * GIB), 0);
    assert_eq!(program.allocate(6 * GIB), OUT_OF_MEMORY);
    // 8 GiB less 3 GiB less the context.
    assert_eq!(program.allocate(5 * GIB - 256 * MIB), 0);
    assert_eq!(program.allocate(512), OUT_OF_MEMORY);
    assert_eq!(container.used("one"), 8 * GIB);
    assert_eq!(program.say("free 0"), "0");
    assert_eq!(container.used("one"), 5 * GIB);
    assert_eq!(program.allocate(3 * GIB), 0);
}

#[test]
fn what_the_driver_refuses_is_not_counted() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.allocate(4097), OUT_OF_MEMORY);
    assert_eq!(program.say("alloc 0"), "1 -1");
    assert_eq!(container.used("one"), 256 * MIB);
    assert_eq!(container.slots("one")[0].refused, 0);
    assert_eq!(program.allocate(u64::MAX), OUT_OF_MEMORY);
    assert_eq!(container.slots("one")[0].refused, 1);
}

#[test]
fn a_program_sees_a_gpu_of_the_size_of_its_share() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("total 0"), format!("0 {}", 8 * GIB));
    let left = 8 * GIB - 256 * MIB;
    assert_eq!(program.say("info"), format!("0 {left} {}", 8 * GIB));
    assert_eq!(program.allocate(GIB), 0);
    assert_eq!(program.say("info"), format!("0 {} {}", left - GIB, 8 * GIB));
}

#[test]
fn a_share_that_has_more_than_it_may_sees_nothing_free_and_no_error() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    container.set_untracked("one", 20 * GIB);
    assert_eq!(program.say("info"), format!("0 0 {}", 8 * GIB));
    assert_eq!(program.allocate(512), OUT_OF_MEMORY);
    container.set_untracked("one", 0);
    assert_eq!(program.allocate(512), 0);
}

#[test]
fn a_share_larger_than_the_gpu_is_the_gpu() {
    let container = Container::of(100 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("total 0"), format!("0 {}", 80 * GIB));
}

#[test]
fn managed_memory_and_rows_count_in_full() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say(&format!("managed {}", 9 * GIB)), "2 -1");
    assert_eq!(program.say(&format!("managed {GIB}")), "0 0");
    assert_eq!(container.used("one"), 256 * MIB + GIB);
    // Rows of 1,537 bytes: the driver's pitch is 2,048, as is the minimum.
    assert_eq!(program.say("pitch 1537 1000"), "0 1");
    assert_eq!(container.used("one"), 256 * MIB + GIB + 2 * MIB);
    // The minimum pitch of 1,100 is 1,536, and the driver's is 2,048: 8 MiB instead of 6.
    assert_eq!(program.say("pitch 1100 3100"), "0 2");
    assert_eq!(container.used("one"), 256 * MIB + GIB + 10 * MIB);
    for place in 0..3 {
        assert_eq!(program.say(&format!("free {place}")), "0");
    }
    assert_eq!(container.used("one"), 256 * MIB);
    assert_eq!(program.say(&format!("pitch {} {}", u64::MAX / 2, u64::MAX / 2)), "2 -1");
}

#[test]
fn contexts_count_while_they_are_there() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Interposition::Proxy, "dlsym");
    assert_eq!(program.say("init"), "0");
    assert_eq!(container.used("one"), 0);
    for _ in 0..3 {
        assert_eq!(program.say("retain 0"), "0");
    }
    assert_eq!(container.used("one"), 256 * MIB);
    assert_eq!(program.say("create 0"), "0");
    assert_eq!(program.say("create 0"), "0");
    assert_eq!(container.used("one"), 768 * MIB);
    assert_eq!(container.slots("one")[0].context_bytes, 768 * MIB);
    assert_eq!(program.say("destroy 0"), "0");
    assert_eq!(program.say("destroy 1"), "0");
    assert_eq!(program.say("release 0"), "0");
    assert_eq!(program.say("release 0"), "0");
    assert_eq!(container.used("one"), 256 * MIB);
    assert_eq!(program.say("release 0"), "0");
    assert_eq!(container.used("one"), 0);
    assert_eq!(program.say("release 0"), "201");
    assert_eq!(container.slots("one")[0].context_bytes, 0);
}

#[test]
fn what_lies_in_a_context_goes_with_it() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("create 0"), "0");
    assert_eq!(program.allocate(GIB), 0);
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(2 * GIB), 0);
    assert_eq!(container.used("one"), 512 * MIB + 3 * GIB);
    assert_eq!(program.say("destroy 0"), "0");
    assert_eq!(container.used("one"), 256 * MIB + 2 * GIB);
    assert_eq!(program.say("reset 0"), "0");
    assert_eq!(container.used("one"), 0);
}

#[test]
fn a_context_that_does_not_fit_is_not_made() {
    let container = Container::of(200 * MIB);
    let mut program = container.start(Interposition::Proxy, "dlsym");
    assert_eq!(program.say("init"), "0");
    assert_eq!(program.say("retain 0"), "2");
    assert_eq!(program.say("create 0"), "2");
    assert_eq!(container.used("one"), 0);
}

#[test]
fn two_shares_of_a_gpu_add_up_and_an_allocation_lies_in_one() {
    let container = Container::empty();
    container.share("one", &terms(0, 4 * GIB));
    container.share("two", &terms(0, 6 * GIB));
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("total 0"), format!("0 {}", 10 * GIB));
    assert_eq!(program.allocate(7 * GIB), OUT_OF_MEMORY);
    assert_eq!(program.allocate(5 * GIB), 0);
    assert_eq!(container.used("two") / GIB, 5);
    assert_eq!(program.allocate(3 * GIB), 0);
    assert_eq!(container.used("one") + container.used("two"), 8 * GIB + 256 * MIB);
    assert_eq!(program.say("free 0"), "0");
    assert_eq!(program.say("free 1"), "0");
    assert_eq!(container.used("one") + container.used("two"), 256 * MIB);
}

#[test]
fn shares_of_two_gpus_keep_apart_and_a_gpu_without_one_is_free() {
    let container = Container::empty();
    container.share("one", &terms(0, 4 * GIB));
    container.share("two", &terms(1, 6 * GIB));
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("total 1"), format!("0 {}", 6 * GIB));
    assert_eq!(program.say("total 2"), format!("0 {}", 80 * GIB));
    assert_eq!(program.allocate(5 * GIB), OUT_OF_MEMORY);
    assert_eq!(program.say("retain 1"), "0");
    assert_eq!(program.allocate(5 * GIB), 0);
    assert_eq!(program.say("retain 2"), "0");
    assert_eq!(program.allocate(50 * GIB), 0);
    assert_eq!(program.say("launch"), "0");
    assert_eq!(container.used("one"), 256 * MIB);
    assert_eq!(container.used("two"), 256 * MIB + 5 * GIB);
    assert_eq!(container.slots("two")[0].launches, 0);
    assert_eq!(program.say("free 1"), "0");
    assert_eq!(container.used("two"), 256 * MIB + 5 * GIB);
}

#[test]
fn a_slot_says_whose_it_is() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.allocate(GIB), 0);
    assert_eq!(program.say("free 0"), "0");
    for _ in 0..3 {
        assert_eq!(program.say("launch"), "0");
    }
    let slots = container.slots("one");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.id())).expect("a process");
    let start: u64 = stat
        .rsplit(") ")
        .next()
        .expect("fields")
        .split(' ')
        .nth(19)
        .expect("22 fields")
        .parse()
        .expect("ticks");
    assert_eq!(slots.len(), 1);
    assert_eq!(slots[0].pid, u64::from(program.id()));
    assert_eq!(slots[0].start_time, start);
    assert_ne!(slots[0].pid_namespace, 0);
    assert_eq!(slots[0].peak_bytes, 256 * MIB + GIB);
    assert_eq!(slots[0].launches, 3);
    assert_eq!(container.slots("one")[0].index, 0);
    assert_eq!(GENERATION, 7);
}

#[test]
fn a_context_that_ends_while_it_is_retained_is_counted() {
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(interposition);
        assert_eq!(program.say("rejoin"), "0");
        assert_eq!(container.used("one"), 256 * MIB, "{interposition:?}");
        assert_eq!(program.say("release 0"), "0");
        assert_eq!(container.used("one"), 0, "{interposition:?}");
    }
}
