use std::net::IpAddr;

use octavo_api::compute_domain::ComputeDomainDaemon;
use proptest::prelude::*;

use super::*;

const KUBELET: &str = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n10.0.0.1\tpod-1\n";

fn slots(count: u16, addresses: &[(i64, String)]) -> Slots {
    let mut slots = Slots::new(count);
    let entry = |(index, address): &(i64, String)| ComputeDomainDaemon {
        index: Some(*index),
        ip_address: address.clone(),
        ..ComputeDomainDaemon::default()
    };
    slots.enter(&addresses.iter().map(entry).collect::<Vec<_>>(), None);
    slots
}

/// Addresses of a name, as a resolver reads them.
fn addresses(text: &[u8], name: &str) -> Vec<IpAddr> {
    let text = String::from_utf8_lossy(text);
    let line = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?;
        words.any(|word| word == name).then(|| address.parse().unwrap())
    };
    text.lines().filter_map(line).collect()
}

fn assert_is_resolved(text: &[u8], slots: &Slots) {
    for (name, address) in slots.iter() {
        assert_eq!(
            addresses(text, &name),
            [address],
            "{name} in {}",
            String::from_utf8_lossy(text)
        );
    }
}

/// What a file holds if the process is killed at this step of [`apply`].
fn interrupted(old: &[u8], edit: &Edit, step: usize) -> Vec<u8> {
    if step == 0 {
        return old.to_vec();
    }
    let mut text = old[..edit.kept].to_vec();
    let range = edit.changed(old);
    for index in range.clone().take(step - 1) {
        match text.get_mut(index) {
            Some(byte) => *byte = edit.text[index],
            None => text.push(edit.text[index]),
        }
    }
    text
}

#[test]
fn the_block_follows_the_lines_of_the_kubelet() {
    let edit = Edit::new(KUBELET.as_bytes(), &slots(2, &[(1, "10.0.0.7".into())]));
    let text = String::from_utf8(edit.text).unwrap();
    let block = text.strip_prefix(KUBELET).unwrap();
    let lines: Vec<_> = block.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with('#') && lines[3].starts_with('#'), "{block}");
    let words: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(words, ["127.0.0.2", "compute-domain-daemon-0000"]);
    let words: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(words, ["10.0.0.7", "compute-domain-daemon-0001"]);
}

#[test]
fn an_update_changes_addresses_in_place() {
    let before = Edit::new(KUBELET.as_bytes(), &slots(18, &[])).text;
    let mut before = before;
    before.extend(b"10.9.9.9 appended later");
    let edit =
        Edit::new(&before, &slots(18, &[(17, "fd00:1234:5678:9abc:def0:1234:5678:9abc".into())]));
    assert_eq!((edit.text.len(), edit.kept), (before.len(), before.len()));
    assert!(edit.changed(&before).len() <= 39, "{:?}", edit.changed(&before));
    let same = Edit::new(
        &edit.text,
        &slots(18, &[(17, "fd00:1234:5678:9abc:def0:1234:5678:9abc".into())]),
    );
    assert!(same.changed(&edit.text).is_empty());
}

#[test]
fn files_are_written_in_place_and_only_for_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hosts");
    std::fs::write(&path, KUBELET).unwrap();
    let inode =
        |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let before = inode(&path);
    let hosts = HostsFile::new(&path);
    let slots = slots(18, &[(3, "10.0.0.7".into())]);
    assert!(hosts.update(&slots).unwrap());
    assert!(!hosts.update(&slots).unwrap());
    assert_eq!(inode(&path), before);
    assert_is_resolved(&std::fs::read(&path).unwrap(), &slots);

    let missing = HostsFile::new(&folder.path().join("none"));
    assert!(missing.update(&slots).unwrap(), "a missing file is made");
    let error = HostsFile::new(folder.path()).update(&slots).unwrap_err().to_string();
    assert!(error.contains("cannot read the hosts file"), "{error}");
}

#[test]
fn each_half_written_file_is_repaired() {
    let first = slots(3, &[(0, "10.0.0.1".into())]);
    let second = slots(3, &[(0, "10.0.0.12".into()), (2, "fd00::7".into())]);
    for (old, slots) in [
        (KUBELET.as_bytes().to_vec(), &first),
        (Edit::new(KUBELET.as_bytes(), &first).text, &second),
    ] {
        let edit = Edit::new(&old, slots);
        for step in 0..=edit.changed(&old).len() + 1 {
            let part = interrupted(&old, &edit, step);
            let repaired = Edit::new(&part, slots);
            assert!(repaired.text.starts_with(KUBELET.as_bytes()));
            assert_is_resolved(&repaired.text, slots);
        }
    }
}

#[test]
fn foreign_lines_with_names_of_slots_among_others_stay() {
    let old = "10.0.0.9 compute-domain-daemon-0001 alias\n10.0.0.9 compute-domain-daemon-1\n\
               # 10.0.0.9 compute-domain-daemon-0001\n";
    let edit = Edit::new(old.as_bytes(), &slots(2, &[]));
    assert!(edit.text.starts_with(old.as_bytes()));
}

/// Lines that are in a file before: foreign ones have a number, so that each is known.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop_oneof![
            Just("127.0.0.1 localhost-#"), Just("# comment #"), Just("10.0.0.# a b"), Just("fe80::# c"),
            Just("  10.1.1.1 d-#"), Just("10.0.0.1 e-#\r"), Just("\u{fc} #")
        ].prop_map(str::to_owned),
        2 => (0_u32..5).prop_map(|slot| format!("10.0.0.77 compute-domain-daemon-{slot:04}")),
        1 => Just("# octavo imex-daemon: nodes of the ComputeDomain".to_owned()),
        1 => Just("# octavo imex-daemon: end".to_owned()),
        1 => prop::collection::vec((0_i64..3, "10\\.0\\.0\\.[1-9]"), 0..3).prop_map(|it| {
            let text = Edit::new(b"", &slots(3, &it)).text;
            String::from_utf8(text).unwrap().trim_end().to_owned()
        }),
    ]
}

proptest! {
    #[test]
    fn foreign_lines_survive_all_contents_updates_and_interruptions(
        pieces in prop::collection::vec(piece(), 0..8),
        has_end in any::<bool>(),
        updates in prop::collection::vec(
            (prop::collection::vec((0_i64..3, "(10\\.0\\.0\\.[1-9]{1,2})|(fd00::[1-9a-f]{1,4})"), 0..3), any::<prop::sample::Index>(), any::<bool>()),
            1..6,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut foreign = Vec::new();
        let mut text = String::new();
        for (number, piece) in pieces.iter().enumerate() {
            let line = piece.replace(" #", &format!(" {number}")).replace(".# ", &format!(".{number} "))
                .replace("::# ", &format!("::{number} ")).replace("-#", &format!("-{number}"));
            if line != *piece {
                foreign.push(line.clone());
            }
            text += &line;
            text.push('\n');
        }
        if !has_end {
            text.pop();
        }
        let mut text = text.into_bytes();
        let survivors = |text: &[u8]| {
            let lines: Vec<String> = String::from_utf8_lossy(text).split('\n').map(str::to_owned).collect();
            lines.into_iter().filter(|line| foreign.contains(line)).collect::<Vec<_>>()
        };
        for (addresses, step, is_killed) in &updates {
            let slots = slots(3, addresses);
            let edit = Edit::new(&text, &slots);
            if *is_killed {
                let step = step.index(edit.changed(&text).len() + 2);
                text = interrupted(&text, &edit, step);
            } else {
                text = edit.text;
                prop_assert_eq!(&Edit::new(&text, &slots).text, &text);
                assert_is_resolved(&text, &slots);
            }
            prop_assert_eq!(&survivors(&text), &foreign);
        }
        // A truncation takes the lines that it cuts, and no others.
        text.truncate(cut.index(text.len() + 1));
        let left = survivors(&text);
        let slots = slots(3, &[]);
        let text = Edit::new(&text, &slots).text;
        assert_is_resolved(&text, &slots);
        prop_assert!(survivors(&text).starts_with(&left));
    }
}
