//! Each expression of `testdata/selectors.txt` has the results that Kubernetes 1.36.3's evaluator
//! gives for the same devices. They are in `testdata/selectors.answers.txt`.

use super::devices::samples;
use super::{CelError, DeviceView, Selector};

const EXPRESSIONS: &str = include_str!("../../testdata/selectors.txt");
const ANSWERS: &str = include_str!("../../testdata/selectors.answers.txt");

/// Expressions that fail here and have a result in Kubernetes.
const DIFFERENCES: [(&str, &str); 2] = [
    (r#"google.protobuf.Duration{seconds: 1} == duration("1s")"#, "compile"),
    (r#"quantity("9999999999999999999999999999999999999G").isInteger()"#, "error error error"),
];

/// The expressions, in order.
pub(super) fn expressions() -> impl Iterator<Item = &'static str> {
    EXPRESSIONS.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
}

/// The results for the devices, in one line.
fn answers(expression: &str) -> String {
    let Ok(selector) = Selector::compile(expression) else { return "compile".to_owned() };
    let answer = |view| match selector.matches(view) {
        Ok(true) => "true",
        Ok(false) => "false",
        Err(CelError::TooCostly { .. }) => "cost",
        Err(_) => "error",
    };
    let answers: Vec<&str> = samples()
        .iter()
        .map(|sample| answer(DeviceView { driver: sample.driver, device: &sample.device }))
        .collect();
    answers.join(" ")
}

#[test]
fn answers_are_those_of_kubernetes() {
    let known: Vec<&str> = ANSWERS.lines().collect();
    assert_eq!(known.len(), expressions().count(), "an answer for each expression");
    let mut wrong = Vec::new();
    for (expression, known) in expressions().zip(known) {
        let difference = DIFFERENCES.iter().find(|(different, _)| *different == expression);
        let wanted = difference.map_or(known, |(_, ours)| ours);
        let answers = answers(expression);
        if answers != wanted {
            wrong.push(format!("{expression}\n  wanted {wanted}\n  answer {answers}"));
        }
    }
    assert!(wrong.is_empty(), "{} of them differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn each_difference_is_one() {
    for (different, ours) in DIFFERENCES {
        let known = expressions().zip(ANSWERS.lines()).find(|(known, _)| *known == different);
        assert!(known.is_some_and(|(_, answer)| answer != ours), "{different}");
    }
}
