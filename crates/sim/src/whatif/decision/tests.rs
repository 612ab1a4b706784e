use octavo_engine::explain::Explanation;

use super::super::args::{self, VerifyArgs};
use super::super::record::{Record, Verdict};
use super::*;
use crate::document;

/// The document that the scheduler's own test recorded.
const RECORDED: &str = include_str!("recorded.json");
/// A member of a gang that arrived after the others were placed.
const LATE: &str = include_str!("late.json");
/// A pod that may not be on a node.
const KEPT_AWAY: &str = include_str!("kept-away.json");

fn decision() -> Decision {
    Decision::parse(RECORDED).unwrap()
}

#[test]
fn scheduler_decision_becomes_a_verifiable_record() {
    let record = decision().record().unwrap();
    assert_eq!(record.verify().unwrap(), Verdict::Same);
    assert!(record.answer.is_yes() && record.question.packing);
    assert_eq!(record.answer.answers[0].explanation, decision().answer);
    // As files.
    let folder = tempfile::tempdir().unwrap();
    for name in ["record.json", "record.yaml"] {
        let path = folder.path().join(name);
        document::write(&record, &path).unwrap();
        assert_eq!(document::read::<Record>(&path, "record").unwrap(), record);
        let mut out = Vec::new();
        args::verify(&VerifyArgs { record: path }, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with("same answer, bit for bit: "), "{out}");
    }
}

#[test]
fn a_decision_that_the_simulator_does_not_make_is_no_record() {
    let mut other = decision();
    let Explanation::Placed(plan) = &mut other.answer else { panic!("it was placed") };
    plan.placements[0].place.node = "n9".to_owned();
    let error = other.record().unwrap_err().to_string();
    assert!(error.contains("decide differently") && error.contains("n9"), "{error}");
    // A decision for another request differs too.
    let mut other = decision();
    other.gang.groups[0].shape.resources.cpu_milli += 1_000_000;
    assert!(matches!(other.record(), Err(DecisionError::Differs { .. })));
}

#[test]
fn a_decision_of_another_form_is_refused_with_its_place() {
    let error = Decision::parse("{\n\"cluster\": 1}").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
}

#[test]
fn pinned_members_and_forbidden_nodes_are_replayed() {
    for text in [LATE, KEPT_AWAY] {
        let decision = Decision::parse(text).unwrap();
        let record = decision.clone().record().unwrap();
        assert_eq!(record.verify().unwrap(), Verdict::Same);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        // The answer depends on the pinned members.
        let without = Decision { pinned: Vec::new(), forbidden: Vec::new(), ..decision };
        without.record().unwrap_err();
    }
}

#[test]
fn nonexistent_placement_is_reported_with_its_member() {
    let mut late = Decision::parse(LATE).unwrap();
    late.pinned[0].node = "n9".to_owned();
    let error = late.record().unwrap_err().to_string();
    assert!(error.contains("pinned member of rank 0") && error.contains("n9"), "{error}");
    let mut kept_away = Decision::parse(KEPT_AWAY).unwrap();
    kept_away.forbidden = vec!["n9".to_owned()];
    let error = kept_away.record().unwrap_err().to_string();
    assert!(error.contains("forbidden nodes") && error.contains("n9"), "{error}");
}

#[test]
fn whose_pinned_members_are_must_be_clear() {
    let mut record = Decision::parse(LATE).unwrap().record().unwrap();
    record.question.gangs.push(record.question.gangs[0].clone());
    let error = answer(&record.cluster, &record.question).unwrap_err().to_string();
    assert!(error.contains("one gang") && error.contains('2'), "{error}");
}
