use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, Read, Write as _};
use std::path::Path;

use proptest::prelude::*;

use super::source::{record, records};
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

fn line(number: u64) -> String {
    format!("NVRM: Xid (PCI:0000:3b:00): {number}, text\n")
}

fn numbers(log: &mut KernelLog) -> Vec<u64> {
    numbers_of(log.read().unwrap())
}

fn numbers_of(events: Vec<KernelLogEvent>) -> Vec<u64> {
    let number = |event| match event {
        KernelLogEvent::Xid { number, .. } | KernelLogEvent::SwitchXid { number, .. } => number,
    };
    events.into_iter().map(number).collect()
}

#[test]
fn a_file_is_followed_over_half_lines_cuts_and_replacements() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kmsg");
    append(&path, &line(1));
    let mut log = KernelLog::open(&path, None).unwrap();
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
fn a_file_is_read_on_from_a_position() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kern.log");
    append(&path, &line(1));
    let mut log = KernelLog::open(&path, None).unwrap();
    append(&path, &line(2));
    append(&path, &line(3)[..20]);
    assert_eq!(numbers(&mut log), [2]);
    let position = log.position();
    append(&path, &line(3)[20..]);
    append(&path, &line(4));
    for _ in 0..2 {
        let mut log = KernelLog::open(&path, Some(position)).unwrap();
        assert_eq!(numbers(&mut log), [3, 4], "the line that was not finished then, too");
    }
    // That of another kind says nothing of this one.
    let of_device = KernelLogPosition { file: None, next: 0 };
    let mut log = KernelLog::open(&path, Some(of_device)).unwrap();
    assert!(numbers(&mut log).is_empty());
    // Cut meanwhile.
    fs::write(&path, line(5)).unwrap();
    let mut log = KernelLog::open(&path, Some(position)).unwrap();
    assert_eq!(numbers(&mut log), [5]);
    // Replaced by a longer one.
    let position = log.position();
    fs::rename(&path, folder.path().join("old")).unwrap();
    append(&path, &(6..9).map(line).collect::<String>());
    let mut log = KernelLog::open(&path, Some(position)).unwrap();
    assert_eq!(numbers(&mut log), [6, 7, 8]);
}

#[test]
fn a_record_has_a_number_and_a_line() {
    let text = "6,1234,56789,-;NVRM: Xid (PCI:0000:3b:00): 79, a; b\n SUBSYSTEM=pci\n";
    assert_eq!(record(text), (Some(1234), "NVRM: Xid (PCI:0000:3b:00): 79, a; b"));
    let text = "4,18446744073709551615,1,c,caller=T12;text\n";
    assert_eq!(record(text), (Some(u64::MAX), "text"));
    assert_eq!(record("text"), (None, "text"));
    assert_eq!(record("6,x,1,-;text"), (None, "text"));
    assert_eq!(record(""), (None, ""));
}

/// `/dev/kmsg`: each read has a record or an error.
struct Device(VecDeque<Result<String, ErrorKind>>);

impl Device {
    fn new(numbers: impl IntoIterator<Item = u64>) -> Self {
        let record = |number| Ok(format!("4,{number},{number},-;{}", line(number)));
        Self(numbers.into_iter().map(record).collect())
    }
}

impl Read for Device {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let text = self.0.pop_front().unwrap_or(Err(ErrorKind::WouldBlock))?;
        buffer[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    }
}

#[test]
fn records_are_read_on_from_a_number() {
    let mut next = 3;
    let mut device = Device::new(1..5);
    assert_eq!(numbers_of(records(&mut device, &mut next).unwrap()), [3, 4]);
    assert_eq!(next, 5);
    assert!(records(&mut device, &mut next).unwrap().is_empty());
    assert_eq!(next, 5);
    // The kernel has no room for those in between any more.
    device.0 = [Err(ErrorKind::BrokenPipe), Err(ErrorKind::Interrupted)].into();
    device.0.append(&mut Device::new([9]).0);
    assert_eq!(numbers_of(records(&mut device, &mut next).unwrap()), [9]);
    assert_eq!(next, 10);
    device.0 = [Err(ErrorKind::PermissionDenied)].into();
    assert!(records(&mut device, &mut next).is_err());
}

#[test]
fn a_look_reads_so_many_records_at_most_and_passes_over_any_number() {
    let mut device = Device::new(0..20_000);
    let mut next = 10_000;
    let first = numbers_of(records(&mut device, &mut next).unwrap());
    assert_eq!(first.first(), Some(&10_000));
    assert_eq!(next, first.last().unwrap() + 1);
    assert!(first.len() < 10_000, "a flood keeps the reader not for ever");
    let second = numbers_of(records(&mut device, &mut next).unwrap());
    assert_eq!(second.first(), Some(&(first.last().unwrap() + 1)));
}

#[test]
fn a_missing_log_and_a_folder_are_errors_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("none"), folder.path().to_owned()] {
        let error = KernelLog::open(&path, None).unwrap_err().to_string();
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
