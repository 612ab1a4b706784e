use clap::Parser;
use octavo_machine::{Machine, State};

use super::super::{ActionResult, GpuAction, apply};
use crate::nodes::hardware::catalogue;

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    action: GpuAction,
}

/// GPU 1 of a machine, driven through the command line.
struct Cli {
    machine: Machine,
    state: State,
}

impl Cli {
    fn new(machine: &str) -> Self {
        let mut machine = catalogue::load(machine).unwrap();
        machine.instantiate("node-0");
        Self { machine, state: State::default() }
    }

    fn run(&mut self, line: &str) -> Result<String, String> {
        let words = std::iter::once("gpu").chain(line.split_whitespace());
        let action = Line::try_parse_from(words).map_err(|e| e.to_string())?.action;
        match apply(&self.machine, &mut self.state, 1, &action) {
            Ok(ActionResult::Changed(text) | ActionResult::Report(text)) => Ok(text),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    fn run_ok(&mut self, line: &str) -> String {
        self.run(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

#[test]
fn an_instance_is_made_used_listed_and_destroyed() {
    let mut cli = Cli::new("dgx-h100");
    assert_eq!(cli.run_ok("mig mode on"), "has its MIG mode on");
    assert_eq!(cli.run_ok("mig create 1g.10gb@3"), "has the GPU instance 10");
    assert_eq!(cli.run_ok("mig create 3g.40gb"), "has the GPU instance 2");
    cli.run_ok("mig busy 10 on");
    let listed = cli.run_ok("mig list");
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "MIG mode on");
    assert!(lines[1].starts_with("GPU instance 10  1g.10gb     3:1  MIG-"), "{listed}");
    assert!(lines[1].ends_with(" in use") && !lines[2].ends_with(" in use"), "{listed}");
    assert!(cli.run("mig destroy 10").unwrap_err().contains("in use"));
    cli.run_ok("mig busy 10 off");
    assert_eq!(cli.run_ok("mig destroy 10"), "no longer has the GPU instance 10");
    assert_eq!(cli.state.gpus[&1].mig.instances.len(), 1);
}

#[test]
fn a_list_for_programs_has_every_id() {
    let mut cli = Cli::new("dgx-h100");
    cli.run_ok("mig mode on");
    cli.run_ok("mig create 1g.10gb+me@0");
    let text = cli.run_ok("mig list --output json");
    let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let instance = &listed["instances"][0];
    assert_eq!(instance["gpuInstance"], 7);
    assert_eq!(instance["profile"], "1g.10gb+me");
    let whole = cli.machine.gpus[1].uuid.clone().unwrap();
    let uuid = octavo_machine::mig_uuid(&whole, 7, 0);
    assert_eq!(instance["computeInstances"][0]["uuid"], uuid);
}

#[test]
fn bare_gpu_instance_can_be_created() {
    let mut cli = Cli::new("dgx-h100");
    cli.run_ok("mig mode on");
    assert_eq!(cli.run_ok("mig create 2g.20gb@4 --bare"), "has the GPU instance 5");
    assert!(cli.state.gpus[&1].mig.instances[&5].compute_instances.is_empty());
    assert!(cli.run("mig busy 5 on").unwrap_err().contains("no compute instance"));
    cli.run_ok("mig destroy 5");
}

#[test]
fn driver_refusals_reach_the_command_line() {
    let mut cli = Cli::new("dgx-h100");
    let refused = |cli: &mut Cli, line: &str, words: &str| {
        let before = cli.state.clone();
        let error = cli.run(line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
        assert_eq!(cli.state.events, before.events);
    };
    refused(&mut cli, "mig create 1g.10gb", "mode is off");
    cli.run_ok("mig mode on");
    refused(&mut cli, "mig create 1g.5gb", "no profile 1g.5gb: name one of 1g.10gb, 2g.20gb");
    refused(&mut cli, "mig create 2g.20gb@1", "no such profile or placement");
    refused(&mut cli, "mig create 2g.20gb@x", "not the number of a memory slice");
    refused(&mut cli, "mig destroy 3", "no GPU instance 3");
    cli.run_ok("mig create 7g.80gb");
    refused(&mut cli, "mig create 1g.10gb", "another instance has the resources that it needs");
    refused(&mut cli, "mig mode off", "in use");
    let mut l4 = Cli::new("l4");
    refused(&mut l4, "mig mode on", "NVIDIA L4 has no MIG mode");
}

#[test]
fn on_an_a100_the_mode_waits_for_a_reset_which_ends_all_instances() {
    let mut cli = Cli::new("dgx-a100-40");
    assert_eq!(cli.run_ok("mig mode on"), "will have its MIG mode on after a reset");
    assert_eq!(cli.run_ok("mig list"), "MIG mode off, on after a reset\n");
    cli.run_ok("reset");
    cli.run_ok("mig create 1g.5gb@6");
    cli.run_ok("reset");
    assert_eq!(cli.run_ok("mig list"), "MIG mode on\n");
}

#[test]
fn a_gpu_in_use_keeps_its_mode_and_healing_keeps_instances() {
    let mut cli = Cli::new("dgx-h100");
    cli.run_ok("set --processes 2");
    assert!(cli.run_ok("mig mode on").starts_with("is in use"));
    cli.run_ok("set --processes 0 --mig-create 300");
    cli.run_ok("mig mode on");
    cli.run_ok("mig create 4g.40gb");
    cli.run_ok("mig busy 1 on");
    cli.run_ok("lost");
    cli.run_ok("heal");
    let gpu = &cli.state.gpus[&1];
    assert!(!gpu.lost);
    assert_eq!(gpu.mig.instances[&1].compute_instances[&0].processes, 0);
    assert_eq!(cli.state.mig_create_millis, 300);
}
