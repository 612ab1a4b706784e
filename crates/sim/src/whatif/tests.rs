use octavo_engine::explain::Explanation;

use super::args::{self, AnswerFormat, GangArgs, VerifyArgs, WhatifArgs, WhatifCommandError};
use super::inline::{self, InlineError};
use super::record::{Record, Verdict};
use super::*;
use crate::document::{self, DocumentFormat};

/// Two racks of two nodes with two GPUs each. `old` has node a1 and a GPU of a2, `low` both GPUs of
/// b1: three GPUs are free, no rack has two free nodes.
const CLUSTER: &str = r#"{
  "version": 1,
  "synthetic": true,
  "levels": [{"name": "rack", "label": "rack"}],
  "models": [{"name": "H100", "memoryMib": 80000, "idleWatts": 70, "fullWatts": 700}],
  "classes": {"small": {"capacity": {"cpuMilli": 32000, "memoryMib": 256000, "pods": 110},
    "gpus": 2, "model": "H100", "centsPerHour": 600, "hazardPpm": 100}},
  "nodes": [
    {"name": "a1", "class": "small", "labels": {"rack": "a"}},
    {"name": "a2", "class": "small", "labels": {"rack": "a"}},
    {"name": "b1", "class": "small", "labels": {"rack": "b"}},
    {"name": "b2", "class": "small", "labels": {"rack": "b"}}
  ],
  "tenants": {"blue": 2},
  "running": [
    {"profile": {"name": "old", "priority": 50, "preferred": "rack"}, "minMembers": 3,
     "shapes": [{"resources": {"cpuMilli": 1000, "pods": 1}, "gpus": {"whole": {"count": 1}}}],
     "members": [
       {"rank": 0, "node": "a1", "gpus": [{"gpu": 0, "milli": 1000, "memoryMib": 80000}]},
       {"rank": 1, "node": "a1", "gpus": [{"gpu": 1, "milli": 1000, "memoryMib": 80000}]},
       {"rank": 2, "node": "a2", "gpus": [{"gpu": 0, "milli": 1000, "memoryMib": 80000}]}]},
    {"profile": {"name": "low", "priority": -5},
     "shapes": [{"resources": {"cpuMilli": 1000, "pods": 1}, "gpus": {"whole": {"count": 2}}}],
     "members": [{"rank": 0, "node": "b1", "gpus": [
       {"gpu": 0, "milli": 1000, "memoryMib": 80000}, {"gpu": 1, "milli": 1000, "memoryMib": 80000}]}]}
  ],
  "waiting": [
    {"profile": {"name": "first"}, "groups": [{"name": "w", "count": 1,
      "shape": {"gpus": {"whole": {"count": 2}}}}]},
    {"profile": {"name": "second"}, "groups": [{"name": "w", "count": 1,
      "shape": {"gpus": {"whole": {"count": 2}}}}]}
  ]
}"#;

fn cluster() -> Snapshot {
    document::parse(CLUSTER, DocumentFormat::Json).unwrap()
}

/// A gang of members with `gpus` GPUs each.
fn gang(name: &str, count: u32, gpus: u16) -> GangArgs {
    GangArgs {
        name: Some(name.to_owned()),
        count,
        gpus: Some(gpus),
        tenant: "blue".to_owned(),
        ..GangArgs::default()
    }
}

fn question(gang: &GangArgs) -> Question {
    Question { gangs: vec![inline::gang(gang).unwrap().unwrap()], ..Question::default() }
}

fn ask(question: &Question) -> Answers {
    answer(&cluster(), question).unwrap()
}

/// Nodes of the only answer, by rank.
fn nodes(answers: &Answers) -> Vec<&str> {
    match &answers.answers[0].explanation {
        Explanation::Placed(plan) => {
            plan.placements.iter().map(|placed| placed.place.node.as_str()).collect()
        }
        Explanation::Refused(refusal) => panic!("{}", refusal.message),
    }
}

#[test]
fn what_fits_gets_places_and_a_price() {
    let answers = ask(&question(&gang("new", 3, 1)));
    assert!(answers.is_yes() && answers.synthetic);
    assert_eq!(nodes(&answers).len(), 3);
    let lines = answers.lines().join("\n");
    assert!(lines.starts_with("new: 3 pods go to 2 nodes"), "{lines}");
    assert!(lines.contains("costs") && lines.contains("policy default"), "{lines}");
}

#[test]
fn refusal_has_a_bound_and_a_remedy() {
    let answers = ask(&question(&gang("new", 4, 1)));
    assert!(!answers.is_yes());
    let Explanation::Refused(refusal) = &answers.answers[0].explanation else { panic!() };
    assert!(refusal.message.contains('4') && refusal.message.contains('3'), "{}", refusal.message);
    assert!(refusal.remedy.is_some());
    let lines = answers.lines().join("\n");
    assert!(lines.contains("it would help to ask for at most 3 members"), "{lines}");
}

#[test]
fn a_required_level_is_kept() {
    let required = GangArgs { required: Some("rack".to_owned()), ..gang("new", 2, 1) };
    assert_eq!(nodes(&ask(&question(&required))), ["b2", "b2"]);
    let three = GangArgs { count: 3, ..required };
    let answers = ask(&question(&three));
    assert!(!answers.is_yes(), "{:?}", answers.lines());
    let unknown = GangArgs { required: Some("row".to_owned()), ..gang("new", 2, 1) };
    let error = answer(&cluster(), &question(&unknown)).unwrap_err().to_string();
    assert!(error.contains("no level named \"row\"; there are: cluster, rack"), "{error}");
}

#[test]
fn evictions_and_moves_are_offered_and_done_only_when_allowed() {
    let two_nodes = GangArgs { required: Some("rack".to_owned()), ..gang("new", 2, 2) };
    let asked = question(&two_nodes);
    let answers = ask(&asked);
    assert!(!answers.is_yes());
    let help = answers.answers[0].disturbance.as_ref().unwrap();
    assert!(
        matches!(help, Remedy::Evictions { workloads, .. } if workloads == &["low"]),
        "{help:?}"
    );
    let lines = answers.lines().join("\n");
    assert!(lines.contains("evict 1 running pod of low"), "{lines}");

    let answers = ask(&Question { evictions: true, ..asked.clone() });
    assert_eq!(nodes(&answers), ["b1", "b2"]);
    assert!(answers.lines().join("\n").contains("evicts low rank 0 from node b1"));

    // Moving one pod is not enough for two nodes of one rack with two members each.
    let answers = ask(&Question { moves: 1, ..asked.clone() });
    assert!(!answers.is_yes());
    let text = r#"{"name": "still", "order": [{"unit": "hops"}], "preemption": false}"#;
    let policy = document::parse(text, DocumentFormat::Json).unwrap();
    let answers = ask(&Question { policy, evictions: true, ..asked });
    assert!(!answers.is_yes() && answers.answers[0].disturbance.is_none());
}

#[test]
fn policy_limit_is_named_with_the_value_needed() {
    let text = r#"{"name": "frugal", "order": [{"unit": "hops"}], "constraints": {"maxCentsPerHour": 1600}}"#;
    let policy = document::parse(text, DocumentFormat::Json).unwrap();
    let answers = ask(&Question { policy, ..question(&gang("new", 1, 2)) });
    let lines = answers.lines().join("\n");
    assert!(!answers.is_yes() && answers.answers[0].disturbance.is_none(), "{lines}");
    assert!(lines.contains("at most 1600 cents per hour"), "{lines}");

    let text = r#"{"name": "spare", "order": [{"unit": "hops"}], "constraints": {"spares": [{"nodes": 1}]}}"#;
    let policy: PlacementPolicy = document::parse(text, DocumentFormat::Json).unwrap();
    let spared =
        |gpus| ask(&Question { policy: policy.clone(), ..question(&gang("new", 1, gpus)) });
    assert_eq!(nodes(&spared(1)), ["a2"]);
    let lines = spared(2).lines().join("\n");
    assert!(lines.contains("spare nodes") && !lines.contains("move 0"), "{lines}");
}

#[test]
fn members_of_failed_nodes_are_put_beside_those_that_stay() {
    let fail = Question { fail: vec!["a2".to_owned()], ..Question::default() };
    let answers = ask(&fail);
    let Explanation::Placed(plan) = &answers.answers[0].explanation else { panic!() };
    assert_eq!((plan.request.as_str(), plan.placements.len()), ("old", 1));
    assert_eq!((plan.placements[0].rank, nodes(&answers)), (2, vec!["b2"]));

    // Only rank 2 remains; one GPU is free on its node.
    let fail = Question { fail: vec!["a1".to_owned(), "b2".to_owned()], ..Question::default() };
    let answers = ask(&fail);
    assert!(!answers.is_yes(), "{:?}", answers.lines());

    // A gang is placed elsewhere.
    let asked = Question { fail: vec!["b2".to_owned()], ..question(&gang("new", 1, 2)) };
    assert!(!ask(&asked).is_yes());

    let unknown = Question { fail: vec!["A2".to_owned()], ..Question::default() };
    let error = answer(&cluster(), &unknown).unwrap_err().to_string();
    assert_eq!(error, "there is no node \"A2\"; did you mean \"a2\"?");
}

/// The cluster, with `old` lacking its member of rank 1 and needing `min_members`.
fn with_a_gap(min_members: u32) -> Snapshot {
    let mut cluster = cluster();
    let old = &mut cluster.running[0];
    old.min_members = min_members;
    old.members.remove(1);
    old.members[1].rank = 4;
    cluster
}

/// Rank and node of all placements of the only answer.
fn places(answers: &Answers) -> Vec<(u32, &str)> {
    let Explanation::Placed(plan) = &answers.answers[0].explanation else {
        panic!("{:?}", answers.lines())
    };
    plan.placements.iter().map(|placed| (placed.rank, placed.place.node.as_str())).collect()
}

#[test]
fn a_gang_with_gaps_wants_back_what_it_had_and_no_more() {
    // Two of five ranks run, on a1 and a2. After one of them fails, three GPUs remain. Four members
    // would need more nodes' GPUs than there are beside it.
    let fail = |node: &str| Question { fail: vec![node.to_owned()], ..Question::default() };
    let answers = answer(&with_a_gap(1), &fail("a2")).unwrap();
    assert_eq!(places(&answers), [(4, "a1")], "beside the other, under the rank that it had");
    let answers = answer(&with_a_gap(1), &fail("a1")).unwrap();
    assert_eq!(places(&answers), [(0, "a2")]);
    // The requested members are the former ones, and the refusal counts them.
    let both = Question { fail: vec!["a1".into(), "a2".into(), "b2".into()], ..fail("a1") };
    let answers = answer(&with_a_gap(1), &both).unwrap();
    assert!(answers.lines()[0].contains("2 wanted"), "{:?}", answers.lines());
}

#[test]
fn a_gang_that_lost_members_gets_at_least_as_many_as_it_needs() {
    // The gang needs three members, so the first missing rank is requested too.
    let fail = Question { fail: vec!["b1".into(), "a2".into()], ..Question::default() };
    let answers = answer(&with_a_gap(3), &fail).unwrap();
    let ranks: Vec<u32> = places(&answers).iter().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, [1, 4]);
}

#[test]
fn members_on_a_closed_node_are_not_lost() {
    let mut cluster = cluster();
    cluster.nodes[0].closed = true;
    let fail = Question { fail: vec!["a2".to_owned()], ..Question::default() };
    let answers = answer(&cluster, &fail).unwrap();
    assert_eq!(places(&answers), [(2, "b2")]);
}

#[test]
fn later_gangs_see_earlier_placements() {
    let waiting = Question { gangs: cluster().waiting, ..Question::default() };
    let answers = ask(&waiting);
    let is_yes =
        |index: usize| matches!(answers.answers[index].explanation, Explanation::Placed(_));
    assert!(is_yes(0) && !is_yes(1), "only one node is free: {:?}", answers.lines());
    assert!(answers.lines().contains(&String::new()), "a line between two answers");
}

#[test]
fn invalid_questions_are_reported() {
    let error = |question: &Question| answer(&cluster(), question).unwrap_err().to_string();
    assert!(error(&Question::default()).contains("the question is empty"));
    assert!(error(&question(&gang("old", 1, 1))).contains("\"old\" runs already"));
    let text = r#"{"name": "tight", "order": [{"unit": "hops"}], "constraints": {"maxWatts": 1}}"#;
    let policy = document::parse(text, DocumentFormat::Json).unwrap();
    let asked = Question { policy, ..question(&gang("new", 1, 1)) };
    assert!(error(&asked).contains("is invalid for this cluster"));

    let wrong = |args: GangArgs| inline::gang(&args).unwrap_err().to_string();
    let share = GangArgs { milli: Some(250), ..gang("x", 1, 1) };
    let both = GangArgs { mig: Some("1g.10gb".to_owned()), ..share.clone() };
    assert_eq!(wrong(both), InlineError::ShareAndMig.to_string());
    assert!(wrong(GangArgs { gpus: None, ..share }).contains("--milli sets the part of a GPU"));
    assert!(wrong(GangArgs { min: Some(3), ..gang("x", 2, 1) }).contains("--min 3 is more than"));
    for text in ["2", "@rack", "0@rack", "2@", "x@rack"] {
        let args = GangArgs { segment: Some(text.to_owned()), ..gang("x", 2, 1) };
        assert!(wrong(args).contains("not a segment"), "{text}");
    }
    assert_eq!(inline::gang(&GangArgs::default()).unwrap(), None);
}

#[test]
fn a_record_holds_or_says_what_was_changed() {
    let asked = question(&gang("new", 3, 1));
    let answers = ask(&asked);
    let record = Record::of(cluster(), asked, answers);
    assert_eq!(record.verify().unwrap(), Verdict::Same);

    let mut other = record.clone();
    other.cluster.nodes[3].closed = true;
    assert!(matches!(other.verify().unwrap(), Verdict::QuestionChanged { .. }));
    // A changed question with a changed hash is detected by the answer.
    other.answer.asked = asked_hash(&other);
    assert!(matches!(other.verify().unwrap(), Verdict::Differs { .. }));

    let mut other = record.clone();
    let Explanation::Placed(plan) = &mut other.answer.answers[0].explanation else { panic!() };
    plan.placements[0].place.node = "a1".to_owned();
    assert_eq!(other.verify().unwrap(), Verdict::AnswerChanged);

    let error = Record { version: 7, ..record }.verify().unwrap_err().to_string();
    assert!(error.contains("of version 7"), "{error}");
}

fn asked_hash(record: &Record) -> String {
    asked(&record.cluster, &record.question).unwrap()
}

#[test]
fn the_command_asks_repeats_and_records() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("cluster.json"), CLUSTER).unwrap();
    let args = WhatifArgs {
        cluster: file("cluster.json"),
        gangs: Vec::new(),
        inline: gang("new", 2, 1),
        waiting: Vec::new(),
        policy: None,
        allow_moves: 0,
        allow_evictions: false,
        packing: false,
        fail: Vec::new(),
        format: AnswerFormat::Text,
        out_plan: Some(file("plan.yaml")),
        repeat: Some(3),
        record: Some(file("record.json")),
    };
    let run = |args: &WhatifArgs| {
        let mut out = Vec::new();
        args::run(args, &mut out).map(|is_yes| (is_yes, String::from_utf8(out).unwrap()))
    };
    let (is_yes, text) = run(&args).unwrap();
    let hashes: Vec<&str> = text.lines().collect();
    assert!(is_yes && hashes.len() == 3 && hashes[0].len() == 64 && hashes[0] == hashes[2]);
    let plan: Answers = document::read(&file("plan.yaml"), "plan").unwrap();
    assert_eq!(plan.hash, hashes[0]);

    let verify = VerifyArgs { record: file("record.json") };
    let mut out = Vec::new();
    args::verify(&verify, &mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().starts_with("same answer, bit for bit"));
    let text = std::fs::read_to_string(file("record.json")).unwrap();
    let changed = text.replacen("\"cpuMilli\": 32000", "\"cpuMilli\": 31000", 1);
    assert_ne!(text, changed);
    std::fs::write(file("record.json"), changed).unwrap();
    let error = args::verify(&verify, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("cluster or question was changed"), "{error}");

    let json = WhatifArgs { repeat: None, format: AnswerFormat::Json, ..args.clone() };
    let (_, text) = run(&json).unwrap();
    assert_eq!(document::parse::<Answers>(&text, DocumentFormat::Json).unwrap(), plan);
    let all = WhatifArgs {
        inline: GangArgs::default(),
        waiting: vec!["all".to_owned()],
        repeat: None,
        ..args.clone()
    };
    assert!(!run(&all).unwrap().0);
    let unknown = WhatifArgs { waiting: vec!["third".to_owned()], ..all };
    let error = run(&unknown).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no gang named \"third\" waits in the cluster; waiting gangs: first, second")
    );
    assert!(!error.is_usage());
}

#[test]
fn empty_question_error_names_the_flags_or_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.json");
    let text = serde_json::to_string(&Snapshot { waiting: Vec::new(), ..cluster() }).unwrap();
    std::fs::write(&path, text).unwrap();
    let args = WhatifArgs { cluster: path, ..WhatifArgs::default() };
    let error = |args: &WhatifArgs| args::run(args, &mut Vec::new()).unwrap_err();
    let text_and_usage = |error: &WhatifCommandError| (error.to_string(), error.is_usage());

    let (text, is_usage) = text_and_usage(&error(&args));
    assert!(is_usage && text.starts_with("the question is empty: name a gang"), "{text}");
    // The error does not depend on the files, which are not even opened.
    let nowhere = WhatifArgs { cluster: folder.path().join("no.json"), ..WhatifArgs::default() };
    assert!(error(&nowhere).is_usage());

    let fail = WhatifArgs { fail: vec!["b2".to_owned()], ..args.clone() };
    let (text, is_usage) = text_and_usage(&error(&fail));
    assert_eq!(text, "nothing runs on b2, so nothing is lost; name other nodes or a gang");
    assert!(!is_usage);
    let all = WhatifArgs { waiting: vec!["all".to_owned()], ..args };
    for fail in [Vec::new(), vec!["a1".to_owned()]] {
        let (text, is_usage) = text_and_usage(&error(&WhatifArgs { fail, ..all.clone() }));
        assert!(text.starts_with("no gang waits in the cluster"), "{text}");
        assert!(!is_usage);
    }
}

#[test]
fn unknown_file_extension_is_wrong_usage_but_bad_content_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.json");
    std::fs::write(&path, "{").unwrap();
    let args = WhatifArgs { cluster: path, inline: gang("new", 1, 1), ..WhatifArgs::default() };
    let is_usage = |args: &WhatifArgs| args::run(args, &mut Vec::new()).unwrap_err().is_usage();
    assert!(!is_usage(&args));
    assert!(is_usage(&WhatifArgs { cluster: "cluster.txt".into(), ..args.clone() }));
    assert!(is_usage(&WhatifArgs { record: Some("record".into()), ..args }));
    let verify = |name: &str| {
        let args = VerifyArgs { record: folder.path().join(name) };
        args::verify(&args, &mut Vec::new()).unwrap_err().is_usage()
    };
    assert!(verify("record.txt") && !verify("record.json") && !verify("cluster.json"));
}

/// The documents that the guide shows.
#[test]
fn the_examples_are_what_they_say() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sim");
    let cluster: Snapshot = document::read(&folder.join("cluster.yaml"), "cluster").unwrap();
    let gang = document::read(&folder.join("gang.yaml"), "gang").unwrap();
    let policy: PlacementPolicy = document::read(&folder.join("policy.yaml"), "policy").unwrap();
    let asked = Question { gangs: vec![gang], ..Question::default() };
    let answers = answer(&cluster, &asked).unwrap();
    assert!(!answers.is_yes() && answers.answers[0].disturbance.is_some());
    let answers = answer(&cluster, &Question { moves: 1, ..asked }).unwrap();
    let nodes_with_a_move = nodes(&answers);
    assert!(nodes_with_a_move.iter().all(|node| node.starts_with('b')), "{nodes_with_a_move:?}");
    let waiting = Question { gangs: cluster.waiting.clone(), ..Question::default() };
    assert_eq!(nodes(&answer(&cluster, &waiting).unwrap()), ["a3", "a4"]);
    // One rack would be nearer, but then it would have no node to spare.
    assert_eq!(nodes(&answer(&cluster, &Question { policy, ..waiting }).unwrap()), ["a3", "b1"]);
}
