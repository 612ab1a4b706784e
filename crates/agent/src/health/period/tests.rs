use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use super::*;

#[test]
fn a_period_goes_on_until_it_is_ended_or_the_next_begins() {
    let periods = Periods::default();
    let first = periods.begin();
    assert!(first.goes_on());
    assert_eq!(first.within(|| 7), Some(7));
    let second = periods.begin();
    assert!(!first.goes_on() && second.goes_on());
    periods.end();
    assert!(!second.goes_on());
    assert_eq!(second.within(|| 7), None);
}

#[test]
fn a_period_does_not_end_in_the_middle_of_an_act() {
    let (periods, is_done) = (Periods::default(), AtomicBool::new(false));
    let period = periods.begin();
    let (begun, is_begun) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            period.within(|| {
                begun.send(()).unwrap();
                // The other thread has time to end the period too early.
                (0..1_000).for_each(|_| thread::yield_now());
                is_done.store(true, Ordering::Release);
            })
        });
        is_begun.recv().unwrap();
        periods.end();
        assert!(is_done.load(Ordering::Acquire));
    });
}
