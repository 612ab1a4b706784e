use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

const NODES: &str =
    "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,96000,786432,8,T4\n";
const PODS: &str =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n";

fn openb(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/openb").join(file)
}

fn nodes(text: &str) -> Result<Vec<NodeRow>, TraceError> {
    nodes_from(text.as_bytes(), "nodes.csv")
}

fn pods(text: &str) -> Result<Vec<PodRow>, TraceError> {
    pods_from(text.as_bytes(), "pods.csv", &nodes(NODES).unwrap())
}

/// The error of reading a pod list with this one row.
fn complaint(row: &str) -> String {
    pods(&format!("{PODS}{row}\n")).unwrap_err().to_string()
}

#[test]
fn openb_is_read_whole() {
    let (nodes, pods) = ("openb_node_list_gpu_node.csv", "openb_pod_list_default.csv");
    let trace = Trace::read(&openb(nodes), &openb(pods)).unwrap();
    assert_eq!((trace.nodes.len(), trace.pods.len()), (1213, 8152));
    assert_eq!((trace.capacity_gpu_milli(), trace.demand_gpu_milli()), (6_212_000, 6_086_800));
    let second = PodRow {
        name: "openb-pod-0001".into(),
        cpu_milli: 6000,
        memory_mib: 12288,
        num_gpu: 1,
        gpu_milli: 460,
        models: Vec::new(),
        qos: "LS".into(),
        phase: "Running".into(),
        creation_time: Some(427_061),
        deletion_time: Some(12_902_960),
        scheduled_time: Some(427_061),
    };
    assert_eq!(trace.pods[1], second);
    let node = NodeRow {
        name: "openb-node-0000".into(),
        cpu_milli: 64000,
        memory_mib: 262_144,
        gpus: 2,
        model: "P100".into(),
    };
    assert_eq!(trace.nodes[0], node);
}

#[test]
fn columns_are_found_by_name() {
    let list = "# a comment\r\ngpu_milli, colour ,num_gpu,memory_mib,cpu_milli,name\r\n1000,red,2,7,3.0,p\r\n";
    let pod = pods(list).unwrap().remove(0);
    assert_eq!((pod.name.as_str(), pod.cpu_milli, pod.memory_mib), ("p", 3, 7));
    assert_eq!((pod.num_gpu, pod.gpu_milli, pod.total_gpu_milli()), (2, 1000, 2000));
    assert_eq!((pod.creation_time, pod.models.len()), (None, 0));
}

#[test]
fn models_are_alternatives_each_once() {
    let spec = |spec: &str| pods(&format!("{PODS}p,1,1,1,1000,{spec},,\n")).unwrap().remove(0);
    assert_eq!(spec("T4| P100 |T4").models, ["P100", "T4"]);
    let pod = spec("V100M16|G3");
    assert!(pod.is_allowed_on("G3") && !pod.is_allowed_on("T4"), "known, though no node has one");
    assert!(spec("").is_allowed_on("anything"));
}

#[test]
fn unknown_model_error_lists_existing_models() {
    let message = complaint("p,1,1,1,1000,P100|T40,,");
    assert_eq!(
        message,
        "pods.csv: line 2, column gpu_spec: no GPU is called `T40`; the nodes have P100 and T4"
    );
    assert!(
        complaint("p,1,1,1,1000,T4||P100,,")
            .contains("column gpu_spec: `T4||P100` is not GPU models")
    );
}

#[test]
fn impossible_quantities_are_reported_by_line_and_column() {
    for (row, column, value) in [
        ("p,-1,1,0,0,,,", "cpu_milli", "-1"),
        ("p,1.5,1,0,0,,,", "cpu_milli", "1.5"),
        ("p,1000000000000000,1,0,0,,,", "cpu_milli", "1000000000000000"),
        ("p,99999999999999999999999,1,0,0,,,", "cpu_milli", "99999999999999999999999"),
        ("p,+1,1,0,0,,,", "cpu_milli", "+1"),
        ("p,,1,0,0,,,", "cpu_milli", ""),
        ("p,0x10,1,0,0,,,", "cpu_milli", "0x10"),
        ("p,1,nan,0,0,,,", "memory_mib", "nan"),
        ("p,1,1,1025,1000,,,", "num_gpu", "1025"),
        ("p,1,1,1,1001,,,", "gpu_milli", "1001"),
        ("p,1,1,2,2000,,,", "gpu_milli", "2000"),
        ("p,1,1,1,1000,,-5,", "creation_time", "-5"),
        ("p,1,1,1,1000,,,1764500000000", "deletion_time", "1764500000000"),
    ] {
        let message = complaint(row);
        let expected = format!("pods.csv: line 2, column {column}: `{value}` is not a ");
        assert!(message.starts_with(&expected), "{row}: {message}");
        assert!(message.contains(" whole "), "{row}: {message}");
    }
}

#[test]
fn contradicting_fields_are_reported() {
    for (row, part) in [
        ("p,1,1,0,500,,,", "columns num_gpu, gpu_milli: requests 500 milli without a GPU"),
        ("p,1,1,2,0,,,", "columns num_gpu, gpu_milli: requests 0 milli of 2 GPU"),
        ("p,1,1,1,500,,9,8", "is deleted at 8, before its creation at 9"),
    ] {
        let message = complaint(row);
        assert!(message.starts_with("pods.csv: line 2, ") && message.contains(part), "{message}");
    }
    assert!(pods(&format!("{PODS}p,1,1,1,500,,9,9\n")).is_ok(), "a life of no second is one");
}

#[test]
fn rows_of_another_width_are_reported() {
    let message = complaint("p,1,1,0,0");
    assert!(
        message.starts_with("pods.csv: line 2: has 5 fields where the header has 8"),
        "{message}"
    );
    let message = complaint("p,1,1,0,0,,,,\n");
    assert!(message.contains("has 9 fields"), "{message}");
    let message = complaint("p,1,1,0,0,,,\n\nq,1,1,0\n");
    assert!(message.contains("line 4: has 4 fields"), "empty lines count: {message}");
    let message = complaint("p,1,1,0,0,,,\r\n# a comment\r\nq,1\r");
    assert!(
        message.contains("line 4: has 2 fields"),
        "comments, too, however lines end: {message}"
    );
}

#[test]
fn names_are_there_and_unique() {
    let message = complaint("p,1,1,0,0,,,\nq,1,1,0,0,,,\np,1,1,0,0,,,");
    assert_eq!(
        message,
        "pods.csv: line 4, column name: `p` is on line 2 already; names are unique"
    );
    assert!(complaint(",1,1,0,0,,,").contains("line 2, column name: `` is not a name"));
    let message = nodes("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1,T4\nn,1,1,1,T4\n").unwrap_err();
    assert!(
        message.to_string().contains("line 3, column sn: `n` is on line 2 already"),
        "{message}"
    );
}

#[test]
fn a_header_must_name_every_column_once() {
    let message = pods("name,cpu_milli,num_gpu,gpu_milli\np,1,1,1\n").unwrap_err().to_string();
    let part = "line 1: has no column `memory_mib`, only name, cpu_milli, num_gpu and gpu_milli";
    assert!(message.contains(part), "{message}");
    let message = pods("name,cpu_milli,cpu_milli\n").unwrap_err().to_string();
    assert!(message.contains("has the column `cpu_milli` twice"), "{message}");
}

#[test]
fn empty_list_is_reported() {
    for text in ["", "\n\n", "# only a comment\n"] {
        assert!(nodes(text).unwrap_err().to_string().contains("nodes.csv: lists no nodes"));
    }
    assert!(pods(PODS).unwrap_err().to_string().contains("pods.csv: lists no pods"));
}

#[test]
fn a_node_with_gpus_has_a_model() {
    let node = |row: &str| nodes(&format!("sn,cpu_milli,memory_mib,gpu,model\n{row}\n"));
    assert!(node("n,1,1,2,").unwrap_err().to_string().contains("line 2, column model: `` is not"));
    assert_eq!(node("n,1,1,0,").unwrap()[0].gpu_milli(), 0);
    assert!(node("n,1,1,1e3,T4").unwrap_err().to_string().contains("column gpu: `1e3` is not"));
}

#[test]
fn invalid_text_and_missing_files_are_reported() {
    let list = [PODS.as_bytes(), b"p,1,1,0,0,,,\nq\xff,1,1,0,0,,,\n"].concat();
    let message = pods_from(&list[..], "pods.csv", &[]).unwrap_err().to_string();
    assert!(message.contains("line 3: is not UTF-8 text from byte 2 on"), "{message}");
    let list = format!("{PODS}p,\"1,1,0,0,,,\nq,1,1,0,0,,,\n");
    let message = pods(&list).unwrap_err().to_string();
    assert!(message.contains("line 2: has a quote that is not closed"), "{message}");
    let message = pods(&PODS.replace('\n', "\r")).unwrap_err().to_string();
    assert!(message.contains("pods.csv: lists no pods"), "{message}");
    let message = pods(&format!("{PODS}p,1\rq,2\n")).unwrap_err().to_string();
    assert!(message.contains("line 2: has a bare carriage return"), "{message}");
    let message = pods(&"x".repeat(2 << 20)).unwrap_err().to_string();
    assert!(message.contains("line 1: is longer than 1048576 bytes"), "{message}");
    assert!(pods(&format!("\u{feff}{PODS}p,1,1,0,0,,,\n")).is_ok(), "a byte order mark is no name");
    let folder = tempfile::tempdir().unwrap();
    let message = read_nodes(&folder.path().join("none.csv")).unwrap_err().to_string();
    assert!(message.contains("none.csv: cannot be read"), "{message}");
    assert!(read_nodes(folder.path()).is_err(), "a folder is no list");
}

#[test]
fn errors_show_little_of_what_is_wrong() {
    let message =
        complaint(&format!("p,{},1,0,0,,,", "\"\u{1b}[31m".to_owned() + &"x".repeat(9000) + "\""));
    assert!(
        message.len() < 200 && !message.contains('\u{1b}') && message.contains("..."),
        "{message}"
    );
}

fn row() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        "[0-9]{0,6}",
        Just("T4|P100".to_owned()),
        Just("1000".to_owned()),
        Just("1".to_owned()),
        "[\"',|#\\.\\-\r\n0-9a-z]{0,5}",
    ];
    proptest::collection::vec(field, 0..10).prop_map(|fields| fields.join(","))
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = nodes_from(&bytes[..], "bytes");
        let _ = pods_from(&bytes[..], "bytes", &[]);
        // A valid header, so that the rows are parsed.
        let _ = nodes_from(&[NODES.as_bytes(), &bytes].concat()[..], "bytes");
        let _ = pods_from(&[PODS.as_bytes(), &bytes].concat()[..], "bytes", &[]);
    }

    #[test]
    fn nearly_valid_rows_are_read_or_reported(rows in proptest::collection::vec(row(), 0..8)) {
        let list = format!("{PODS}{}", rows.join("\n"));
        match pods(&list) {
            Ok(pods) => for pod in pods {
                prop_assert!(!pod.name.is_empty() && pod.gpu_milli <= GPU_MILLI);
                prop_assert_eq!(pod.num_gpu == 0, pod.gpu_milli == 0);
            },
            Err(error) => prop_assert!(error.to_string().starts_with("pods.csv: ")),
        }
    }

    #[test]
    fn what_is_written_is_read(
        cpu in 0..10_000_000u64, memory in 0..1u64 << 30, gpus in 1..9u32, milli in 1..1001u32,
        creation in 0..1_000_000u64, life in 0..1_000_000u64,
    ) {
        let deletion = creation + life;
        let text = format!("{PODS}\"a, b\",{cpu},{memory},{gpus},{milli},T4,{creation},{deletion}.0\n");
        let pod = PodRow {
            name: "a, b".into(), cpu_milli: cpu, memory_mib: memory, num_gpu: gpus, gpu_milli: milli,
            models: vec!["T4".into()], creation_time: Some(creation), deletion_time: Some(deletion),
            ..PodRow::default()
        };
        prop_assert_eq!(pods(&text).unwrap(), vec![pod]);
    }
}
