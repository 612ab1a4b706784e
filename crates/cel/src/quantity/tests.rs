use proptest::prelude::*;

use super::{NANOS, Notation, ParseQuantityError, Quantity};

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_suffix_means_its_power() {
    for (text, nanos) in [
        ("1n", 1),
        ("1u", 1_000),
        ("1m", 1_000_000),
        ("1", NANOS),
        ("1k", 1_000 * NANOS),
        ("1M", 1_000_000 * NANOS),
        ("1G", NANOS * NANOS),
        ("1T", 1_000 * NANOS * NANOS),
        ("1P", 1_000_000 * NANOS * NANOS),
        ("1E", NANOS * NANOS * NANOS),
        ("1Ki", 1024 * NANOS),
        ("1Mi", (1 << 20) * NANOS),
        ("1Gi", (1 << 30) * NANOS),
        ("1Ti", (1 << 40) * NANOS),
        ("1Pi", (1 << 50) * NANOS),
        ("1Ei", (1 << 60) * NANOS),
        ("1e3", 1_000 * NANOS),
        ("1E3", 1_000 * NANOS),
        ("1E-3", 1_000_000),
        ("1e+3", 1_000 * NANOS),
        ("+.5Gi", (1 << 29) * NANOS),
        ("-1.5", -3 * NANOS / 2),
        ("1.", NANOS),
    ] {
        assert_eq!(parse(text).nanos(), nanos, "{text}");
    }
}

#[test]
fn text_is_canonical_as_kubernetes_prints_it() {
    for (text, canonical) in [
        ("0", "0"),
        ("0Gi", "0"),
        ("0e3", "0"),
        ("1024Mi", "1Gi"),
        ("81559Mi", "81559Mi"),
        ("1024", "1024"),
        ("1000", "1k"),
        ("1500m", "1500m"),
        ("2000m", "2"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023Ki", "1023Ki"),
        ("0.3Ki", "307200m"),
        ("1e3", "1e3"),
        ("1e1", "10"),
        ("100e3", "100e3"),
        ("1000e3", "1e6"),
        ("5e-3", "5e-3"),
        ("-1024Ki", "-1Mi"),
        // Without a suffix it reads back as decimal, and is printed as 64k then.
        ("62.5Ki", "64000"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1e-40", "1e-9"),
        ("12345678901234567890", "12345678901234567890"),
        ("1000E", "1000E"),
    ] {
        assert_eq!(parse(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn what_is_no_quantity_is_refused_with_its_reason() {
    assert_eq!("".parse::<Quantity>(), Err(ParseQuantityError::Empty));
    for text in ["Gi", "-", "1.2.3", ".", "+", " 1", "ten"] {
        assert_eq!(
            text.parse::<Quantity>(),
            Err(ParseQuantityError::Number(text.to_owned())),
            "{text}"
        );
    }
    for text in ["1K", "1ki", "1GB", "1 Gi", "1e", "1e1.5", "--1x", "1Gi ", "1_000"] {
        let error = text.parse::<Quantity>().expect_err(text).to_string();
        assert!(error.contains("suffix") || error.contains("number"), "{text}: {error}");
    }
    for text in ["1e40", "999999999999999999999999999999999999999999", "1e2147483647"] {
        assert_eq!(
            text.parse::<Quantity>(),
            Err(ParseQuantityError::Range(text.to_owned())),
            "{text}"
        );
    }
}

#[test]
fn whole_values_round_away_from_zero() {
    assert_eq!(parse("1.1").value(), 2);
    assert_eq!(parse("-1.1").value(), -2);
    assert_eq!(parse("1n").milli_value(), 1);
    assert_eq!(parse("1500m").milli_value(), 1500);
}

#[test]
fn notation_does_not_change_the_value() {
    assert_eq!(parse("1Ki"), parse("1024"));
    assert!(parse("1Ki") > parse("1k"));
    assert_eq!(Quantity::binary(1 << 30).to_string(), "1Gi");
    assert_eq!(Quantity::decimal(1 << 10).to_string(), "1024");
}

fn notation() -> impl Strategy<Value = Notation> {
    prop_oneof![
        Just(Notation::DecimalSi),
        Just(Notation::BinarySi),
        Just(Notation::DecimalExponent)
    ]
}

proptest! {
    #[test]
    fn a_printed_quantity_reads_back_as_itself(nanos in -(1_i128 << 120)..(1_i128 << 120), notation in notation()) {
        let quantity = Quantity::from_nanos(nanos, notation);
        prop_assert_eq!(parse(&quantity.to_string()), quantity);
        // Whole numbers use the binary suffixes.
        let whole = Quantity::from_nanos(nanos / NANOS * NANOS, notation);
        prop_assert_eq!(parse(&whole.to_string()), whole);
    }

    #[test]
    fn printing_keeps_the_value_and_is_stable_from_the_second_time_on(text in "[+-]?[0-9]{1,9}(\\.[0-9]{1,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9])?") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let printed = quantity.to_string();
            prop_assert_eq!(parse(&printed), quantity);
            let again = parse(&printed).to_string();
            prop_assert_eq!(parse(&again).to_string(), again);
        }
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in ".{0,40}") {
        if let Err(error) = text.parse::<Quantity>() {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn sum_and_difference_are_exact(a in any::<i64>(), b in any::<i64>()) {
        let (qa, qb) = (Quantity::decimal(a), Quantity::binary(b));
        let sum = qa.checked_add(qb).expect("64 bits fit");
        prop_assert_eq!(sum.value(), i128::from(a) + i128::from(b));
        prop_assert_eq!(sum.checked_sub(qb), Some(qa));
        prop_assert_eq!(qa.cmp(&qb), a.cmp(&b));
    }
}

#[test]
fn overflow_is_none_and_does_not_wrap() {
    let most = Quantity::from_nanos(i128::MAX, Notation::DecimalSi);
    assert_eq!(most.checked_add(Quantity::decimal(1)), None);
    assert_eq!(most.checked_mul(2), None);
    let least = Quantity::from_nanos(i128::MIN, Notation::DecimalSi);
    assert_eq!(least.checked_sub(Quantity::decimal(1)), None);
}
