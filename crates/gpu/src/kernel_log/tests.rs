use std::fs;
use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn at(address: &str) -> PciAddress {
    address.parse().unwrap()
}

#[test]
fn xids_have_an_address_a_number_and_perhaps_a_process() {
    let cases = [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
            79,
            Some(1234),
        ),
        (
            "[ 12.5] NVRM: Xid (PCI:0000:3b:00): 31, pid='<unknown>', name=<unknown>, Ch 00000008",
            31,
            None,
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 48, An uncorrectable double bit error (DBE)", 48, None),
        ("NVRM: Xid (PCI:0000:3B:00): 119", 119, None),
    ];
    for (line, number, pid) in cases {
        let gpu = at("0000:3b:00.0");
        let expected = KernelLogEvent::Xid { gpu, number, pid, instance: None, is_fatal: None };
        assert_eq!(KernelLogEvent::parse(line), Some(expected), "{line}");
    }
}

#[test]
fn errors_of_instances_and_links_have_more() {
    let gpu = at("0000:3b:00.0");
    let line = "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=7, name=python, Ch 00000008";
    let xid = |number, pid, instance, is_fatal| {
        Some(KernelLogEvent::Xid { gpu, number, pid, instance, is_fatal })
    };
    assert_eq!(KernelLogEvent::parse(line), xid(43, Some(7), Some(5), None));
    let line = "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 13, pid=7, name=a";
    assert_eq!(KernelLogEvent::parse(line), xid(13, Some(7), Some(5), None));
    let line =
        "NVRM: Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x4 0x80000001)";
    assert_eq!(KernelLogEvent::parse(line), xid(145, None, None, Some(false)));
    let line = "NVRM: Xid (PCI:0000:3b:00): 149, NETIR Fatal XC0 i0 Link -1 (0x4 0x80000001)";
    assert_eq!(KernelLogEvent::parse(line), xid(149, None, None, Some(true)));
}

#[test]
fn errors_of_switches_have_a_severity_and_perhaps_a_link() {
    let event = |number, is_fatal, link| KernelLogEvent::SwitchXid {
        switch: at("0000:c1:00.0"),
        number,
        is_fatal,
        link,
    };
    let cases = [
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            event(20034, true, Some(30)),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress",
            event(12028, false, Some(32)),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 10003, Fatal, Host error",
            event(10003, true, None),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(KernelLogEvent::parse(line), Some(expected), "{line}");
    }
}

#[test]
fn other_lines_are_no_events() {
    for line in [
        "",
        "NVRM: loading NVIDIA UNIX Open Kernel Module",
        "NVRM: Xid (PCI:0000:3b:00)",
        "NVRM: Xid (PCI:nowhere): 79",
        "NVRM: Xid (PCI:0000:3b:00): many",
        "NVRM: Xid (PCI:0000:3b:00): 99999999999999999999999",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Perhaps, Link 30",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034",
    ] {
        assert_eq!(KernelLogEvent::parse(line), None, "{line}");
    }
}

fn append(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn numbers(log: &mut KernelLog) -> Vec<u64> {
    let number = |event| match event {
        KernelLogEvent::Xid { number, .. } | KernelLogEvent::SwitchXid { number, .. } => number,
    };
    log.read().unwrap().into_iter().map(number).collect()
}

#[test]
fn a_file_is_followed_over_half_lines_cuts_and_replacements() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kmsg");
    let line = |number: u64| format!("NVRM: Xid (PCI:0000:3b:00): {number}, text\n");
    append(&path, &line(1));
    let mut log = KernelLog::open(&path).unwrap();
    assert!(numbers(&mut log).is_empty(), "what was there before is old");
    append(&path, &line(2));
    append(&path, &line(3)[..20]);
    assert_eq!(numbers(&mut log), [2]);
    append(&path, &line(3)[20..]);
    append(&path, "another line\n");
    assert_eq!(numbers(&mut log), [3]);
    assert!(numbers(&mut log).is_empty());
    // Cut, as by logrotate's copytruncate.
    fs::write(&path, line(4)).unwrap();
    assert_eq!(numbers(&mut log), [4]);
    // Replaced. The rest of the old file counts.
    append(&path, &line(5));
    fs::rename(&path, folder.path().join("old")).unwrap();
    assert_eq!(numbers(&mut log), [5]);
    append(&path, &line(6));
    assert_eq!(numbers(&mut log), [6]);
    // A line without an end is dropped at some point.
    append(&path, &"x".repeat(100_000));
    append(&path, &format!("\n{}", line(7)));
    assert_eq!(numbers(&mut log), [7]);
}

#[test]
fn a_missing_log_and_a_folder_are_errors_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("none"), folder.path().to_owned()] {
        let error = KernelLog::open(&path).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

proptest! {
    #[test]
    fn no_line_breaks_the_parser(line in "(NVRM: Xid \\(PCI:|nvidia-nvswitch0: SXid \\(PCI:)?[0-9a-f:.]{0,14}(\\): )?[ -~]{0,40}") {
        let _ = KernelLogEvent::parse(&line);
    }

    #[test]
    fn every_xid_is_found(domain in 0_u32..0x1_0000, bus: u8, device in 0_u8..32, number in 0_u64..144, pid: u32) {
        let line = format!("NVRM: Xid (PCI:{domain:04x}:{bus:02x}:{device:02x}): {number}, pid={pid}, name=a, b");
        let gpu = PciAddress { domain, bus, device, function: 0 };
        let expected = KernelLogEvent::Xid { gpu, number, pid: Some(pid), instance: None, is_fatal: None };
        prop_assert_eq!(KernelLogEvent::parse(&line), Some(expected));
    }
}
