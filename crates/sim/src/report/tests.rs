use std::path::{Path, PathBuf};

use super::input::Input;
use super::page;
use crate::output::{self, Report};
use crate::replay::{self, NoObserver, Options, Order, Policy, ReplayResults};
use crate::trace::Trace;

fn lists() -> (PathBuf, PathBuf) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    (folder.join("small_nodes.csv"), folder.join("small_pods.csv"))
}

fn outcome(options: &Options) -> (Trace, ReplayResults) {
    let (nodes, pods) = lists();
    let trace = Trace::read(&nodes, &pods).unwrap();
    let outcome = replay::run(&trace, options, &NoObserver).unwrap();
    (trace, outcome)
}

fn options() -> Options {
    let policies = vec![Policy::BestFit, Policy::Fgd];
    Options { policies, seeds: vec![1, 2], ..Options::default() }
}

fn input(pods: &str, options: &Options) -> Input {
    let (trace, outcome) = outcome(options);
    let report = Report::of(&trace, Path::new("nodes.csv"), Path::new(pods), options, &outcome);
    Input::of(&report, &outcome, "octavo sim report".to_owned()).unwrap()
}

/// Checks that tags are balanced and attributes are quoted, as a strict parser requires. Void
/// elements of HTML are exempt.
fn assert_well_formed(html: &str) {
    const VOID: [&str; 1] = ["meta"];
    let body = html.strip_prefix("<!DOCTYPE html>\n").unwrap();
    let (before, rest) = body.split_once("<style>").unwrap();
    let (style, after) = rest.split_once("</style>").unwrap();
    assert!(!style.contains('<'), "a style sheet without markup");
    let mut open: Vec<&str> = Vec::new();
    let text = format!("{before}{after}");
    let mut rest = text.as_str();
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "a stray > in {:?}", &rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn the_page_holds_curves_and_figures_and_needs_nothing_else() {
    let html = page(&input("openb_pod_list_default.csv", &options()));
    assert_well_formed(&html);
    for policy in ["best-fit", "fgd"] {
        let row = format!("<th scope=\"row\">{policy}</th>");
        let (_, figures) = html.split_once("<caption><span>Figures of each policy").unwrap();
        let (figures, _) = figures.split_once("</table>").unwrap();
        assert_eq!(figures.matches(&row).count(), 1, "{policy}");
    }
    assert_eq!(html.matches("<svg viewBox=\"0 0 480").count(), 3, "allocated, enlarged, fragments");
    assert_eq!(html.matches("role=\"img\"").count(), html.matches("<desc").count());
    assert_eq!(html.matches("<table>").count(), html.matches("<caption>").count());
    for outside in ["http", "<script", "<link", "<img", "url(", "@import", "src="] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(!html.contains("NaN") && !html.contains("inf"), "numbers are numbers");
    assert!(html.contains("<dt>Seeds</dt><dd>1, 2</dd>"));
}

#[test]
fn names_from_outside_are_only_text() {
    let hostile = "x\"'><script>alert(1)</script>&\u{202e}.csv";
    let mut input = input(hostile, &options());
    input.command = "octavo sim report --pods '<b>'".to_owned();
    input.saved.runs[0].valid = false;
    input.saved.runs[0].violation = Some("<i>pod</i>".to_owned());
    let html = page(&input);
    assert_well_formed(&html);
    for raw in ["<script", "<b>", "<i>", "\u{202e}"] {
        assert!(!html.contains(raw), "{raw}");
    }
    assert!(html.contains("x&quot;&#39;&gt;&lt;script&gt;"));
    input.command = "octavo sim report --out 'a  b\nc'".to_owned();
    let html = page(&input);
    assert!(html.contains("--out &#39;a  b\nc&#39;</code>"), "as it is to be pasted");
    assert!(html.contains("NO: &lt;i&gt;pod&lt;/i&gt;") && html.contains("role=\"alert\""));
}

#[test]
fn saved_runs_give_the_page_that_fresh_ones_give() {
    let (trace, outcome) = outcome(&options());
    let (nodes, pods) = lists();
    let report = Report::of(&trace, &nodes, &pods, &options(), &outcome);
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (folder.path().join("replay.json"), folder.path().join("curve.csv"));
    std::fs::write(&json, report.json().unwrap()).unwrap();
    let mut curves = Vec::new();
    output::write_curves(&outcome, &mut curves).unwrap();
    std::fs::write(&csv, curves).unwrap();
    let saved = Input::read(&json, Some(&csv), "same".to_owned()).unwrap();
    let fresh = Input::of(&report, &outcome, "same".to_owned()).unwrap();
    assert_eq!(page(&saved), page(&fresh));

    let bare = page(&Input::read(&json, None, String::new()).unwrap());
    assert!(bare.contains("saved without their curves"));
    assert_well_formed(&bare);
}

#[test]
fn files_of_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (trace, outcome) = outcome(&options());
    let report = Report::of(&trace, Path::new("n"), Path::new("p"), &options(), &outcome);
    let json = report.json().unwrap();
    let good = file("good.json", &json);
    let read = |report: &Path, curve: Option<&Path>| {
        Input::read(report, curve, String::new()).unwrap_err().to_string()
    };
    let missing = read(&folder.path().join("none.json"), None);
    assert!(missing.contains("none.json cannot be read"), "{missing}");
    let other = read(&file("a.json", "{\"apiVersion\": \"x\"}"), None);
    assert!(other.contains("is not an output of `octavo sim replay --format json`"), "{other}");
    let kind = json.replacen("\"Replay\"", "\"Top\"", 1);
    let kind = read(&file("b.json", &kind), None);
    assert!(kind.contains("Top, not"), "{kind}");
    let curve = file("c.csv", "a,b\n1,2\n");
    assert!(read(&good, Some(&curve)).contains("is not an output of `octavo sim replay --curve`"));
    let header = "policy,popularity,seed,time_s,wanted,allocated,fragmentation,skipped\n";
    let curve = file("d.csv", &format!("{header}fgd,known,9,,0.5,0.5,0.1,0\n"));
    assert!(read(&good, Some(&curve)).contains("lack the run of best-fit with seed 1"));
}

#[test]
fn runs_with_departures_are_drawn_along_time() {
    let options = Options {
        order: Order::Created,
        inflate: None,
        departures: true,
        seeds: vec![1],
        ..options()
    };
    let html = page(&input("pods.csv", &options));
    assert_well_formed(&html);
    assert!(html.contains(">hours</text>") && html.contains("Pods leave at their times"));
    assert!(!html.contains("The last 20 points"));
}

#[derive(Debug, clap::Parser)]
struct Typed {
    #[command(flatten)]
    args: super::args::ReportArgs,
}

#[test]
fn the_command_wants_one_source_and_writes_one_page() {
    use clap::Parser;
    let parse = |words: &[&str]| Typed::try_parse_from([&["report"], words].concat());
    for (words, wanted) in [
        (&["--out", "a.html"][..], "required"),
        (&["--nodes", "n", "--out", "a.html"], "--pods"),
        (&["--from", "f", "--nodes", "n", "--pods", "p", "--out", "a"], "cannot be used with"),
        (&["--nodes", "n", "--pods", "p"], "--out"),
        (&["--nodes", "n", "--pods", "p", "--out", "a", "--policies", "x"], "possible values"),
    ] {
        let message = parse(words).unwrap_err().to_string();
        assert!(message.contains(wanted), "{words:?}: {message}");
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let (nodes, pods) = lists();
    let words = [
        "--nodes",
        nodes.to_str().unwrap(),
        "--pods",
        pods.to_str().unwrap(),
        "--policies",
        "best-fit,fgd",
        "--seeds",
        "1..2",
        "--out",
        page.to_str().unwrap(),
    ];
    let args = parse(&words).unwrap().args;
    let mut out = Vec::new();
    super::args::run(&args, "octavo sim report".to_owned(), &NoObserver, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.ends_with("report.html: 4 runs of 2 policies\n"), "{text}");
    assert_well_formed(&std::fs::read_to_string(&page).unwrap());
}
