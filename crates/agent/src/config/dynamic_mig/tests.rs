use super::*;
use crate::config::NodeFile;

fn minors(numbers: &[u32]) -> DynamicMig {
    DynamicMig::Gpus(numbers.iter().copied().map(GpuName::Minor).collect())
}

#[test]
fn it_is_all_none_or_minor_numbers_in_each_place_s_own_way() {
    assert_eq!("all".parse(), Ok(DynamicMig::All));
    assert_eq!("none".parse(), Ok(DynamicMig::None));
    assert_eq!("3,0".parse(), Ok(minors(&[0, 3])));
    assert_eq!(DynamicMig::from_label("0_3"), Ok(minors(&[0, 3])));
    assert_eq!(DynamicMig::from_label("7"), Ok(minors(&[7])));
    let file = |text: &str| serde_saphyr::from_str::<NodeFile>(text).unwrap().dynamic_mig;
    assert_eq!(file("dynamicMig: all"), Some(DynamicMig::All));
    assert_eq!(file("dynamicMig: none"), Some(DynamicMig::None));
    assert_eq!(file("dynamicMig: [0, 3]"), Some(minors(&[0, 3])));
    assert_eq!(file("dynamicMig: 3"), Some(minors(&[3])));
    assert_eq!(file("dynamicMig: \"0,3\""), Some(minors(&[0, 3])));
    assert_eq!(file("nodeName: a"), None);
}

#[test]
fn what_says_nothing_is_refused_with_what_would() {
    for text in ["", "some", "0_3", "-1", "0,,3", "0-3"] {
        let error = text.parse::<DynamicMig>().unwrap_err().to_string();
        assert!(error.contains("`all`") && error.contains("`0,3`"), "{error}");
    }
    let error = DynamicMig::from_label("0,3").unwrap_err().to_string();
    let words = "\"0,3\" does not say which GPUs to cut: give `all`, `none`, or minor numbers or UUIDs as in `0_3`";
    assert_eq!(error, words, "a label can have no PCI address");
    for text in ["dynamicMig: some", "dynamicMig: [a]", "dynamicMig: -1", "dynamicMig: {}"] {
        assert!(serde_saphyr::from_str::<NodeFile>(text).is_err(), "{text}");
    }
}

#[test]
fn a_gpu_is_cut_if_it_is_named() {
    let gpu = crate::testing::gpu;
    assert!(DynamicMig::All.has(&gpu(5)) && !DynamicMig::None.has(&gpu(0)));
    assert!(minors(&[0, 3]).has(&gpu(3)) && !minors(&[0, 3]).has(&gpu(1)));
    let (uuid, pci) = (gpu(1).uuid, gpu(2).pci.to_string());
    let named: DynamicMig = format!("{uuid},{pci}").parse().unwrap();
    assert!(named.has(&gpu(1)) && named.has(&gpu(2)) && !named.has(&gpu(0)));
    let written = format!("dynamicMig: [0, \"{uuid}\", \"{pci}\"]");
    let file = serde_saphyr::from_str::<NodeFile>(&written).unwrap().dynamic_mig.unwrap();
    assert!(file.has(&gpu(0)) && file.has(&gpu(1)) && file.has(&gpu(2)) && !file.has(&gpu(3)));
    // Its minor number may be another one tomorrow.
    let mut moved = gpu(1);
    moved.minor = 7;
    assert!(named.has(&moved));
    assert_eq!(DynamicMig::from_label(&uuid), Ok(DynamicMig::Gpus([GpuName::Uuid(uuid)].into())));
}
