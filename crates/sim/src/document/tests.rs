use octavo_engine::snapshot::Snapshot;

use super::*;

fn snapshot() -> Snapshot {
    let text = r##"{"version": 1, "models": [{"name": "T4", "mig": [
          {"name": "1g", "milli": 100, "memoryMib": 1, "size": 1, "starts": [0, 1], "hasMedia": true}]}],
        "classes": {"small": {"capacity": {"cpuMilli": 8000, "memoryMib": 64, "pods": 10}, "gpus": 2,
          "model": "T4", "links": [[0, 1]]}},
        "nodes": [{"name": "a", "class": "small", "labels": {"rack": "r: 1 \"#\""}}],
        "waiting": [{"profile": {"name": "w"}, "groups": [{"name": "g", "count": 1,
          "shape": {"gpus": {"share": {"count": 1, "milli": 250}}}}]}]}"##;
    parse(text, DocumentFormat::Json).unwrap()
}

#[test]
fn both_forms_hold_the_same() {
    let snapshot = snapshot();
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.json", "a.yaml", "a.yml"] {
        let path = folder.path().join(name);
        write(&snapshot, &path).unwrap();
        assert_eq!(read::<Snapshot>(&path, "cluster").unwrap(), snapshot, "{name}");
    }
}

/// The YAML reader rejects long documents unless its budget is lifted.
#[test]
fn a_long_document_is_read_as_yaml() {
    let mut snapshot = snapshot();
    snapshot.nodes[0].closed_gpus = (0..260_000_u32).map(|gpu| (gpu % 64) as u16).collect();
    let text = text(&snapshot, DocumentFormat::Yaml).unwrap();
    assert_eq!(parse::<Snapshot>(&text, DocumentFormat::Yaml).unwrap(), snapshot);
}

#[test]
fn errors_name_the_file_and_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let message = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        read::<Snapshot>(&path, "cluster").unwrap_err().to_string()
    };
    for (name, bytes, wanted) in [
        ("a.txt", &b"{}"[..], "a.txt: unknown file extension; use .json, .yaml or .yml"),
        (
            "a.json",
            b"{\n  \"version\": x}",
            "a.json: is not a valid cluster: expected value at line 2",
        ),
        ("a.json", b"{\"version\": 1, \"nods\": []}", "unknown field `nods`"),
        ("a.yaml", b"version: 1\nclasses: {}\nnodes: [{}]\n", "line 3"),
        ("a.yaml", b"\xff\xfe", "is not a valid cluster: invalid utf-8"),
    ] {
        let message = message(name, bytes);
        assert!(message.contains(wanted), "{name}: {message}");
    }
    let missing = read::<Snapshot>(&folder.path().join("none.json"), "cluster").unwrap_err();
    assert!(missing.to_string().contains("none.json: cannot be read"), "{missing}");
    let error = write(&snapshot(), &folder.path().join("no/such/folder.json")).unwrap_err();
    assert!(error.to_string().contains("cannot be written"), "{error}");
}
