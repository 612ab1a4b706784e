use std::io;

use anyhow::{Context, anyhow};
use octavo_sim::document::DocumentError;
use octavo_sim::run::SimError;
use octavo_sim::whatif::args::WhatifCommandError;
use octavo_view::ViewError;

use super::{is_broken_pipe, text};

#[test]
fn a_hint_comes_last() {
    let error = anyhow::Error::new(ViewError::NoNamespace { namespace: "x".to_owned() });
    assert_eq!(
        text(&error, true),
        "error: there is no namespace \"x\"\n\
         hint: `kubectl get namespaces` lists them; -n selects one\n"
    );
}

fn closed() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

#[test]
fn a_reader_that_went_away_is_found_behind_other_errors() {
    let top = Err::<(), _>(ViewError::Output(closed())).context("outer").unwrap_err();
    assert!(is_broken_pipe(&top));
    assert!(is_broken_pipe(&SimError::Output(closed()).into()));
    let whatif = WhatifCommandError::Output(closed());
    assert!(is_broken_pipe(&SimError::from(whatif).into()));
    assert!(!is_broken_pipe(&anyhow!("other")));
    let full = ViewError::Output(io::ErrorKind::StorageFull.into());
    assert!(!is_broken_pipe(&full.into()), "not told, and nobody left because of it");
}

#[test]
fn a_socket_or_file_that_breaks_is_a_failure() {
    assert!(!is_broken_pipe(&anyhow::Error::new(closed()).context("the API server hung up")));
    let path = || "fifo".into();
    assert!(!is_broken_pipe(&SimError::File { path: path(), source: closed() }.into()));
    let page = DocumentError::Write { path: path(), source: closed() };
    assert!(!is_broken_pipe(&SimError::from(WhatifCommandError::from(page)).into()));
}
