use std::io;

use anyhow::{Context, anyhow};
use octavo_view::ViewError;

use super::{is_broken_pipe, text};

#[test]
fn causes_follow_and_are_not_said_twice() {
    let error = anyhow!("disk full").context("cannot write a: disk full").context("cannot save");
    assert_eq!(text(&error, false), "error: cannot save\n  caused by: cannot write a: disk full\n");
}

#[test]
fn a_hint_comes_last() {
    let error = anyhow::Error::new(ViewError::NoNamespace { namespace: "x".to_owned() });
    assert_eq!(
        text(&error, true),
        "error: there is no namespace \"x\"\n\
         hint: `kubectl get namespaces` lists them; -n chooses one\n"
    );
}

#[test]
fn a_closed_pipe_is_found_behind_other_errors() {
    let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
    let wrapped = Err::<(), _>(ViewError::Output(closed())).context("outer").unwrap_err();
    assert!(is_broken_pipe(&wrapped));
    assert!(!is_broken_pipe(&anyhow!("other")));
}
