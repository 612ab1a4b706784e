use super::*;

fn of(annotations: &[(&str, &str)]) -> Result<Option<Checkpoint>, String> {
    let annotations =
        annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Checkpoint::of(&annotations.collect()).map_err(|error| error.to_string())
}

#[test]
fn each_way_is_read() {
    assert_eq!(of(&[("app", "x")]), Ok(None));
    let found = of(&[(CHECKPOINT_SIGNAL, "SIGUSR1"), (CHECKPOINT_CONTAINER, "trainer")]).unwrap();
    let hook = Hook::Signal { container: Some("trainer".to_owned()), signal: Signal::Usr1 };
    assert_eq!(found, Some(Checkpoint { hook, deadline_seconds: 60 }));
    let found = of(&[(CHECKPOINT_HTTP, ":8080/a/b"), (CHECKPOINT_DEADLINE, "120")]).unwrap();
    let hook = Hook::Http { port: 8080, path: "/a/b".to_owned() };
    assert_eq!(found, Some(Checkpoint { hook, deadline_seconds: 120 }));
    let found = of(&[(CHECKPOINT_FILE, "control/now")]).unwrap();
    let hook = Hook::File { volume: "control".to_owned(), path: "now".to_owned() };
    assert_eq!(found, Some(Checkpoint { hook, deadline_seconds: 60 }));
}

#[test]
fn errors_name_annotation_and_reason() {
    assert_eq!(
        of(&[(CHECKPOINT_SIGNAL, "SIGUSR1"), (CHECKPOINT_FILE, "a/b")]),
        Err("checkpoint.octavo.dev/signal and checkpoint.octavo.dev/file are both set; leave one of \
             them"
            .to_owned())
    );
    assert!(of(&[(CHECKPOINT_DEADLINE, "5")]).unwrap_err().contains("without a way to ask"));
    for (name, value) in [
        (CHECKPOINT_SIGNAL, "SIGKILL"),
        (CHECKPOINT_HTTP, "8080/x"),
        (CHECKPOINT_HTTP, ":0/x"),
        (CHECKPOINT_HTTP, ":99999/x"),
        (CHECKPOINT_HTTP, ":80/a b"),
        (CHECKPOINT_FILE, "control"),
        (CHECKPOINT_FILE, "control/../../etc"),
        (CHECKPOINT_FILE, "/etc/x"),
    ] {
        let error = of(&[(name, value)]).unwrap_err();
        assert!(error.contains(name) && error.contains(value), "{error}");
    }
    for seconds in ["0", "3601", "-1", "x"] {
        let error = of(&[(CHECKPOINT_SIGNAL, "SIGTERM"), (CHECKPOINT_DEADLINE, seconds)]);
        assert!(error.unwrap_err().contains("from 1 to 3600"));
    }
}
