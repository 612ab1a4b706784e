use clap::{CommandFactory, Parser, ValueEnum};

use super::*;
use crate::arrivals::Factor;
use crate::replay::Policy;

#[derive(Parser)]
struct Whole {
    #[command(flatten)]
    args: SimArgs,
}

fn command(line: &str) -> Result<SimCommand, String> {
    let whole = Whole::try_parse_from(line.split_whitespace());
    whole.map(|whole| whole.args.command).map_err(|error| error.to_string())
}

fn replay(line: &str) -> Result<ReplayArgs, String> {
    let command = command(&format!("sim replay --nodes n.csv --pods p.csv {line}"))?;
    let SimCommand::Replay(args) = command else { panic!("not replay") };
    Ok(*args)
}

fn report(line: &str) -> Result<RunsArgs, String> {
    let command = command(&format!("sim report --out r.html {line}"))?;
    let SimCommand::Report(args) = command else { panic!("not report") };
    Ok(args.runs)
}

fn parse(line: &str) -> Result<RunsArgs, String> {
    replay(line).map(|args| args.runs)
}

#[test]
fn the_definition_is_sound_and_every_option_says_what_it_is() {
    Whole::command().debug_assert();
    for command in Whole::command().get_subcommands() {
        assert!(command.get_about().is_some(), "{} has no text", command.get_name());
        for argument in command.get_arguments() {
            let name = argument.get_id();
            assert!(argument.get_help().is_some(), "{name} of {} has none", command.get_name());
        }
    }
}

fn seeds(line: &str) -> Vec<i64> {
    Seeds::all(&parse(line).unwrap().seeds)
}

#[test]
fn seeds_are_numbers_ranges_and_repeated() {
    assert_eq!(seeds(""), [42]);
    assert_eq!(seeds("--seed 7"), [7]);
    assert_eq!(seeds("--seed 42..45"), [42, 43, 44, 45]);
    assert_eq!(seeds("--seed 42..=43 --seed 1,2"), [42, 43, 1, 2]);
    assert_eq!(seeds("--seed 42..44 --seed 43"), [42, 43, 44], "each once");
    assert_eq!(seeds("--seed -3..-2"), [-3, -2]);
}

#[test]
fn a_wrong_seed_says_what_is_expected() {
    let error = |line: &str| parse(line).unwrap_err();
    assert!(error("--seed 51..42").contains("runs backwards; write 42..51"));
    assert!(error("--seed x").contains("`x` is not a whole number; expected a seed such as 42"));
    assert!(error("--seed 1..").contains("`1..` is not a whole number"));
    assert!(error("--seed 1..99999999").contains("more than 10000 seeds"));
    assert!(error("--seed 9223372036854775808").contains("is not a whole number"));
}

#[test]
fn unknown_policy_error_lists_all_and_the_most_similar() {
    let error = parse("--policy octvo").unwrap_err();
    for policy in Policy::value_variants() {
        assert!(error.contains(policy.name()), "{error}");
    }
    assert!(error.contains("a similar value exists: 'octavo'"), "{error}");
    let policies = |line: &str| parse(line).unwrap().policies;
    assert_eq!(policies(""), [Policy::Octavo]);
    assert_eq!(policies("--policy fgd,octavo"), [Policy::Fgd, Policy::Octavo]);
    assert_eq!(
        policies("--policy bestfit --policy dotprod"),
        [Policy::BestFit, Policy::DotProduct]
    );
}

#[test]
fn names_on_the_command_line_are_those_in_results() {
    for policy in Policy::value_variants() {
        let value = policy.to_possible_value().unwrap();
        assert_eq!(value.get_name(), policy.name());
        assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
    }
}

#[test]
fn a_factor_is_above_zero_or_none() {
    let inflate = |line: &str| parse(line).map(|args| args.inflate);
    assert_eq!(inflate("").unwrap(), None);
    assert_eq!(inflate("--inflate none").unwrap(), Some(Inflate::None));
    let factor = Factor::new(0.5).unwrap();
    assert_eq!(inflate("--inflate 0.5").unwrap(), Some(Inflate::To(factor)));
    for wrong in ["0", "-1", "nan", "inf", "x", "1e999"] {
        let error = inflate(&format!("--inflate={wrong}")).unwrap_err();
        assert!(error.contains("expected a number above 0, such as 1.3"), "{wrong}: {error}");
    }
}

#[test]
fn a_page_compares_and_a_replay_is_a_first_look() {
    let of = |runs: RunsArgs| (runs.policies, Seeds::all(&runs.seeds));
    assert_eq!(of(parse("").unwrap()), (vec![Policy::Octavo], vec![42]));
    let three = vec![Policy::Octavo, Policy::Fgd, Policy::BestFit];
    let lists = "--nodes n.csv --pods p.csv";
    assert_eq!(of(report(lists).unwrap()), (three, (42..=51).collect()));
    let named = report(&format!("{lists} --policies fgd --seeds 7,9..10")).unwrap();
    assert_eq!(of(named), (vec![Policy::Fgd], vec![7, 9, 10]));
    assert!(report("").is_err() && report("--from r.json").is_ok());
}

#[test]
fn flags_of_both_commands_say_and_do_the_same() {
    let line = "--popularity known --inflate none --order file --departures -j 3 -q";
    let (one, other) = (parse(line).unwrap(), report(&format!("--from r.json {line}")).unwrap());
    assert_eq!(
        format!("{:?}", RunsArgs { policies: Vec::new(), seeds: Vec::new(), ..one }),
        format!("{:?}", RunsArgs { policies: Vec::new(), seeds: Vec::new(), ..other })
    );
    let whole = Whole::command();
    let help = |command: &str, flag: &str| {
        let command = whole.find_subcommand(command).unwrap();
        let found = command.get_arguments().find(|one| one.get_long() == Some(flag)).unwrap();
        (found.get_help().unwrap().to_string(), found.get_visible_aliases())
    };
    for flag in ["popularity", "seed", "inflate", "order", "departures", "jobs", "quiet"] {
        assert_eq!(help("replay", flag), help("report", flag), "{flag}");
    }
    assert!(help("report", "policy").0.contains("drawn strongest"));
}

#[test]
fn output_is_an_alias_of_format() {
    assert_eq!(replay("").unwrap().format, Format::Table);
    assert_eq!(replay("--format json").unwrap().format, Format::Json);
    assert_eq!(replay("-o json").unwrap().format, Format::Json);
    assert_eq!(replay("--output json").unwrap().format, Format::Json);
}
