use super::*;

fn report(figures: &[(&str, Option<f64>)]) -> Report {
    let figure = |(what, median): &(&str, Option<f64>)| Figure {
        what: (*what).to_owned(),
        unit: "ms".to_owned(),
        median: *median,
    };
    Report { commit: "abc".to_owned(), figures: figures.iter().map(figure).collect() }
}

#[test]
fn sides_alternate_in_their_order() {
    assert_eq!(order(0), [Side::Before, Side::After]);
    assert_eq!(order(1), [Side::After, Side::Before]);
}

#[test]
fn interval_leaves_out_as_many_as_tables_of_the_sign_test_say() {
    // Conover, Practical Nonparametric Statistics, table of the binomial distribution, p = 0.5.
    for (n, left_out) in [(6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (20, 5)] {
        let values: Vec<f64> = (0..n).map(f64::from).collect();
        let expected = (f64::from(left_out), f64::from(n - 1 - left_out));
        assert_eq!(sign_test_interval(&values), Some(expected), "{n}");
    }
    assert_eq!(sign_test_interval(&[1.0; 5]), None);
    assert_eq!(sign_test_interval(&[]), None);
}

#[test]
fn change_is_the_median_within_pairs() {
    // The machine became ten times slower, which affects both sides of a pair.
    let before: Vec<_> =
        [1.0, 10.0, 1.0, 10.0, 1.0, 10.0].map(|at| Some(report(&[("prepare", Some(at))]))).into();
    let after: Vec<_> =
        [1.1, 11.0, 1.1, 11.0, 1.1, 11.0].map(|at| Some(report(&[("prepare", Some(at))]))).into();
    let table = table(&before, &after).unwrap();
    assert!(table.contains("| +10.0 | +10.0 to +10.0 |"), "{table}");
}

#[test]
fn figures_of_one_side_are_named() {
    let before = [Some(report(&[("both", Some(0.0)), ("old", Some(1.0))]))];
    let after = [Some(report(&[("both", Some(0.0)), ("new", Some(1.0)), ("failed: why", None)]))];
    let table = table(&before, &after).unwrap();
    for line in [
        "| both | ms | 1 | 0.0000 | 0.0000 | +0.0 | needs six pairs |",
        "Only before: old (ms).",
        "Only after: new (ms).",
    ] {
        assert!(table.contains(line), "{line} is not in\n{table}");
    }
    assert!(!table.contains("failed"), "{table}");
}

#[test]
fn a_run_without_a_report_or_figure_costs_its_pair_only() {
    let one = |at| Some(report(&[("both", at)]));
    let before = [one(Some(1.0)), None, one(Some(1.0))];
    let after = [one(Some(2.0)), one(Some(9.0)), one(None)];
    let table = table(&before, &after).unwrap();
    assert!(table.contains("| both | ms | 1 | 1.0000 | 2.0000 | +100.0 |"), "{table}");
}

#[test]
fn nothing_in_common_is_an_error() {
    let error =
        table(&[Some(report(&[("old", Some(1.0))]))], &[Some(report(&[("new", Some(1.0))]))]);
    assert!(error.unwrap_err().to_string().contains("no figure in common"));
    assert!(table(&[], &[]).is_err());
}
