use std::collections::BTreeSet;

use super::*;
use crate::trace;

fn options() -> Options {
    Options::default()
}

fn percent(snapshot: &Snapshot) -> i64 {
    let totals = *snapshot.world().unwrap().cluster.totals();
    totals.used_milli * 100 / totals.gpu_milli
}

#[test]
fn a_machine_without_a_block_is_refused() {
    let machines = vec![Machine::H100, Machine::T4];
    let error = cluster(&Options { machines, blocks: 1, ..options() }).unwrap_err();
    assert!(error.to_string().contains("2 machines in 1 blocks"), "{error}");
}

#[test]
fn generated_cluster_is_marked_synthetic() {
    for machines in [
        vec![Machine::H100],
        vec![Machine::A100Pcie],
        vec![Machine::A100],
        vec![Machine::Gb200],
        vec![Machine::L40s],
        vec![Machine::T4],
        vec![Machine::Gb200, Machine::L40s, Machine::T4],
    ] {
        let blocks = options().blocks.max(u32::try_from(machines.len()).unwrap());
        let options = Options { machines: machines.clone(), blocks, ..options() };
        let snapshot = cluster(&options).unwrap();
        assert!(snapshot.synthetic);
        let world = snapshot.world().unwrap();
        let gangs = snapshot.gangs(&world).unwrap();
        assert_eq!(gangs.len(), 3, "{machines:?}");
        // No node is overcommitted: the cluster would have accepted the same pods one by one.
        for node in world.cluster.nodes() {
            let free = world.cluster.free(node);
            assert!(free.cpu_milli >= 0 && free.memory_mib >= 0 && free.pods >= 0, "{free:?}");
        }
        let tenants: BTreeSet<_> =
            snapshot.running.iter().map(|workload| &workload.profile.tenant).collect();
        assert!(
            tenants.len() > 1 && tenants.iter().all(|name| snapshot.tenants.contains_key(*name))
        );
    }
}

#[test]
fn topology_is_that_of_the_machines() {
    let nvl72 = Options { machines: vec![Machine::Gb200], blocks: 2, racks: 3, ..options() };
    let snapshot = cluster(&Options { nodes: Some(36), ..nvl72 }).unwrap();
    let world = snapshot.world().unwrap();
    let levels: Vec<&str> = world.topology.levels().iter().map(|level| &**level).collect();
    assert_eq!(levels, ["cluster", "block", "rack", "clique"]);
    let clique = world.topology.level_named("clique").unwrap();
    let sizes: Vec<_> = world.topology.at(clique).map(|(_, domain)| domain.nodes.len()).collect();
    assert_eq!(sizes, [18; 12]);
    // Node names sort in topology order, whatever the number of digits.
    let order = world.topology.order();
    assert!(order.is_sorted());

    let pcie = Options { machines: vec![Machine::A100Pcie], ..options() };
    let snapshot = cluster(&pcie).unwrap();
    let links = &snapshot.classes["a100-pcie-8"].links;
    assert_eq!(links.0, [vec![0, 0, 0, 0, 1, 1, 1, 1], vec![0, 0, 1, 1, 2, 2, 3, 3]]);
    let four = cluster(&Options { gpus: Some(4), ..pcie }).unwrap();
    assert_eq!(four.classes["a100-pcie-8"].links.0, [[0, 0, 1, 1]]);
    assert_eq!(cluster(&options()).unwrap().levels.len(), 2);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let bytes = |options: &Options| {
        let snapshot = cluster(options).unwrap();
        let lists = lists(options, &Load::default()).unwrap();
        (serde_json::to_string(&snapshot).unwrap(), lists)
    };
    let first = bytes(&options());
    assert_eq!(first, bytes(&options()));
    let other = bytes(&Options { seed: 2, ..options() });
    assert_ne!(first.0, other.0);
    assert_ne!(first.1.pods, other.1.pods);
    // More waiting gangs change no running workload.
    let more = cluster(&Options { waiting: 9, ..options() }).unwrap();
    let before: Snapshot = serde_json::from_str(&first.0).unwrap();
    assert_eq!((more.running, more.waiting.len()), (before.running, 9));
}

#[test]
fn as_much_is_given_out_as_was_asked_for() {
    for fill in ["0", "0.25", "0.5", "0.9", "0.97"] {
        let fill: Fraction = fill.parse().unwrap();
        for machines in [vec![Machine::H100], vec![Machine::T4], vec![Machine::A100Pcie]] {
            let snapshot = cluster(&Options { machines, fill, ..options() }).unwrap();
            let asked = i64::from(fill.milli()) / 10;
            assert!((asked - 2..=asked).contains(&percent(&snapshot)), "{fill}");
        }
    }
    let empty = cluster(&Options { fill: "0".parse().unwrap(), ..options() }).unwrap();
    assert!(empty.running.is_empty());
}

#[test]
fn the_mix_is_kept() {
    let snapshot = cluster(&Options { blocks: 8, racks: 8, ..options() }).unwrap();
    let world = snapshot.world().unwrap();
    let used = world.cluster.totals().used_milli;
    let part = |role: &str| {
        let of_role = |workload: &&octavo_engine::Workload| workload.profile.name.starts_with(role);
        let milli: i64 = world
            .workloads
            .iter()
            .map(|(_, workload)| workload)
            .filter(of_role)
            .map(octavo_engine::Workload::gpu_milli)
            .sum();
        milli * 100 / used
    };
    let parts = ["train-", "tune-", "notebook-", "batch-", "serve-"].map(part);
    for (part, asked) in parts.into_iter().zip([35, 20, 5, 25, 15]) {
        assert!((asked - 3..=asked + 3).contains(&part), "{parts:?}");
    }
    let gang = snapshot.running.iter().find(|workload| workload.min_members > 1).unwrap();
    assert_eq!(gang.members.len(), gang.min_members as usize);
    assert!(gang.profile.name.starts_with("train-"));

    let shares: Mix = "share=1".parse().unwrap();
    let snapshot = cluster(&Options { mix: shares, ..options() }).unwrap();
    assert!(snapshot.running.iter().all(|w| w.profile.name.starts_with("serve-")));
}

#[test]
fn lists_are_read_as_traces() {
    let folder = tempfile::tempdir().unwrap();
    let (nodes, pods) = (folder.path().join("nodes.csv"), folder.path().join("pods.csv"));
    let options = Options { machines: vec![Machine::A100Pcie, Machine::T4], ..options() };
    let load = Load { hours: 200, wanted: 0.8, mean_minutes: 60 };
    let lists = lists(&options, &load).unwrap();
    std::fs::write(&nodes, &lists.nodes).unwrap();
    std::fs::write(&pods, &lists.pods).unwrap();
    let trace = trace::Trace::read(&nodes, &pods).unwrap();
    assert_eq!(trace.pods.len() as u64, lists.pod_count);
    assert_eq!(trace.nodes.len(), cluster(&options).unwrap().nodes.len());
    // Requested GPU-seconds over available ones: the load, less the part after the end.
    let seconds = |pod: &trace::PodRow| pod.deletion_time.unwrap() - pod.creation_time.unwrap();
    let wanted: u64 = trace.pods.iter().map(|pod| pod.total_gpu_milli() * seconds(pod)).sum();
    let percent = wanted * 100 / (trace.capacity_gpu_milli() * 200 * 3600);
    assert!((65..=95).contains(&percent), "{percent}");
    assert!(trace.pods.iter().all(|pod| pod.deletion_time <= Some(200 * 3600)));
    let times: Vec<_> = trace.pods.iter().filter_map(|pod| pod.creation_time).collect();
    assert!(times.is_sorted() && times.last() < Some(&(200 * 3600)));
    for (name, has) in [
        ("no GPU", trace.pods.iter().any(|pod| pod.num_gpu == 0)),
        ("a share", trace.pods.iter().any(|pod| pod.num_gpu == 1 && pod.gpu_milli < 1000)),
        ("several", trace.pods.iter().any(|pod| pod.num_gpu == 8)),
        ("a model", trace.pods.iter().any(|pod| pod.models == ["Tesla T4"])),
    ] {
        assert!(has, "{name}");
    }
}

#[test]
fn impossible_options_are_reported() {
    let message = |options: &Options| cluster(options).unwrap_err().to_string();
    let many = Options { blocks: 100_000, racks: 100_000, ..options() };
    assert!(message(&many).contains("the maximum is 4000000: use fewer blocks, racks or nodes"));
    let twice = Options { machines: vec![Machine::T4, Machine::T4], ..options() };
    assert!(message(&twice).contains("t4-2 is listed twice"));
    assert!(message(&Options { machines: Vec::new(), ..options() }).contains("no machine"));

    let load = |load: Load| lists(&options(), &load).unwrap_err().to_string();
    let default = Load::default();
    for wanted in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(load(Load { wanted, ..default }).contains("the load is"), "{wanted}");
    }
    let long = Load { hours: 100_000, mean_minutes: 1, ..default };
    assert!(load(long).contains("fewer hours or longer lives"));

    for text in ["", "0.", ".5", "1.001", "2", "-0.5", "0.1234", "half", "0,5", "1e-1", "99999.0"] {
        let error = text.parse::<Fraction>().unwrap_err().to_string();
        assert!(error.contains("from 0 to 1"), "{text}: {error}");
    }
    assert_eq!("1".parse::<Fraction>().unwrap().milli(), 1000);
    assert_eq!("0.05".parse::<Fraction>().unwrap().to_string(), "0.050");
    for (text, problem) in [
        ("gang", "a part lacks its ="),
        ("gnag=1", "kinds are gang, node, mig, one and share"),
        ("gang=x", "not a whole number"),
        ("gang=-1", "not a whole number"),
        ("gang=1,gang=2", "listed twice"),
        ("gang=0", "all parts are 0"),
        ("gang=9999999", "above 1000000"),
    ] {
        let error = text.parse::<Mix>().unwrap_err().to_string();
        assert!(error.contains(problem), "{text}: {error}");
    }
}

#[derive(Debug, clap::Parser)]
struct Typed {
    #[command(flatten)]
    args: args::GenerateArgs,
}

#[test]
fn wrong_flags_are_named() {
    use clap::Parser;
    let parse = |words: &[&str]| Typed::try_parse_from([&["generate"], words].concat());
    for (words, wanted) in [
        (&["--fill", "2"][..], "from 0 to 1"),
        (&["--machine", "h200"], "possible values: h100-8"),
        (&["--blocks", "0"], "0 is not in 1..=100000"),
        (&["--gpus", "65"], "65 is not in 1..=64"),
        (&["--mix", "gang"], "a part lacks its ="),
        (&["--hours", "-1"], "unexpected argument"),
        (&["--load", "much"], "invalid float"),
    ] {
        let message = parse(words).unwrap_err().to_string();
        assert!(message.contains(wanted), "{words:?}: {message}");
    }
    assert_eq!(parse(&[]).unwrap().args.options(), options(), "one set of defaults");
}

#[test]
fn written_files_are_reported() {
    use clap::Parser;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = |words: &[String]| {
        let words = std::iter::once("generate".to_owned()).chain(words.iter().cloned());
        let mut out = Vec::new();
        args::run(&Typed::try_parse_from(words).unwrap().args, &mut out)
            .map(|()| String::from_utf8(out).unwrap())
    };
    let flag = |name: &str, file: &str| [name.to_owned(), path(file)];
    let text = run(&flag("--out", "cluster.yaml")).unwrap();
    assert!(text.contains("synthetic, 32 nodes, 256 GPUs, 70 % allocated"), "{text}");
    let read: Snapshot = crate::document::read(&folder.path().join("cluster.yaml"), "c").unwrap();
    assert_eq!(read, cluster(&options()).unwrap());
    let lists = [flag("--nodes-csv", "nodes.csv"), flag("--pods-csv", "pods.csv")].concat();
    let text = run(&lists).unwrap();
    assert!(text.contains("32 nodes") && text.contains("pods in 24 h"), "{text}");
    // Without a file, the document goes to standard output.
    let text = run(&[]).unwrap();
    assert!(text.contains("synthetic: true"));
    let error = run(&flag("--out", "cluster.txt")).unwrap_err().to_string();
    assert!(error.contains("use .json, .yaml or .yml"), "{error}");
}
