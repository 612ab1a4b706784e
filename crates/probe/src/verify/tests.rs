use std::time::Instant;

use super::args::VerifyArgs;
use super::progress::{Collected, Line};
use super::report::{Check, CheckName, Numbers, Verdict};
use super::{kernels, worker};
use crate::args::OutputFormat;
use crate::paths::tests::with_driver;

/// A short test of these GPUs with little memory.
fn args(gpus: &[&str]) -> VerifyArgs {
    VerifyArgs {
        gpus: gpus.iter().map(ToString::to_string).collect(),
        seconds: 1,
        memory: 1,
        deadline: 30,
        driver_root: None,
        of_agent: false,
        worker: true,
        output: OutputFormat::Json,
    }
}

/// What is found on a simulated machine in this state.
fn test(machine: &str, state: &str, args: &VerifyArgs) -> Collected {
    let mut text = Vec::new();
    with_driver(machine, state, |cuda| worker::test(cuda, args, &mut text).expect("GPUs"));
    let now = Instant::now();
    let mut collected = Collected::new(now);
    let text = String::from_utf8(text).expect("text");
    for line in text.lines() {
        collected.add(serde_json::from_str::<Line>(line).expect("a line"), now);
    }
    assert!(collected.is_done, "{text}");
    collected
}

fn check(collected: &Collected, gpu: usize, name: CheckName) -> &Check {
    let mut checks = collected.gpus[gpu].checks.iter().filter(|check| check.name == name);
    let check = checks.next().expect("a check");
    assert!(checks.next().is_none(), "once");
    check
}

fn message(check: &Check) -> &str {
    check.message.as_deref().unwrap_or_default()
}

#[test]
fn a_gpu_without_faults_passes_and_all_of_it_has_worked() {
    let found = test("t4.yaml", "{}", &args(&["0"]));
    let memory = check(&found, 0, CheckName::Memory);
    assert_eq!(memory.verdict, Verdict::Passed, "{memory:?}");
    let Some(Numbers::Memory(numbers)) = &memory.numbers else { panic!("{memory:?}") };
    assert!(numbers.patterns >= 6 && numbers.mismatches == 0, "{numbers:?}");
    assert!(numbers.covered_bytes >= 1 << 20 && numbers.covered_bytes <= numbers.bytes);
    let compute = check(&found, 0, CheckName::Compute);
    assert_eq!(compute.verdict, Verdict::Passed, "{compute:?}");
    let Some(Numbers::Compute(numbers)) = &compute.numbers else { panic!("{compute:?}") };
    assert_eq!((numbers.multiprocessors, numbers.used_multiprocessors), (40, 40));
    assert!(numbers.products >= 80, "{numbers:?}");
    assert_eq!(check(&found, 0, CheckName::Peers).verdict, Verdict::NotTried, "there is one GPU");
}

#[test]
fn memory_that_does_not_keep_a_bit_fails_the_check_of_memory_alone() {
    // A byte of the first piece under test, after what holds the results.
    let place = (2 << 20) + 8 * 1000 + 3;
    let state = format!(r#"{{"gpus": {{"0": {{"weakMemory": [{place}]}}}}}}"#);
    let found = test("t4.yaml", &state, &args(&["0"]));
    let memory = check(&found, 0, CheckName::Memory);
    assert_eq!(memory.verdict, Verdict::Failed, "{memory:?}");
    let Some(Numbers::Memory(numbers)) = &memory.numbers else { panic!("{memory:?}") };
    assert_eq!(numbers.mismatches, numbers.patterns, "one word of each pattern");
    let first = numbers.first.as_ref().expect("the first");
    let number = |text: &str| u64::from_str_radix(&text[2..], 16).expect("a number");
    assert_eq!(number(&first.expected) ^ number(&first.found), 1 << 24, "{first:?}");
    assert_eq!(number(&first.address) % (2 << 20), 8000);
    assert_eq!(check(&found, 0, CheckName::Compute).verdict, Verdict::Passed);
}

#[test]
fn one_multiprocessor_that_computes_wrong_is_named() {
    let state = r#"{"gpus": {"0": {"faultyMultiprocessors": [7]}}}"#;
    let found = test("t4.yaml", state, &args(&["0"]));
    assert_eq!(check(&found, 0, CheckName::Memory).verdict, Verdict::Passed);
    let compute = check(&found, 0, CheckName::Compute);
    assert_eq!(compute.verdict, Verdict::Failed, "{compute:?}");
    let Some(Numbers::Compute(numbers)) = &compute.numbers else { panic!("{compute:?}") };
    assert_eq!(numbers.first.as_ref().expect("the first").multiprocessor, 7);
    assert!(numbers.wrong_elements > 0, "{numbers:?}");
}

#[test]
fn a_kernel_that_does_not_end_fails_and_nothing_waits_for_it() {
    let state =
        r#"{"gpus": {"0": {"kernels": {"octavo_verify_multiply": {"fault": "neverEnds"}}}}}"#;
    let found = test("t4.yaml", state, &VerifyArgs { deadline: 1, ..args(&["0"]) });
    let compute = check(&found, 0, CheckName::Compute);
    assert_eq!(compute.verdict, Verdict::Failed);
    assert!(message(compute).contains("did not end within 1 s"), "{compute:?}");
}

#[test]
fn a_broken_context_fails_and_ends_the_test_of_the_gpu() {
    let state =
        r#"{"gpus": {"0": {"kernels": {"octavo_verify_check": {"fault": "illegalAddress"}}}}}"#;
    let found = test("t4.yaml", state, &args(&["0"]));
    let memory = check(&found, 0, CheckName::Memory);
    assert_eq!(memory.verdict, Verdict::Failed);
    assert!(message(memory).contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{memory:?}");
    assert_eq!(check(&found, 0, CheckName::Compute).verdict, Verdict::NotTried);
}

#[test]
fn memory_that_others_have_is_no_fault() {
    let state = r#"{"failingCalls": {"cuMemAlloc": 2}}"#;
    let found = test("t4.yaml", state, &args(&["0"]));
    assert_eq!(check(&found, 0, CheckName::Memory).verdict, Verdict::NotTried);
    assert_eq!(found.gpus[0].verdict, Verdict::NotTried);
}

#[test]
fn copies_between_gpus_are_compared_on_both() {
    let found = test("dgx-h100.yaml", "{}", &args(&["0", "2"]));
    for (gpu, other) in [(0, 1), (1, 0)] {
        let peers = check(&found, gpu, CheckName::Peers);
        assert_eq!(peers.verdict, Verdict::Passed, "{peers:?}");
        let Some(Numbers::Peers(numbers)) = &peers.numbers else { panic!("{peers:?}") };
        let [peer] = &numbers.peers[..] else { panic!("{numbers:?}") };
        assert_eq!(peer.uuid, found.gpus[other].gpu.uuid);
        assert!(peer.is_direct && peer.mismatches == 0 && peer.bytes >= 1 << 20, "{peer:?}");
    }
}

#[test]
fn a_copy_into_memory_that_does_not_keep_a_bit_fails_for_both_gpus() {
    // The copies' memory comes after what holds the results.
    let state = format!(r#"{{"gpus": {{"1": {{"weakMemory": [{}]}}}}}}"#, (2 << 20) + 64);
    let found = test("t4.yaml", &state, &args(&["0", "1"]));
    for gpu in [0, 1] {
        let peers = check(&found, gpu, CheckName::Peers);
        assert_eq!(peers.verdict, Verdict::Failed, "{peers:?}");
        let other = &found.gpus[1 - gpu].gpu.uuid;
        assert!(message(peers).contains(&**other), "{peers:?}");
    }
    assert_eq!(check(&found, 0, CheckName::Memory).verdict, Verdict::Passed);
    assert_eq!(check(&found, 1, CheckName::Memory).verdict, Verdict::Failed);
}

#[test]
fn a_gpu_that_cannot_be_used_takes_no_part_in_copies() {
    let state =
        r#"{"gpus": {"1": {"kernels": {"octavo_verify_multiply": {"fault": "neverEnds"}}}}}"#;
    let found = test("t4.yaml", state, &VerifyArgs { deadline: 1, ..args(&["0", "1", "3"]) });
    assert_eq!(check(&found, 1, CheckName::Compute).verdict, Verdict::Failed);
    assert_eq!(check(&found, 1, CheckName::Peers).verdict, Verdict::NotTried);
    let peers = check(&found, 2, CheckName::Peers);
    assert_eq!(peers.verdict, Verdict::Passed, "{found:?}");
    let Some(Numbers::Peers(numbers)) = &peers.numbers else { panic!("{peers:?}") };
    assert_eq!(numbers.peers.len(), 1, "{numbers:?}");
}

#[test]
fn a_gpu_that_is_not_there_is_named() {
    let mut out = Vec::new();
    with_driver("t4.yaml", "{}", |cuda| {
        let error = worker::test(cuda, &args(&["0", "GPU-none"]), &mut out).expect_err("no GPU");
        assert!(error.to_string().contains("GPU-none: this process sees 4"), "{error}");
    });
}

#[test]
fn the_kernels_ask_the_simulated_driver_to_compute_them() {
    assert!(kernels::KERNELS.starts_with("// octavo: computed by the simulated driver\n.version"));
    assert!(kernels::KERNELS.ends_with("}\n\0"));
}
