//! Published figures for openb, for comparison.
//!
//! They are the means of seeds 42 to 51 that FGD's authors ship as the expected results of their
//! artifact. There are six policies on seventeen lists, each tuned to 130 % demand. Figures have
//! two decimals, or three if the mean of ten two-decimal results lies between two.
//!
//! The authors' simulator sometimes allocates a GPU twice, so a hundredth of a point proves
//! nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

const TABLE: &str = include_str!("../data/published.csv");

/// The policies of the table: the authors' `01-Random`, `02-DotProd`, `03-GpuClustering`,
/// `04-GpuPacking`, `05-BestFit` and `06-FGD`.
pub const POLICIES: [&str; 6] = ["random", "dotprod", "clustering", "packing", "bestfit", "fgd"];

/// Workload, then policy, then percent.
static MEANS: LazyLock<BTreeMap<String, BTreeMap<String, f64>>> = LazyLock::new(|| parse(TABLE));

/// GPUs allocated at 130 % demand, in percent of the cluster's 6,212. `None` if it was not
/// published.
pub fn mean(workload: &str, policy: &str) -> Option<f64> {
    MEANS.get(workload)?.get(policy).copied()
}

/// The workloads of the table, sorted.
pub fn workloads() -> impl Iterator<Item = &'static str> {
    MEANS.keys().map(String::as_str)
}

/// The workload of a pod list by its file name: `X` of `openb_pod_list_X.csv`, if the table has it.
pub fn workload_of(pod_list: &Path) -> Option<&'static str> {
    let file = pod_list.file_name()?.to_str()?;
    let workload = file.strip_prefix("openb_pod_list_")?.strip_suffix(".csv")?;
    MEANS.get_key_value(workload).map(|(workload, _)| workload.as_str())
}

/// Invalid rows and fields are skipped; a test checks that there are none.
fn parse(table: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(table.as_bytes());
    let Ok(header) = reader.headers().cloned() else { return BTreeMap::new() };
    let row = |record: csv::StringRecord| {
        let means = header.iter().zip(&record).skip(1);
        let means =
            means.filter_map(|(policy, mean)| Some((policy.to_owned(), mean.parse().ok()?)));
        Some((record.get(0)?.to_owned(), means.collect()))
    };
    reader.records().filter_map(Result::ok).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        assert_eq!(workloads().count(), 17);
        for workload in workloads() {
            for policy in POLICIES {
                let mean = mean(workload, policy).unwrap();
                assert!((79.0..98.0).contains(&mean), "{workload} {policy}: {mean}");
            }
            assert_eq!(MEANS[workload].len(), POLICIES.len(), "{workload}");
        }
        assert!(TABLE.starts_with("# Weng et al."), "the first line names the source");
    }

    /// A slip in a cell would most likely break the rule, or the idle GPUs of the default list.
    #[test]
    fn fgd_leads_on_every_list() {
        for workload in workloads() {
            let fgd = mean(workload, "fgd").unwrap();
            for rival in POLICIES.iter().filter(|policy| **policy != "fgd") {
                assert!(fgd > mean(workload, rival).unwrap() + 0.9, "{workload} {rival}");
            }
        }
        let idle = |policy| 6212.0 * (1.0 - mean("default", policy).unwrap() / 100.0);
        let idle = ["fgd", "bestfit", "random"].map(|policy| format!("{:.0}", idle(policy)));
        assert_eq!(idle, ["286", "430", "778"]);
    }

    #[test]
    fn a_list_is_known_by_its_file_name() {
        let known = |path: &str| workload_of(Path::new(path));
        assert_eq!(known("data/openb_pod_list_gpushare40.csv"), Some("gpushare40"));
        for other in ["openb_pod_list_mine.csv", "default.csv", "openb_pod_list_default", "", "/"] {
            assert_eq!(known(other), None, "{other}");
        }
        assert_eq!(mean("default", "price"), None);
        assert_eq!(mean("mine", "fgd"), None);
    }
}
