//! Conditions of shares.

use octavo_api::config::OverflowPolicy;
use octavo_enforcement::backend::BackendKind;
use octavo_enforcement::share::{ShareFinding, Status};
use serde_json::Value;

use super::super::{Fact, Report, ReportedDevice, SwapFact, TimeFact, status_of};
use super::{device, report, share};

#[test]
fn a_share_s_condition_says_what_holds_it_and_what_was_found() {
    let reported_with = |backend, swap, findings| {
        let fact = Fact::Share {
            prepared_at: Some(0),
            backend,
            is_exempt: false,
            overflow: Some(OverflowPolicy::Kill),
            time: TimeFact::default(),
            swap,
            findings,
        };
        let devices = vec![ReportedDevice { fact: Some(fact), ..device() }];
        let status = status_of(&Report { devices, ..report(None) }, jiff::Timestamp::now());
        let conditions = status["status"]["devices"][0]["conditions"].clone();
        let conditions = conditions.as_array().expect("a list").iter();
        let words = conditions.map(|condition| {
            let word = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            format!("{}={} {}", word("type"), word("status"), word("reason"))
        });
        words.collect::<Vec<_>>()
    };
    let reported = |backend, findings| reported_with(backend, None, findings);
    assert_eq!(reported(Some(BackendKind::Guard), vec![]), ["Enforced=True Guard"]);
    assert_eq!(reported(Some(BackendKind::Driver), vec![]), ["Enforced=True Driver"]);
    assert_eq!(reported(Some(BackendKind::Off), vec![]), ["Enforced=False EnforcementOff"]);
    assert_eq!(reported(None, vec![]), ["Enforced=False NoGuard"]);
    let news = |kind, status| {
        let (reason, message) = ("Killed", "has too much".to_owned());
        (ShareFinding { reason, message, condition: Some((kind, status)) }, 5)
    };
    let overflow = news("MemoryOverflow", Status::True);
    let expected = ["Enforced=True Guard", "MemoryOverflow=True Killed"];
    assert_eq!(reported(Some(BackendKind::Guard), vec![overflow.clone()]), expected);
    let blind = news("Enforced", Status::Unknown);
    assert_eq!(reported(Some(BackendKind::Guard), vec![blind]), ["Enforced=Unknown Killed"]);
    let lost = news("Enforced", Status::False);
    let expected = ["MemoryOverflow=True Killed", "Enforced=False Killed"];
    assert_eq!(reported(Some(BackendKind::Guard), vec![overflow, lost]), expected);

    let swap = |has_swap| Some(SwapFact { request: 1 << 30, limit: 2 << 30, has_swap });
    let of_swap = |has_swap, findings| {
        reported_with(Some(BackendKind::Guard), swap(has_swap), findings)[1].clone()
    };
    assert_eq!(of_swap(true, vec![]), "MemorySwap=True Swappable");
    assert_eq!(of_swap(false, vec![]), "MemorySwap=False SwapOff");
    let failed = news("MemorySwap", Status::False);
    assert_eq!(of_swap(true, vec![failed]), "MemorySwap=False Killed");
}

#[test]
fn a_share_s_condition_of_time_says_what_it_has() {
    let reported = |time| {
        let Fact::Share { prepared_at, backend, is_exempt, overflow, swap, findings, .. } =
            share(Some(0))
        else {
            panic!("a share")
        };
        let fact = Fact::Share { prepared_at, backend, is_exempt, overflow, time, swap, findings };
        let devices = vec![ReportedDevice { fact: Some(fact), ..device() }];
        let status = status_of(&Report { devices, ..report(None) }, jiff::Timestamp::now());
        let conditions = status["status"]["devices"][0]["conditions"].as_array().cloned();
        let of_time = |condition: &Value| condition["type"] == "TimeEnforced";
        let found = conditions.into_iter().flatten().find(of_time)?;
        let word = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        Some(format!("{} {}: {}", word("status"), word("reason"), word("message")))
    };
    let time = |request, limit, has_leases| TimeFact { request, limit, has_leases };
    assert_eq!(reported(time(0, None, false)), None, "it asks for nothing");
    let without = reported(time(25_000, None, false)).expect("a condition");
    assert!(without.starts_with("False TimeNotEnforced: "), "{without}");
    assert!(reported(time(0, Some(50_000), false)).is_some(), "a limit is not held");
    let expected = [
        (time(0, None, true), "the GPU's time that other shares leave"),
        (
            time(0, Some(5_500), true),
            "the GPU's time that other shares leave, and never more than 5.5 %",
        ),
        (
            time(25_000, None, true),
            "25 % of the GPU's time while they want it, and more while others leave it",
        ),
        (
            time(12_500, Some(50_000), true),
            "12.5 % of the GPU's time while they want it, and never more than 50 %",
        ),
    ];
    for (time, words) in expected {
        let found = reported(time).expect("a condition");
        assert_eq!(found, format!("True Leases: its processes have {words}"));
    }
}

#[test]
fn a_share_of_an_exempt_namespace_says_so() {
    let exempt = Fact::Share {
        prepared_at: Some(0),
        backend: Some(BackendKind::Off),
        is_exempt: true,
        overflow: Some(OverflowPolicy::Kill),
        time: TimeFact { request: 25_000, ..TimeFact::default() },
        swap: None,
        findings: Vec::new(),
    };
    let devices = vec![ReportedDevice { fact: Some(exempt), ..device() }];
    let status = status_of(&Report { devices, ..report(None) }, jiff::Timestamp::now());
    let conditions = status["status"]["devices"][0]["conditions"].as_array().expect("a list");
    let words =
        conditions.iter().map(|it| format!("{}={} {}", it["type"], it["status"], it["reason"]));
    let words: Vec<_> = words.map(|text| text.replace('"', "")).collect();
    assert_eq!(words, ["Enforced=False Exempt", "TimeEnforced=False Exempt"]);
    let message = conditions[0]["message"].as_str().expect("text");
    assert!(message.contains("exemptNamespaces") && !message.contains("policy"), "{message}");
}
