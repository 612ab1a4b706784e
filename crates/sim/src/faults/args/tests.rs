use clap::Parser;
use serde_json::Value;

use super::*;

#[derive(Parser)]
struct Whole {
    #[command(flatten)]
    args: FaultsArgs,
}

const SMALL: &str = "{fleet: {servers: 120, spares: 4, parents: []}, job: {servers: 100, standbys: 4, \
     length: {elapsed: 20d}}, failures: {perDay: 0.02}}";

fn run_with(study: &str, line: &str) -> Result<String, FaultsError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.yaml");
    std::fs::write(&path, study).unwrap();
    let line = line.replace("FOLDER", folder.path().to_str().unwrap());
    let mut words = vec!["faults"];
    words.extend(line.split_whitespace());
    words.extend(["--study", path.to_str().unwrap()]);
    let args = Whole::try_parse_from(words).unwrap().args;
    let mut out = Vec::new();
    run(&args, "octavo sim faults <typed>", &mut out)?;
    let mut text = String::from_utf8(out).unwrap();
    if let Ok(page) = std::fs::read_to_string(folder.path().join("page.html")) {
        text.push_str(&page);
    }
    Ok(text)
}

#[test]
fn a_run_has_a_row_for_each_policy() {
    let text = run_with(SMALL, "run --seed 1..3").unwrap();
    assert!(
        text.starts_with("a job on 100 of 120 servers with 8 GPUs each, 4 spares, 20d; 3 seeds\n")
    );
    for policy in Policy::value_variants() {
        assert!(text.lines().any(|line| line.starts_with(&format!("{policy} "))), "{policy}");
    }
    let few = run_with(SMALL, "run --seed 1 --policy octavo,oracle,octavo").unwrap();
    assert_eq!(few.lines().count(), 5, "{few}");
}

#[test]
fn output_does_not_depend_on_threads() {
    let text = |jobs: &str| run_with(SMALL, &format!("run --seed 1..3 -o json --jobs {jobs}"));
    assert_eq!(text("1").unwrap(), text("4").unwrap());
}

#[test]
fn json_has_the_study_and_its_figures() {
    let text = run_with(SMALL, "run --seed 1..2 --policy octavo -o json").unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["apiVersion"], API_VERSION);
    assert_eq!(report["kind"], "Faults");
    assert_eq!(report["study"]["job"]["servers"], 100);
    assert_eq!(report["seeds"], serde_json::json!([1, 2]));
    let policy = &report["policies"][0];
    assert_eq!((&policy["policy"], &policy["ettr"]["runs"]), (&"octavo".into(), &2.into()));
    assert!(policy["ettr"]["mean"].as_f64().unwrap() > 0.5);
}

#[test]
fn a_sweep_names_the_best_and_writes_a_page() {
    let line = "sweep --seed 1..2 --policy octavo,requeue-all,swap-all --wrong-blame 0,0.5 --spares 0 \
                --false-alarms 0.01 --page FOLDER/page.html";
    let text = run_with(SMALL, line).unwrap();
    let (table, page) = text.split_once("<!DOCTYPE html>").unwrap();
    assert!(table.contains(" of 6 cells\n"), "{table}");
    assert_eq!(page.matches("<figure>").count(), 3);
    assert!(page.contains("octavo sim faults &lt;typed&gt;"));
    assert!(!page.contains("<script") && !page.contains("http"));
}

#[test]
fn errors_name_what_is_wrong() {
    let error = |study, line| run_with(study, line).unwrap_err();
    let wrong = error("failures: {perDay: -1}", "run");
    assert!(wrong.to_string().contains("the study makes no sense: failures.perDay is -1"));
    assert!(!wrong.is_usage());
    let wrong = error(SMALL, "sweep --seed 1 --wrong-blame 3");
    assert!(wrong.to_string().contains("failures.wrongBlame is 3"), "{wrong}");
    assert!(error("{job: {length: 3}}", "run").to_string().contains("not a valid study of faults"));
}
