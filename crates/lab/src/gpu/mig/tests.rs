use clap::Parser;
use octavo_machine::{Machine, State};

use super::super::{Done, GpuAction, apply};
use crate::hardware::catalogue;

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    action: GpuAction,
}

/// GPU 1 of a machine, as a person at the command line sees it.
struct Person {
    machine: Machine,
    state: State,
}

impl Person {
    fn at(machine: &str) -> Self {
        let mut machine = catalogue::load(machine).unwrap();
        machine.instantiate("node-0");
        Self { machine, state: State::default() }
    }

    fn types(&mut self, line: &str) -> Result<String, String> {
        let words = std::iter::once("gpu").chain(line.split_whitespace());
        let action = Line::try_parse_from(words).map_err(|e| e.to_string())?.action;
        match apply(&self.machine, &mut self.state, 1, &action) {
            Ok(Done::Changed(text) | Done::Told(text)) => Ok(text),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    fn types_well(&mut self, line: &str) -> String {
        self.types(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

#[test]
fn an_instance_is_made_used_listed_and_destroyed() {
    let mut person = Person::at("dgx-h100");
    assert_eq!(person.types_well("mig mode on"), "has its MIG mode on");
    assert_eq!(person.types_well("mig create 1g.10gb@3"), "has the GPU instance 10");
    assert_eq!(person.types_well("mig create 3g.40gb"), "has the GPU instance 2");
    person.types_well("mig busy 10 on");
    let listed = person.types_well("mig list");
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "MIG mode on");
    assert!(lines[1].starts_with("GPU instance 10  1g.10gb     3:1  MIG-"), "{listed}");
    assert!(lines[1].ends_with(" in use") && !lines[2].ends_with(" in use"), "{listed}");
    assert!(person.types("mig destroy 10").unwrap_err().contains("in use"));
    person.types_well("mig busy 10 off");
    assert_eq!(person.types_well("mig destroy 10"), "no longer has the GPU instance 10");
    assert_eq!(person.state.gpus[&1].mig.instances.len(), 1);
}

#[test]
fn a_list_for_programs_has_every_id() {
    let mut person = Person::at("dgx-h100");
    person.types_well("mig mode on");
    person.types_well("mig create 1g.10gb+me@0");
    let text = person.types_well("mig list --output json");
    let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let instance = &listed["instances"][0];
    assert_eq!(instance["gpuInstance"], 7);
    assert_eq!(instance["profile"], "1g.10gb+me");
    let whole = person.machine.gpus[1].uuid.clone().unwrap();
    let uuid = octavo_machine::mig_uuid(&whole, 7, 0);
    assert_eq!(instance["computeInstances"][0]["uuid"], uuid);
}

#[test]
fn what_a_crash_leaves_can_be_made() {
    let mut person = Person::at("dgx-h100");
    person.types_well("mig mode on");
    assert_eq!(person.types_well("mig create 2g.20gb@4 --bare"), "has the GPU instance 5");
    assert!(person.state.gpus[&1].mig.instances[&5].compute_instances.is_empty());
    assert!(person.types("mig busy 5 on").unwrap_err().contains("no compute instance"));
    person.types_well("mig destroy 5");
}

#[test]
fn the_driver_s_refusals_are_a_person_s() {
    let mut person = Person::at("dgx-h100");
    let refused = |person: &mut Person, line: &str, words: &str| {
        let before = person.state.clone();
        let error = person.types(line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
        assert_eq!(person.state.events, before.events);
    };
    refused(&mut person, "mig create 1g.10gb", "mode is off");
    person.types_well("mig mode on");
    refused(&mut person, "mig create 1g.5gb", "no profile 1g.5gb: name one of 1g.10gb, 2g.20gb");
    refused(&mut person, "mig create 2g.20gb@1", "no such profile or placement");
    refused(&mut person, "mig create 2g.20gb@x", "no memory slice");
    refused(&mut person, "mig destroy 3", "no GPU instance 3");
    person.types_well("mig create 7g.80gb");
    refused(&mut person, "mig create 1g.10gb", "another instance has what it takes");
    refused(&mut person, "mig mode off", "in use");
    let mut other = Person::at("l4");
    refused(&mut other, "mig mode on", "NVIDIA L4 has no MIG mode");
}

#[test]
fn on_an_a100_the_mode_waits_for_a_reset_which_ends_all_instances() {
    let mut person = Person::at("dgx-a100-40");
    assert_eq!(person.types_well("mig mode on"), "will have its MIG mode on after a reset");
    assert_eq!(person.types_well("mig list"), "MIG mode off, on after a reset\n");
    person.types_well("reset");
    person.types_well("mig create 1g.5gb@6");
    person.types_well("reset");
    assert_eq!(person.types_well("mig list"), "MIG mode on\n");
}

#[test]
fn a_gpu_in_use_keeps_its_mode_and_healing_keeps_instances() {
    let mut person = Person::at("dgx-h100");
    person.types_well("set --processes 2");
    assert!(person.types_well("mig mode on").starts_with("is in use"));
    person.types_well("set --processes 0 --mig-create 300");
    person.types_well("mig mode on");
    person.types_well("mig create 4g.40gb");
    person.types_well("mig busy 1 on");
    person.types_well("lost");
    person.types_well("heal");
    let gpu = &person.state.gpus[&1];
    assert!(!gpu.lost);
    assert_eq!(gpu.mig.instances[&1].compute_instances[&0].processes, 0);
    assert_eq!(person.state.mig_create_millis, 300);
}
