use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_domain_runs_once_at_a_time_and_again_if_it_was_marked_meanwhile() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.mark("a", now);
    assert_eq!(queue.take(now).as_deref(), Some("a"));
    queue.mark("a", now);
    assert_eq!(queue.take(now), None);
    assert_eq!(queue.next_due(), None);
    queue.done("a", Outcome::Done, now);
    assert_eq!(queue.take(now).as_deref(), Some("a"));
    queue.done("a", Outcome::Done, now);
    assert_eq!(queue.take(now), None);
    assert!(!queue.is_running());
}

#[tokio::test(start_paused = true)]
async fn the_earlier_of_two_times_counts() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.mark("a", now + SECOND * 2);
    queue.mark("a", now + SECOND);
    queue.mark("a", now + SECOND * 3);
    assert_eq!(queue.next_due(), Some(now + SECOND));
    assert_eq!(queue.take(now), None);
    assert_eq!(queue.take(now + SECOND).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn failures_delay_up_to_half_a_minute_and_a_change_does_not_wait() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for attempt in 0..20 {
        queue.mark("a", now);
        assert_eq!(queue.take(now).as_deref(), Some("a"), "attempt {attempt}");
        queue.done("a", Outcome::Failed, now);
        let due = queue.next_due().unwrap();
        assert!(due > now && due <= now + MAX_DELAY);
    }
    queue.mark("a", now);
    assert!(queue.take(now).is_some());
    queue.done("a", Outcome::Done, now);
    assert_eq!(queue.next_due(), None);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_was_deferred_forgets_no_failure() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for failures in 1..=6 {
        for outcome in [Outcome::Deferred, Outcome::Failed] {
            queue.mark("a", now);
            assert!(queue.take(now).is_some());
            let counted = queue.done("a", outcome, now);
            assert_eq!(counted, failures - u32::from(outcome == Outcome::Deferred));
        }
    }
    let due = queue.next_due().unwrap();
    assert!(due >= now + FIRST_DELAY * 16, "{:?}", due - now);
    queue.mark("a", now);
    assert!(queue.take(now).is_some());
    assert_eq!(queue.done("a", Outcome::Done, now), 0);
}

#[tokio::test(start_paused = true)]
async fn sixteen_domains_run_at_most() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    (0..20).for_each(|number| queue.mark(&format!("{number:02}"), now));
    let taken = std::iter::from_fn(|| queue.take(now)).count();
    assert_eq!(taken, MAX_RUNNING);
    assert_eq!(queue.next_due(), None);
    queue.done("03", Outcome::Done, now);
    assert_eq!(queue.next_due(), Some(now));
}
