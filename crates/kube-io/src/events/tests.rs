use octavo_testkit::{Request, ScriptedApi};
use serde_json::json;

use super::*;

#[tokio::test]
async fn events_with_another_note_are_no_series() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let api = ScriptedApi::new(move |request: &Request| {
        seen.lock().unwrap().push(request.method().to_string());
        (200, json!({"metadata": {"name": "e"}, "eventTime": null}))
    });
    let events = Events::new(api.client(), "agent", "node-1");
    let record = async |name: &str, note: &str| {
        events.record(&node(name), EventType::Warning, "ModeWaits", "Switch", note).await;
    };
    record("node-1", "two pods").await;
    record("node-1", "two pods").await;
    record("node-1", "one pod").await;
    record("node-2", "one pod").await;
    assert_eq!(*sent.lock().unwrap(), ["POST", "PATCH", "POST", "POST"]);
}

#[test]
fn a_long_note_is_cut_between_characters() {
    let cut = shorten(&"ü".repeat(1000));
    assert!(cut.len() <= MAX_NOTE_BYTES && cut.len() > MAX_NOTE_BYTES - 5, "{}", cut.len());
    assert!(cut.ends_with("ü..."));
    assert_eq!(shorten("short"), "short");
}
