use std::ffi::OsStr;

use clap::Parser;

use super::{Cli, Program, command};

#[test]
fn the_definition_is_sound() {
    command(OsStr::new("octavo")).debug_assert();
}

#[test]
fn usage_names_what_was_typed() {
    let usage = |name: &str| {
        let mut command = command(OsStr::new(name));
        command.build();
        let top = command.find_subcommand_mut("top").unwrap();
        top.render_usage().to_string()
    };
    assert!(usage("/usr/bin/octavo").starts_with("Usage: octavo top"));
    assert!(usage("/opt/bin/kubectl-octavo").starts_with("Usage: kubectl octavo top"));
}

#[test]
fn every_visible_option_says_what_it_is() {
    fn check(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{} has no text", command.get_name());
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let name = argument.get_id();
            assert!(argument.get_help().is_some(), "{name} of {} has none", command.get_name());
        }
        command.get_subcommands().filter(|found| !found.is_hide_set()).for_each(check);
    }
    check(&command(OsStr::new("octavo")));
}

#[test]
fn top_and_explain_take_what_kubectl_users_type() {
    let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
    assert!(parse("octavo top -A -o wide --context lab --no-headers --watch").is_ok());
    assert!(parse("octavo top -A -n team").is_err());
    assert!(parse("octavo explain").is_err());
    let cli = parse("octavo explain -n team pod/train -o json --request-timeout 5s").unwrap();
    let Program::Explain(args) = cli.program else { panic!("not explain") };
    assert_eq!(
        (args.target, args.namespace.as_deref()),
        (vec!["pod/train".to_owned()], Some("team"))
    );
}

#[test]
fn log_options_may_stand_anywhere() {
    assert!(Cli::try_parse_from(["octavo", "top", "-vv", "--log-format", "json"]).is_ok());
    assert!(Cli::try_parse_from(["octavo", "-v", "top"]).is_ok());
}
