use super::GpuMode::{self, DynamicMig, Free, Shared, StaticMig, Whole};

const ALL: [GpuMode; 5] = [Free, Whole, Shared, StaticMig, DynamicMig];

#[test]
fn a_gpu_serves_one_mode_and_both_kinds_of_instances() {
    let admitted = |mode: GpuMode| ALL.into_iter().filter(move |wanted| mode.admits(*wanted));
    assert_eq!(admitted(Free).collect::<Vec<_>>(), ALL);
    assert_eq!(admitted(Whole).collect::<Vec<_>>(), [Free]);
    assert_eq!(admitted(Shared).collect::<Vec<_>>(), [Free, Shared]);
    for mig in [StaticMig, DynamicMig] {
        assert_eq!(admitted(mig).collect::<Vec<_>>(), [Free, StaticMig, DynamicMig]);
    }
    for (one, two) in ALL.into_iter().flat_map(|one| ALL.map(|two| (one, two))) {
        assert_eq!(one.admits(two), two.admits(one), "{one:?} and {two:?}: the order is no matter");
    }
}
