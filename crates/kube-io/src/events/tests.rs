//! Many events: series, limits, and what is written of them.

use std::time::Duration;

use http::Method;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fake::FakeServer;

const EVENTS: &str = "/apis/events.k8s.io/v1/events";

struct Events {
    server: FakeServer,
    sink: EventSink,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Events {
    fn new(limits: EventLimits) -> Self {
        let server = FakeServer::default();
        let (sink, writer) = many(&server.client(), "octavo.dev/scheduler", "octavo-0", limits);
        let stop = CancellationToken::new();
        let task = tokio::spawn(writer.run(stop.clone()));
        Self { server, sink, stop, task }
    }

    fn say(&self, pod: &str, note: &str) {
        let regarding = object("v1", "Pod", &ObjectName::new("team", pod), "u-1");
        self.sink.record(&regarding, Tone::Warning, "FailedScheduling", "Scheduling", note);
    }

    /// Waits until so many writes have ended.
    async fn until(&self, writes: u64) {
        let so = async {
            while self.sink.counts().written + self.sink.counts().failed < writes {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_mins(1), so).await.expect("they should be written");
    }

    fn written(&self) -> Vec<serde_json::Value> {
        self.server.objects(EVENTS)
    }

    fn writes(&self) -> usize {
        self.server.requests().len()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_says_who_what_and_about_what() {
    let events = Events::new(EventLimits::default());
    events.say("p", "no room");
    events.until(1).await;
    let event = &events.written()[0];
    assert_eq!(event["metadata"]["namespace"], "team");
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("p."));
    assert_eq!(event["regarding"]["kind"], "Pod");
    assert_eq!(event["reportingController"], "octavo.dev/scheduler");
    assert_eq!(event["reportingInstance"], "octavo-0");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["note"], "no room");
    assert!(event["series"].is_null());
}

#[tokio::test(start_paused = true)]
async fn equal_events_become_one_whose_count_is_written_now_and_then() {
    let events = Events::new(EventLimits::default());
    for _ in 0..30 {
        events.say("p", "no room");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(events.writes(), 1);
    for _ in 0..60 {
        events.say("p", "no room");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(events.written().len(), 1);
    assert_eq!(events.writes(), 2);
    let count = events.written()[0]["series"]["count"].as_i64().unwrap();
    assert!((59..=62).contains(&count), "{count}");
    // The last count is written when nobody counts any more.
    events.stop.cancel();
    events.task.await.unwrap();
    assert_eq!(events.server.objects(EVENTS)[0]["series"]["count"], 90);
    assert_eq!(events.sink.counts().repeated, 89);
}

#[tokio::test(start_paused = true)]
async fn other_notes_and_other_objects_are_other_events() {
    let events = Events::new(EventLimits::default());
    events.say("p", "no room");
    events.say("p", "no room at all");
    events.say("q", "no room");
    events.until(3).await;
    assert_eq!(events.written().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn after_the_window_it_is_news_again() {
    let events = Events::new(EventLimits::default());
    events.say("p", "no room");
    events.say("p", "no room");
    sleep(Duration::from_mins(7)).await;
    assert_eq!(events.written()[0]["series"]["count"], 2);
    assert_eq!(events.sink.remembered(), 0, "what has ended is forgotten");
    events.say("p", "no room");
    events.until(2).await;
    // Names come of the wall's clock, which runs in this test, too.
    assert_eq!(events.written().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn too_many_are_dropped_and_counted() {
    let limits = EventLimits { burst: 5, per_second: 2, ..EventLimits::default() };
    let events = Events::new(limits);
    for number in 0..20 {
        events.say(&format!("p-{number}"), "no room");
    }
    events.until(5).await;
    assert_eq!(events.sink.counts().dropped, 15);
    // An equal one of one that was written costs nothing.
    events.say("p-0", "no room");
    assert_eq!(events.sink.counts().repeated, 1);
    sleep(Duration::from_secs(2)).await;
    for number in 20..30 {
        events.say(&format!("p-{number}"), "no room");
    }
    events.until(9).await;
    assert_eq!(events.sink.counts().written, 9);
    assert_eq!(events.sink.counts().dropped, 21);
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_is_counted_and_the_next_one_tried() {
    let events = Events::new(EventLimits::default());
    events.server.fail(&Method::POST, &[403]);
    events.say("p", "no room");
    events.until(1).await;
    assert_eq!(events.sink.counts().failed, 1);
    events.say("p", "no room");
    events.until(2).await;
    assert_eq!(events.written().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_has_forgotten_is_written_anew_with_its_count() {
    let events = Events::new(EventLimits::default());
    events.say("p", "no room");
    events.until(1).await;
    let name = events.written()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    events.server.delete(EVENTS, "team", &name);
    events.say("p", "no room");
    sleep(Duration::from_secs(70)).await;
    assert_eq!(events.written()[0]["series"]["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_holds_up_nobody_who_records() {
    let events = Events::new(EventLimits::default());
    events.server.kill(true);
    events.say("p", "no room");
    events.say("q", "no room");
    events.until(2).await;
    assert_eq!(events.sink.counts().failed, 2);
    events.server.kill(false);
    events.say("r", "no room");
    events.until(3).await;
    assert_eq!(events.written().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn events_about_what_has_no_namespace_live_in_the_default_one() {
    let events = Events::new(EventLimits::default());
    events.sink.record(&node("n"), Tone::Normal, "Moved", "Repairing", "it left");
    events.until(1).await;
    assert_eq!(events.written()[0]["metadata"]["namespace"], "default");
}

#[test]
fn a_long_note_is_cut_between_characters() {
    let cut = shorten(&"ü".repeat(1000));
    assert!(cut.len() <= LONGEST_NOTE && cut.len() > LONGEST_NOTE - 5, "{}", cut.len());
    assert!(cut.ends_with("ü..."));
    assert_eq!(shorten("short"), "short");
}

#[test]
fn a_claim_is_referred_to_by_uid() {
    let reference = claim("team", "train", "u-1");
    assert_eq!(reference.api_version.as_deref(), Some("resource.k8s.io/v1"));
    assert_eq!(reference.uid.as_deref(), Some("u-1"));
    assert_eq!(reference.namespace.as_deref(), Some("team"));
}
