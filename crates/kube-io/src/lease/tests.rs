//! Elections on a server in memory. The clock stops while a task can run.

use http::Method;
use octavo_api::names::ANNOTATION_ADDRESS;
use octavo_testkit::{FakeApi, Rng, eventually};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::*;

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

/// A participant of the election.
struct Candidate {
    leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Candidate {
    fn new(server: &FakeApi, identity: &str) -> Self {
        Self::at(server, identity, None)
    }

    fn at(server: &FakeApi, identity: &str, address: Option<&str>) -> Self {
        let options = LeaseOptions {
            address: address.map(str::to_owned),
            ..LeaseOptions::new("system", "octavo", identity)
        };
        let (elector, leadership) = Elector::new(&server.client(), options).unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(elector.run(stop.clone()));
        Self { leadership, stop, task }
    }

    fn leads(&self) -> bool {
        self.leadership.borrow().is_leading()
    }

    fn since(&self) -> Instant {
        let Leadership::Leading(term) = *self.leadership.borrow() else { panic!("it leads") };
        term.since
    }

    async fn until(&self, is_leading: bool) {
        eventually("leadership", || self.leads() == is_leading).await;
    }

    /// Stops without releasing the lease.
    fn die(self) {
        self.task.abort();
    }
}

fn lease(server: &FakeApi) -> Value {
    server.object(LEASES, "system", "octavo").unwrap()
}

fn edit(server: &FakeApi, edit: impl Fn(&mut Value)) {
    let mut lease = lease(server);
    edit(&mut lease);
    server.put(LEASES, lease);
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_the_second_knows_who_does() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let second = Candidate::new(&server, "b");
    sleep(Duration::from_mins(5)).await;
    assert!(first.leads() && !second.leads());
    let holder = Some("a".to_owned());
    assert_eq!(*second.leadership.borrow(), Leadership::Following { holder });
    let lease = lease(&server);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_term_ends_before_the_lease_does() {
    let server = FakeApi::default();
    let begun = Instant::now();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let Leadership::Leading(term) = first.leadership.borrow().clone() else { panic!("it leads") };
    assert_eq!(term.until.at - begun, Duration::from_secs(10));
    assert_eq!(term.ends.at - begun, Duration::from_secs(15));
}

#[tokio::test(start_paused = true)]
async fn who_renews_in_time_leads_since_it_took_the_lease() {
    let server = FakeApi::default();
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let since = first.since();
    assert!(since >= begun && since <= Instant::now());
    sleep(Duration::from_mins(5)).await;
    assert_eq!(first.since(), since);
}

#[tokio::test(start_paused = true)]
async fn a_paused_leader_starts_a_new_term() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let before = first.since();
    tokio::time::advance(Duration::from_mins(1)).await;
    let resumed = Instant::now();
    assert!(!first.leads());
    first.until(true).await;
    assert!(before < resumed && first.since() >= resumed);
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 0);
}

#[test]
fn a_late_renewal_starts_a_new_term() {
    let options = LeaseOptions::new("system", "octavo", "a");
    let taken = Deadline::now();
    let after = |moment: Deadline, seconds| Deadline::after(moment, Duration::from_secs(seconds));
    let following = Leadership::Following { holder: None };
    let term = Term::after(&following, &options, 1, taken, after(taken, 1));
    assert_eq!(term.since, taken.at + Duration::from_secs(1));
    let led = Leadership::Leading(term);
    let since =
        |number, begun, answered| Term::after(&led, &options, number, begun, answered).since;
    assert_eq!(since(1, after(taken, 9), after(taken, 9)), term.since);
    // No receiver saw the end of the term in between.
    assert_eq!(since(1, after(taken, 9), after(taken, 10)), taken.at + Duration::from_secs(10));
    assert_eq!(since(2, after(taken, 3), after(taken, 3)), taken.at + Duration::from_secs(3));
    // The machine slept, and its monotonic clock stopped.
    let awake = Deadline { system: taken.system + Duration::from_mins(1), ..after(taken, 2) };
    assert_eq!(since(1, after(taken, 2), awake), awake.at);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_after_its_duration_without_change() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let second = Candidate::new(&server, "b");
    sleep(Duration::from_mins(1)).await;
    let Leadership::Leading(last) = first.leadership.borrow().clone() else { panic!("it leads") };
    first.die();
    second.until(true).await;
    assert!(Instant::now() >= last.ends.at, "nobody leads before the lease ends");
    assert!(Instant::now() < last.ends.at + Duration::from_secs(10), "and it is taken soon");
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 1);
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let second = Candidate::new(&server, "b");
    sleep(Duration::from_secs(20)).await;
    first.stop.cancel();
    first.task.await.unwrap();
    assert!(!first.leadership.borrow().is_leading());
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "");
    let given = Instant::now();
    second.until(true).await;
    assert!(given.elapsed() < Duration::from_secs(5), "{:?}", given.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_gives_nothing_back() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let second = Candidate::new(&server, "b");
    sleep(Duration::from_secs(20)).await;
    second.stop.cancel();
    second.task.await.unwrap();
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "a");
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_under_its_name_leads_at_once() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    first.die();
    let begun = Instant::now();
    let again = Candidate::new(&server, "a");
    again.until(true).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_gets_no_answers_stops_in_time_and_comes_back() {
    for is_done in [false, true] {
        let server = FakeApi::default();
        let first = Candidate::new(&server, "a");
        first.until(true).await;
        sleep(Duration::from_secs(30)).await;
        let Leadership::Leading(term) = first.leadership.borrow().clone() else {
            panic!("it leads")
        };
        if is_done {
            // Its renewals succeed without an answer.
            server.mute(true);
        } else {
            server.kill(true);
        }
        first.until(false).await;
        assert!(Instant::now() <= term.ends.at);
        let mut leadership = first.leadership.clone();
        let follows = |now: &Leadership| matches!(now, Leadership::Following { .. });
        timeout(Duration::from_secs(5), leadership.wait_for(follows)).await.unwrap().unwrap();
        server.mute(false);
        server.kill(false);
        first.until(true).await;
        assert_eq!(lease(&server)["spec"]["leaseTransitions"], 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_at_renewal() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    edit(&server, |lease| {
        lease["spec"]["holderIdentity"] = "thief".into();
        lease["spec"]["leaseTransitions"] = 1.into();
    });
    let begun = Instant::now();
    first.until(false).await;
    assert!(begun.elapsed() < Duration::from_secs(3));
    // The lease belongs to the other program for its duration, and not longer.
    first.until(true).await;
    assert!(begun.elapsed() >= Duration::from_secs(15));
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 2);
}

#[tokio::test(start_paused = true)]
async fn edits_that_leave_the_holder_change_nothing_and_are_kept() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let mut leadership = first.leadership.clone();
    for number in 0..20 {
        edit(&server, |lease| lease["metadata"]["labels"] = json!({"n": number.to_string()}));
        sleep(Duration::from_secs(1)).await;
        assert!(leadership.borrow_and_update().is_leading());
    }
    assert_eq!(lease(&server)["metadata"]["labels"]["n"], "19");
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn address_of_the_holder_is_annotated_and_follows_the_holder() {
    let server = FakeApi::default();
    let address = || lease(&server)["metadata"]["annotations"][ANNOTATION_ADDRESS].clone();
    let first = Candidate::at(&server, "a", Some("127.0.0.1:1"));
    first.until(true).await;
    assert_eq!(address(), "127.0.0.1:1");
    // Annotations of others are kept, and the own one comes back.
    edit(&server, |lease| lease["metadata"]["annotations"] = json!({"note": "kept"}));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(address(), "127.0.0.1:1");
    let second = Candidate::at(&server, "b", Some("127.0.0.1:2"));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(address(), "127.0.0.1:1", "a follower writes nothing");
    first.die();
    second.until(true).await;
    assert_eq!(address(), "127.0.0.1:2");
    let third = Candidate::new(&server, "c");
    sleep(Duration::from_secs(3)).await;
    second.die();
    third.until(true).await;
    assert_eq!(address(), Value::Null, "a holder without an address leaves none behind");
    assert_eq!(lease(&server)["metadata"]["annotations"]["note"], "kept");
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_has_no_address() {
    let server = FakeApi::default();
    let first = Candidate::at(&server, "a", Some("127.0.0.1:1"));
    first.until(true).await;
    first.stop.cancel();
    first.task.await.unwrap();
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "");
    assert_eq!(lease(&server)["metadata"]["annotations"][ANNOTATION_ADDRESS], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_edit_does_not_make_a_dead_leader_look_alive() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    let second = Candidate::new(&server, "b");
    sleep(Duration::from_secs(10)).await;
    first.die();
    let begun = Instant::now();
    for number in 0..6 {
        edit(&server, |lease| lease["metadata"]["labels"] = json!({"n": number.to_string()}));
        sleep(Duration::from_secs(3)).await;
    }
    second.until(true).await;
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_holder_or_a_lease_that_is_gone_is_taken() {
    let server = FakeApi::default();
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    edit(&server, |lease| lease["spec"] = Value::Null);
    sleep(Duration::from_secs(3)).await;
    assert!(first.leads());
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "a");
    server.delete(LEASES, "system", "octavo");
    sleep(Duration::from_secs(3)).await;
    assert!(first.leads());
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "a");
}

#[tokio::test(start_paused = true)]
async fn what_other_clocks_say_does_not_matter() {
    for time in ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        let server = FakeApi::default();
        let spec = json!({"holderIdentity": "skewed", "leaseDurationSeconds": 20,
            "acquireTime": time, "renewTime": time, "leaseTransitions": 4});
        let name = json!({"namespace": "system", "name": "octavo"});
        server.put(LEASES, json!({"metadata": name, "spec": spec}));
        let begun = Instant::now();
        let first = Candidate::new(&server, "a");
        first.until(true).await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(20), "not before what its holder promised: {took:?}");
        assert!(took < Duration::from_secs(26), "and soon after: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_no_end() {
    let server = FakeApi::default();
    server.fail(&Method::GET, &[403, 500]);
    server.fail(&Method::POST, &[403, 409]);
    let first = Candidate::new(&server, "a");
    first.until(true).await;
    server.fail(&Method::PUT, &[500, 409]);
    sleep(Duration::from_secs(8)).await;
    assert!(first.leads());
}

#[tokio::test(start_paused = true)]
async fn of_three_with_bad_connections_never_two_lead() {
    let store = FakeApi::default();
    let mut rng = Rng::new(0);
    let links: Vec<_> = (0..3).map(|_| store.link()).collect();
    let names = ["a", "b", "c"];
    let candidates: Vec<_> =
        links.iter().zip(names).map(|(link, name)| Candidate::new(link, name)).collect();
    let mut led = [false; 3];
    for _ in 0..4000 {
        let link = rng.pick(&links);
        match rng.below(12) {
            0 => link.kill(true),
            1 => link.mute(true),
            2 => link.fail(&Method::PUT, &[500, 409]),
            3..=5 => {
                link.kill(false);
                link.mute(false);
            }
            _ => {}
        }
        sleep(Duration::from_millis(500 + rng.below(1000) as u64)).await;
        let leading: Vec<_> = candidates.iter().map(Candidate::leads).collect();
        assert!(leading.iter().filter(|leads| **leads).count() <= 1, "{leading:?}");
        for (led, leads) in led.iter_mut().zip(leading) {
            *led |= leads;
        }
    }
    assert_eq!(led, [true; 3], "each had its turn");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_does_not_believe_what_it_held() {
    let now = Deadline::now();
    let term = Term {
        until: Deadline::after(now, Duration::from_secs(10)),
        ends: Deadline::after(now, Duration::from_secs(15)),
        number: 1,
        since: now.at,
    };
    let held = Leadership::Leading(term);
    let later = |seconds| Duration::from_secs(seconds);
    assert!(held.is_leading_at(now.at + later(9), now.system + later(9)));
    assert!(!held.is_leading_at(now.at + later(10), now.system + later(10)));
    // The monotonic clock stops while a machine sleeps.
    assert!(!held.is_leading_at(now.at, now.system + later(60)));
    // Setting back the wall clock does not extend a term.
    assert!(!held.is_leading_at(now.at + later(11), now.system - later(3600)));
}

#[test]
fn times_that_do_not_fit_are_refused() {
    let options = LeaseOptions::new("system", "octavo", "a");
    assert_eq!(options.check(), Ok(()));
    let with = |edit: fn(&mut LeaseOptions)| {
        let mut options = options.clone();
        edit(&mut options);
        options.check()
    };
    assert_eq!(with(|options| options.identity.clear()), Err(LeaseError::Nameless));
    for edit in [
        (|options| options.duration = Duration::from_secs(10)) as fn(&mut LeaseOptions),
        |options| options.duration = Duration::from_millis(15_500),
        |options| options.retry = Duration::from_secs(5),
        |options| options.retry = Duration::ZERO,
    ] {
        let error = with(edit).unwrap_err().to_string();
        assert!(error.contains("whole seconds"), "{error}");
    }
}
