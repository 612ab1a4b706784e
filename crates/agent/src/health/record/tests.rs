use super::Try;

#[test]
fn a_try_waits_until_its_next_time() {
    let tried = Try { why: None, next: 1_030, delay: 30, seconds: 0 };
    assert!(tried.waits(1_000), "the try has just begun");
    assert!(tried.waits(1_029), "a second is left");
    assert!(!tried.waits(1_030), "the time has come");
}

#[test]
fn a_time_of_a_wrong_clock_does_not_delay_a_test() {
    let tried = Try { why: None, next: 4_000_000_030, delay: 30, seconds: 0 };
    assert!(!tried.waits(1_000), "the clock was ahead when the try began");
}
