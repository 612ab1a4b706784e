use octavo_engine::{GpuDemand, Resources};

use super::*;

#[test]
fn consecutive_members_of_one_shape_form_a_group() {
    let shape = |gpus| {
        Arc::new(Shape::new(Resources::of_pod(1000, 1000), GpuDemand::Whole { count: gpus }))
    };
    let (one, two) = (shape(1), shape(2));
    let counts = |shapes: &[Option<&Arc<Shape>>]| -> Vec<(u32, u32, u16)> {
        let groups = groups_of(shapes.iter().copied());
        groups.iter().map(|group| (group.count, group.min, group.shape.gpus.count())).collect()
    };
    assert_eq!(counts(&[Some(&one), Some(&one), None, Some(&two)]), [(3, 3, 1), (1, 1, 2)]);
    assert_eq!(counts(&[None, Some(&two), Some(&one)]), [(2, 2, 2), (1, 1, 1)]);
    assert_eq!(counts(&[None]), []);
}
