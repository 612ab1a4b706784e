use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::replay::NoObserver;

#[derive(Parser)]
struct Whole {
    #[command(flatten)]
    args: SimArgs,
}

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file)
}

fn run_on(nodes: &Path, pods: &Path, line: &str) -> Result<String, SimError> {
    let mut words = vec!["sim", "replay", "--nodes", nodes.to_str().unwrap(), "--pods"];
    words.push(pods.to_str().unwrap());
    words.extend(line.split_whitespace());
    let SimCommand::Replay(args) = Whole::try_parse_from(words).unwrap().args.command else {
        panic!("not replay")
    };
    let mut out = Vec::new();
    replay(&args, &NoObserver, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn small(line: &str) -> Result<String, SimError> {
    run_on(&data("small_nodes.csv"), &data("small_pods.csv"), line)
}

fn json(line: &str) -> Value {
    serde_json::from_str(&small(&format!("--format json {line}")).unwrap()).unwrap()
}

#[test]
fn json_has_its_fields() {
    let report = json("--policy fgd,octavo --seed 42..43");
    assert_eq!(report["apiVersion"], "cli.octavo.dev/v1alpha1");
    assert_eq!(report["kind"], "Replay");
    assert_eq!((&report["order"], &report["inflate"]), (&"shuffled".into(), &1.3.into()));
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    for run in runs {
        let fields = [
            "policy",
            "popularity",
            "seed",
            "nodes",
            "pods",
            "allocated_ratio",
            "allocated_ratio_published",
            "first_skip",
            "first_skip_any",
            "allocated_at_0_9",
            "accepted_multi_gpu",
            "accepted",
            "idle_gpus",
            "unused_gpus",
            "fragmentation",
            "fragmentation_at_0_9",
            "placement_hash",
            "valid",
            "violation",
            "decision_us_p50",
            "decision_us_p99",
            "decision_us_mean",
            "wall_time_s",
        ];
        for field in fields {
            assert!(run.get(field).is_some(), "{field} is missing");
        }
        assert_eq!(run["valid"], true);
        assert_eq!(run["nodes"], 4);
        let ratio = run["allocated_ratio"].as_f64().unwrap();
        assert!(ratio > 0.5 && ratio <= 1.0);
        assert_eq!(run["placement_hash"].as_str().unwrap().len(), 64);
    }
    assert_eq!((&runs[0]["policy"], &runs[0]["popularity"]), (&"fgd".into(), &"known".into()));
    assert_eq!((&runs[3]["policy"], &runs[3]["seed"]), (&"octavo".into(), &43.into()));
    let summary = &report["policies"][1];
    assert_eq!((&summary["policy"], &summary["runs"]), (&"octavo".into(), &2.into()));
    let mean = summary["figures"]["allocated_ratio"]["mean"].as_f64().unwrap();
    let of = |run: &Value| run["allocated_ratio"].as_f64().unwrap();
    assert!((mean - f64::midpoint(of(&runs[2]), of(&runs[3]))).abs() < 1e-12);
    assert_eq!(summary["published"], Value::Null, "this is not the published list");
}

#[test]
fn departures_use_creation_order_and_add_sums_over_time() {
    let report = json("--policy best-fit --departures");
    assert_eq!(report["order"], "created");
    assert_eq!(report["inflate"], Value::Null);
    let sums = &report["runs"][0]["over_time"];
    assert_eq!(sums["seconds"], 1000);
    assert!(sums["given_ratio"].as_f64().unwrap() > 0.5);
    assert!(sums["gpu_seconds_given"].as_f64() <= sums["gpu_seconds_wanted"].as_f64());
}

#[test]
fn the_table_has_a_line_for_each_run_and_policy() {
    let table = small("--policy fgd,random --seed 1..2").unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("4 nodes, 8 GPUs; "), "{table}");
    assert!(lines[2].starts_with("POLICY"), "{table}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("fgd ")).count(), 3, "{table}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("random ")).count(), 3, "{table}");
    assert!(lines.iter().any(|line| line.contains("PUBLISHED%")), "{table}");
}

#[test]
fn curves_and_placements_go_to_files() {
    let folder = TempDir::new().unwrap();
    let (curve, placements) = (folder.path().join("c.csv"), folder.path().join("p.csv"));
    let line = format!(
        "--policy packing --seed 5,6 --inflate none --curve {} --placements {}",
        curve.display(),
        placements.display()
    );
    small(&line).unwrap();
    let text = std::fs::read_to_string(&placements).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "policy,popularity,seed,pod,node,gpus,gpu_milli");
    assert_eq!(lines.len(), 1 + 2 * 12);
    assert!(lines[1].starts_with("packing,,5,small-pod-"));
    let text = std::fs::read_to_string(&curve).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let wanted: Vec<f64> =
        reader.records().map(|record| record.unwrap()[4].parse().unwrap()).collect();
    assert!(wanted.len() > 10);
    assert!((wanted.last().unwrap() - 1.5125).abs() < 1e-9, "{wanted:?}");
}

#[test]
fn files_that_cannot_be_read_or_written_are_named() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing.csv");
    let error = run_on(&missing, &data("small_pods.csv"), "").unwrap_err();
    assert!(error.to_string().contains("missing.csv: cannot be read"), "{error}");
    assert!(!error.is_usage());
    let error = run_on(&data("small_nodes.csv"), &missing, "").unwrap_err();
    assert!(error.to_string().contains("missing.csv: cannot be read"), "{error}");
    let nowhere = folder.path().join("no/folder.csv");
    let error = small(&format!("--curve {}", nowhere.display())).unwrap_err();
    assert!(error.to_string().contains("no/folder.csv cannot be written"), "{error}");
}

#[test]
fn options_that_contradict_one_another_are_wrong_usage() {
    assert!(small("--departures --order shuffled").unwrap_err().is_usage());
    assert!(small("--departures --inflate 1.3").unwrap_err().is_usage());
    assert!(small("--order file --inflate 2").unwrap_err().is_usage());
    assert!(small("--order file --inflate none").is_ok());
}

/// A command of the simulator that fails.
fn failed(line: &str) -> SimError {
    let words = line.split_whitespace();
    let args = Whole::try_parse_from(words).unwrap().args;
    run(&args, String::new()).unwrap_err()
}

#[test]
fn impossible_flags_are_wrong_usage_in_every_command() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (nodes, pods) = (data("small_nodes.csv"), data("small_pods.csv"));
    let lists = format!("--nodes {} --pods {}", nodes.display(), pods.display());
    let page = format!("--out {}", at("r.html"));
    for line in [
        "sim generate --machine t4-2,t4-2".to_owned(),
        "sim generate --machine t4-2,h100-8 --blocks 1".to_owned(),
        "sim generate --blocks 100000 --racks 100000".to_owned(),
        "sim generate --out cluster.txt".to_owned(),
        format!("sim generate --pods-csv {} --load 0", at("p.csv")),
        format!(
            "sim generate --pods-csv {} --load 100 --hours 100000 --mean-minutes 1",
            at("p.csv")
        ),
        format!("sim report {lists} {page} --departures --inflate 2"),
        "sim whatif --cluster none.yaml".to_owned(),
        "sim whatif --cluster none.txt --waiting all".to_owned(),
        "sim verify none.txt".to_owned(),
    ] {
        let error = failed(&line);
        assert!(error.is_usage(), "{line}: {error}");
    }
    for line in [
        format!("sim generate --out {}", at("no/folder.yaml")),
        format!("sim report {lists} --out {} --policy random --seed 1", at("no/folder.html")),
        format!("sim report --from {} {page}", at("none.json")),
        "sim whatif --cluster none.yaml --waiting all".to_owned(),
        "sim verify none.json".to_owned(),
    ] {
        let error = failed(&line);
        assert!(!error.is_usage(), "{line}: {error}");
    }
}

/// Standard output with a closed reader.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn broken_pipe_differs_from_an_unwritable_file() {
    let words = format!(
        "sim replay --nodes {} --pods {} --policy random",
        data("small_nodes.csv").display(),
        data("small_pods.csv").display()
    );
    let args = Whole::try_parse_from(words.split_whitespace()).unwrap().args;
    let SimCommand::Replay(args) = args.command else { panic!("not replay") };
    let error = replay(&args, &NoObserver, &mut Closed).unwrap_err();
    assert_eq!(error.output().unwrap().kind(), io::ErrorKind::BrokenPipe);
    let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
    let of_report = report::args::ReportError::Output(closed());
    let whatif = whatif::args::WhatifCommandError::Output(closed());
    let generate = generate::args::GenerateCommandError::Output(closed());
    for error in [SimError::from(of_report), whatif.into(), generate.into()] {
        assert!(error.output().is_some(), "{error}");
    }
    let file = SimError::file(Path::new("/tmp/fifo"), closed());
    assert!(file.output().is_none());
    let page = crate::document::DocumentError::Write { path: "fifo".into(), source: closed() };
    let page = SimError::from(report::args::ReportError::from(page));
    assert!(page.output().is_none());
}
