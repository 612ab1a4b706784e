use super::*;
use crate::document::{DocumentFormat, parse, text};

fn study(yaml: &str) -> Result<Study, String> {
    let study: Study = parse(yaml, DocumentFormat::Yaml)?;
    study.check().map_err(|error| error.to_string())?;
    Ok(study)
}

#[test]
fn an_empty_document_is_the_default_and_every_field_is_written_and_read() {
    assert_eq!(study("{}"), Ok(Study::default()));
    for format in [DocumentFormat::Yaml, DocumentFormat::Json] {
        let text = text(&Study::default(), format).unwrap();
        assert_eq!(parse(&text, format), Ok(Study::default()), "{text}");
    }
}

#[test]
fn fields_keep_their_defaults_beside_others() {
    let study = study("job: {length: {computing: 14d}}\nlemons: {share: 0.08}\n").unwrap();
    assert_eq!(study.job.length, Length::Computing(Span::days(14)));
    assert_eq!(study.job.servers, Job::default().servers);
    assert_eq!(study.lemons, Lemons { share: 0.08, factor: 20.0 });
}

#[test]
fn a_wrong_document_says_which_field_and_why() {
    for (yaml, wanted) in [
        ("failures: {perDay: -1}", "failures.perDay is -1; expected a number from 0"),
        ("failures: {perDay: .nan}", "failures.perDay is NaN; expected a number"),
        ("failures: {wrongBlame: 1.5}", "failures.wrongBlame is 1.5; expected a share from 0 to 1"),
        ("lemons: {factor: 0.5}", "lemons.factor is 0.5; expected a number from 1"),
        ("repair: {testFinds: 1}", "repair.testFinds is 1; expected a number from 0 to 0.99"),
        ("fleet: {servers: 100}", "job.servers is 2048 and job.standbys 16, but fleet.servers"),
        ("fleet: {servers: 0}", "fleet.servers is 0; expected a whole number from 1"),
        (
            "fleet: {parents: [{name: leaf, servers: 0, perDay: 1, repair: 1h}]}",
            "fleet.parents.leaf.servers is 0",
        ),
        (
            "fleet: {parents: [{name: leaf, servers: 8, perDay: -1, repair: 1h}]}",
            "fleet.parents.leaf.perDay is -1",
        ),
        ("failures: {detection: [{share: 0.5, after: 1m}]}", "sum up to 0.5; expected 1"),
        ("job: {length: {elapsed: 0s}}", "job.length is 0s"),
        ("restart: {requeue: 5}", "is not a length of time; expected one such as 90s"),
        ("restart: {requeu: 5m}", "unknown field `requeu`"),
        ("jobs: {}", "unknown field `jobs`"),
    ] {
        let error = study(yaml).unwrap_err();
        assert!(error.contains(wanted), "{yaml}: {error}");
    }
}

#[test]
fn other_lemons_leave_the_mean_rate() {
    let before = Study::default();
    let rate = |study: &Study| study.failures.per_day * study.lemons.mean_factor();
    let after = before.clone().with_lemons(Lemons { share: 0.15, factor: 6.0 });
    assert!((rate(&before) - rate(&after)).abs() < 1e-12);
    assert!((rate(&before) - 0.0065).abs() < 0.0001, "as on RSC-1: {}", rate(&before));
}
