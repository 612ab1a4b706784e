use serde_json::json;

use super::*;

fn read(changes: &Value) -> Result<Request, String> {
    let mut value = json!({"uid": "u-1", "namespace": "team", "name": "train",
        "since": "2026-01-05T12:00:00Z", "deadlineSeconds": 60});
    for (field, change) in changes.as_object().unwrap() {
        value[field] = change.clone();
    }
    Wanted::read(&value).unwrap().1.request
}

#[test]
fn each_way_to_ask_is_read() {
    let request = read(&json!({"url": "http://[::1]:8080/save?now=1"})).unwrap();
    assert_eq!((&*request.pod, request.limit), ("team/train", Duration::from_mins(1)));
    assert_eq!(request.hook.name(), "http");
    let hook = |changes: Value| read(&changes).unwrap().hook.name();
    assert_eq!(hook(json!({"signal": {"containerID": "abc", "signal": "SIGUSR1"}})), "signal");
    assert_eq!(
        hook(json!({"file": {"volume": "control", "path": "a/b"}, "colour": "red"})),
        "file"
    );
}

#[test]
fn what_cannot_be_read_fails_with_its_field() {
    for (wanted, changes) in [
        ("signal, url, file: none", json!({})),
        ("exec: this agent does not know it", json!({"exec": {"command": ["save"]}})),
        ("one of them", json!({"url": "http://10.0.0.1/", "file": {"volume": "a", "path": "b"}})),
        ("deadlineSeconds: 0", json!({"deadlineSeconds": 0})),
        ("deadlineSeconds: invalid type", json!({"deadlineSeconds": null})),
        ("name: invalid type", json!({"name": 5})),
        ("uid: ", json!({"uid": "../x"})),
        (
            "signal: unknown variant `SIGQUIT`",
            json!({"signal": {"containerID": "a", "signal": "SIGQUIT"}}),
        ),
        ("signal.containerID: ", json!({"signal": {"containerID": "a/b", "signal": "SIGINT"}})),
        ("url: ", json!({"url": "https://10.0.0.1/"})),
        ("url: ", json!({"url": "http://example.com/"})),
        ("url: ", json!({"url": "not one"})),
        ("file.volume: ", json!({"file": {"volume": "..", "path": "b"}})),
        ("file.volume: ", json!({"file": {"volume": "a/b", "path": "b"}})),
        ("file.path: ", json!({"file": {"volume": "a", "path": "b/../../c"}})),
        ("file.path: ", json!({"file": {"volume": "a", "path": "/etc/passwd"}})),
    ] {
        let error = read(&changes).unwrap_err();
        assert!(error.contains(wanted), "wanted {wanted}: {error}");
    }
    for value in [json!({}), json!({"uid": 5}), json!("text"), json!(null)] {
        assert!(Wanted::read(&value).is_none());
    }
}
