use std::fs;

use clap::{CommandFactory, Parser};

use super::order::text;
use super::*;
use crate::health::{Ordered, Outcome};

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    health: HealthArgs,
}

fn parse(line: &str) -> Result<HealthArgs, clap::Error> {
    Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.health)
}

#[test]
fn nodes_and_actions_are_distinct() {
    Cli::command().debug_assert();
    let list = parse("health n-1 n-2 --state fenced,Retired -o wide").unwrap();
    assert!(list.action.is_none());
    assert_eq!(list.list.nodes, ["n-1", "n-2"]);
    let states: Vec<_> = list.list.states.iter().filter_map(|state| named(state)).collect();
    assert_eq!(states, ["Fenced", "Retired"]);
    assert!(parse("health --state broken").is_err());
    assert!(parse("health --all --state Fenced").is_err());
    let describe = parse("health describe n-1 0").unwrap();
    assert!(
        matches!(describe.action, Some(HealthAction::Describe(args)) if args.gpu == ["n-1", "0"])
    );
    assert!(parse("health describe").is_err());
    assert!(parse("health fence n-1 0 --reason x --yes --timeout 1m").is_ok());
    assert!(parse("health fence n-1 0").is_err(), "an order has a reason");
    assert!(parse("health fence n-1 --reason x --timeout 1m --no-wait").is_err());
    assert!(parse("health check").is_err());
}

#[test]
fn an_order_that_is_open_says_what_to_look_at() {
    let order = |gpu: &str, number| Ordered { uuid: String::new(), gpu: gpu.to_owned(), number };
    let gpu = octavo_api::node_health::DeviceHealth {
        state: "Fenced".to_owned(),
        reason: Some("Operator".to_owned()),
        message: Some("an operator decided so".to_owned()),
        ..Default::default()
    };
    let done = Outcome { order: order("gpu-0", 1), gpu: Some(gpu) };
    let late = Outcome { order: order("gpu-1", 2), gpu: None };
    assert_eq!(
        text("n-1", std::slice::from_ref(&done)),
        "gpu-0: Fenced (Operator: an operator decided so)\n"
    );
    let text = text("n-1", &[done, late]);
    assert!(text.contains("gpu-1: order 2 is not carried out yet\n"), "{text}");
    assert!(text.contains("Orders stay") && text.contains("`octavo doctor n-1`"), "{text}");
}

#[test]
fn a_file_is_checked_without_a_cluster() {
    let folder = std::env::temp_dir().join(format!("octavo-health-check-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("policy.yaml");
    let missing = check(&path).unwrap_err();
    assert!(missing.to_string().ends_with("policy.yaml could not be read"), "{missing}");
    fs::write(&path, "kind: HealthPolicy").unwrap();
    assert!(!check(&path).unwrap().is_valid);
    fs::write(&path, "a: [").unwrap();
    assert!(check(&path).unwrap_err().to_string().contains("cannot be parsed"));
    fs::remove_dir_all(&folder).unwrap();
}
