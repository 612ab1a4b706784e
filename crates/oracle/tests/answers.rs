//! Tests with simple oracles: questions, and the handling of answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use octavo_oracle::Oracle;
use octavo_testkit::Rng;
use serde_json::{Value, json};

/// Returns each question as its answer.
fn echo() -> Oracle {
    Oracle::start(Path::new("cat"), "-").unwrap()
}

#[test]
fn a_question_has_an_id_and_each_gets_its_own_answer() {
    let mut echo = echo();
    for number in 0..3 {
        let id = number.to_string();
        let answer: Value = echo.ask(&id, &json!({ "number": number })).unwrap();
        assert_eq!(answer, json!({ "id": id, "number": number }));
    }
}

#[test]
fn malformed_answer_is_reported_with_its_question() {
    let error = echo().ask::<Vec<u8>>("77", &json!({})).unwrap_err().to_string();
    assert!(error.contains("question 77") && error.contains("{\"id\":\"77\"}"), "{error}");
}

#[test]
fn answer_to_another_question_is_an_error() {
    let mut stuck = Oracle::start(Path::new("sed"), r#"-ues/.*/{"id":"1"}/"#).unwrap();
    stuck.ask::<Value>("1", &json!({})).unwrap();
    let error = stuck.ask::<Value>("2", &json!({})).unwrap_err().to_string();
    assert!(error.contains("question 2 was answered as question 1"), "{error}");
}

#[test]
fn ended_oracle_is_an_error() {
    let mut ended = Oracle::start(Path::new("head"), "-c0").unwrap();
    ended.ask::<Value>("77", &json!({})).unwrap_err();
}

#[test]
fn a_seed_gives_the_numbers_that_the_algorithm_s_authors_give() {
    let mut rng = Rng::new(1_234_567);
    let numbers = [(); 3].map(|()| rng.below(usize::MAX));
    assert_eq!(
        numbers,
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
    );
}
