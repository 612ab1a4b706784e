use proptest::prelude::*;

use super::*;

fn tenant(weight: u32, used: i64, waiting: i64) -> Tenant {
    Tenant { weight, used, waiting }
}

fn shares(capacity: i64, tenants: &[(&str, Tenant)]) -> FairShares {
    let tenants = tenants.iter().map(|(name, tenant)| (Arc::from(*name), *tenant));
    FairShares::new(capacity, tenants.collect())
}

fn deserved_by(shares: &FairShares, name: &str) -> i64 {
    shares.tenants[name].1
}

#[test]
fn what_one_tenant_does_not_want_goes_to_the_others_by_weight() {
    // 12 GPUs: a wants 2, which is less than its third of 12; the other ten go 1 : 4.
    let shares = shares(
        12_000,
        &[("a", tenant(3, 1000, 1000)), ("b", tenant(1, 8000, 4000)), ("c", tenant(4, 0, 20_000))],
    );
    let deserved = ["a", "b", "c"].map(|name| deserved_by(&shares, name));
    assert_eq!(deserved, [2000, 2000, 8000]);
    // a lacks 1,000, b has more than it deserves, c lacks everything.
    assert_eq!(shares.deficit_after([]), 1000 + 8000);
    assert_eq!(shares.deficit_after([("a", 1000)]), 8000);
    assert_eq!(shares.deficit_after([("b", 1000)]), 9000, "b is beyond its share: no help");
    // Four GPUs of b go to c; b still has 4,000, more than its 2,000.
    assert_eq!(shares.deficit_after([("b", -4000), ("c", 4000)]), 1000 + 4000);
    assert_eq!(shares.deficit_after([("b", -7000), ("c", 7000)]), 1000 + 1000 + 1000);
}

#[test]
fn where_there_is_enough_each_deserves_what_it_wants() {
    let shares = shares(10_000, &[("a", tenant(1, 4000, 0)), ("b", tenant(9, 500, 1500))]);
    assert_eq!([deserved_by(&shares, "a"), deserved_by(&shares, "b")], [4000, 2000]);
    assert_eq!(shares.deficit_after([]), 1500);
}

#[test]
fn a_tenant_without_weight_deserves_what_is_left() {
    let tenants = [("a", tenant(0, 0, 9000)), ("b", tenant(1, 0, 6000)), ("c", tenant(0, 0, 500))];
    let shares = shares(8000, &tenants);
    assert_eq!(["a", "b", "c"].map(|name| deserved_by(&shares, name)), [1500, 6000, 500]);
}

#[test]
fn thousandths_that_do_not_divide_go_to_the_first() {
    let tenants = [("a", tenant(1, 0, 900)), ("b", tenant(1, 0, 900)), ("c", tenant(1, 0, 900))];
    let shares = shares(1000, &tenants);
    assert_eq!(["a", "b", "c"].map(|name| deserved_by(&shares, name)), [334, 333, 333]);
}

proptest! {
    #[test]
    fn shares_are_max_min(
        capacity in 0_i64..20_000,
        tenants in prop::collection::vec((0_u32..5, 0_i64..5000, 0_i64..5000), 1..7),
    ) {
        let tenants: Vec<_> = tenants.into_iter().map(|(w, u, q)| tenant(w, u, q)).collect();
        let deserved = deserved(capacity, &tenants);
        let wanted: i64 = tenants.iter().map(Tenant::wanted).sum();
        prop_assert_eq!(deserved.iter().sum::<i64>(), capacity.min(wanted));
        for (one, own) in tenants.iter().zip(&deserved) {
            prop_assert!(*own <= one.wanted());
            if *own == one.wanted() {
                continue;
            }
            // No tenant has more per weight, beyond rounding, than a tenant with unmet demand.
            for (other, others) in tenants.iter().zip(&deserved) {
                prop_assert!(
                    others * i64::from(one.weight) <= (own + 1) * i64::from(other.weight.max(1))
                        + i64::from(one.weight) || other.weight == 0 && *others == 0
                );
            }
        }
    }
}
