//! The tables are the results of Go's `k8s.io/apimachinery/pkg/api/resource` v0.36.3.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

#[rstest]
#[case::zero("0", 0, 0, "0")]
#[case::a_signed_zero("-0", 0, 0, "0")]
#[case::a_plus_sign("+5", 5, 5000, "5")]
#[case::no_digit_before_the_point(".5", 1, 500, "500m")]
#[case::no_digit_after_the_point("5.", 5, 5000, "5")]
#[case::leading_zeros("0005", 5, 5000, "5")]
#[case::milli("1500m", 2, 1500, "1500m")]
#[case::milli_that_is_whole("2000m", 2, 2000, "2")]
#[case::a_nano_is_something("1n", 1, 1, "1n")]
#[case::finer_than_a_nano_rounds_up("0.1n", 1, 1, "1n")]
#[case::a_micro("1u", 1, 1, "1u")]
#[case::fractions_of_a_milli_round_up("1500100u", 2, 1501, "1500100u")]
#[case::kilo("1k", 1000, 1_000_000, "1k")]
#[case::kilo_written_out("1000", 1000, 1_000_000, "1k")]
#[case::exa_is_not_an_exponent("1E", 1_000_000_000_000_000_000, i64::MAX, "1E")]
#[case::exbi_is_not_an_exponent("1Ei", 1 << 60, i64::MAX, "1Ei")]
#[case::a_fraction_of_a_gibibyte("1.5Gi", 1_610_612_736, 1_610_612_736_000, "1536Mi")]
#[case::a_binary_fraction_that_is_not_whole("1.1Ki", 1127, 1_126_400, "1126400m")]
#[case::a_binary_amount_below_one("0.0001Ki", 1, 103, "102400u")]
#[case::a_lower_exponent("1e3", 1000, 1_000_000, "1e3")]
#[case::an_upper_exponent("1E3", 1000, 1_000_000, "1e3")]
#[case::an_exponent_that_is_no_multiple_of_three("1e2", 100, 100_000, "100")]
#[case::a_negative_exponent("5e-3", 1, 5, "5e-3")]
#[case::an_exponent_with_a_plus("1e+3", 1000, 1_000_000, "1e3")]
#[case::twenty_seven_digits(
    "999999999999999999999999999",
    i64::MAX,
    i64::MAX,
    "999999999999999999999999999"
)]
#[case::beyond_all_use("1e30", i64::MAX, i64::MAX, "170141183460469231731687303715884105727e-9")]
#[case::an_absurd_exponent(
    "1e999999999",
    i64::MAX,
    i64::MAX,
    "170141183460469231731687303715884105727e-9"
)]
#[case::zero_with_an_absurd_exponent("0e999999999", 0, 0, "0")]
#[case::an_absurdly_small_one("1e-999999999", 1, 1, "1e-9")]
#[case::binary_is_capped("9Ei", i64::MAX, i64::MAX, "9223372036854775807")]
#[case::binary_is_capped_below("-9Ei", -i64::MAX, i64::MIN, "-9223372036854775807")]
#[case::negative("-1", -1, -1000, "-1")]
#[case::negative_rounds_away_from_zero("-1500m", -2, -1500, "-1500m")]
#[case::bytes_that_only_ten_divides("2000Ki", 2_048_000, 2_048_000_000, "2000Ki")]
fn read_rounded_and_written(
    #[case] text: &str,
    #[case] value: i64,
    #[case] milli: i64,
    #[case] canonical: &str,
) {
    let exact = parse(text).unwrap();
    assert_eq!((exact.value(), exact.milli_value()), (value, milli));
    assert_eq!(exact.to_string(), canonical);
}

#[rstest]
#[case::nothing("")]
#[case::a_sign("-")]
#[case::a_point(".")]
#[case::a_suffix("Gi")]
#[case::two_points("1.2.3")]
#[case::two_signs("--1")]
#[case::an_exponent_without_a_number("1e")]
#[case::an_exponent_with_a_fraction("1e3.5")]
#[case::an_exponent_beyond_64_bits("1e99999999999999999999")]
#[case::an_unknown_suffix("1Kb")]
#[case::a_capital_kilo("1K")]
#[case::a_suffix_and_an_exponent("1ke3")]
#[case::a_space(" 1")]
#[case::a_space_after("1 ")]
#[case::not_a_number("NaN")]
#[case::hexadecimal("0x10")]
#[case::digits_of_another_script("१२")]
fn refused(#[case] text: &str) {
    assert!(parse(text).is_err(), "{text} was read");
}

#[test]
fn kind_error_names_the_remedy() {
    insta::assert_snapshot!(parse("").unwrap_err(), @r#""" is not a quantity: write a number such as 500m, 2, 1.5 or 4Gi"#);
    insta::assert_snapshot!(parse("4GB").unwrap_err(), @r#""4GB" is not a quantity: "GB" is no suffix, use one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"#);
}

#[rstest]
#[case::a_fraction_of_a_core("cpu", 1500, "1500m")]
#[case::whole_cores("cpu", 2000, "2")]
#[case::a_hundred_cores("cpu", 100_000, "100")]
#[case::thousands_of_cores("cpu", 2_000_000, "2k")]
#[case::cores_that_are_no_round_thousand("cpu", 1_500_000, "1500")]
#[case::no_cores("cpu", 0, "0")]
#[case::fewer_than_no_cores("cpu", -500, "-500m")]
#[case::a_gibibyte("memory", 1 << 30, "1Gi")]
#[case::one_and_a_half_gibibytes("memory", 1536 << 20, "1536Mi")]
#[case::odd_bytes("memory", 1025, "1025")]
#[case::bytes_that_only_a_thousand_divides("memory", 2000, "2k")]
#[case::few_bytes("memory", 1000, "1k")]
#[case::fewer_than_no_bytes("memory", -2000, "-2k")]
#[case::bytes_that_both_divide("memory", 10_000_000_000, "9765625Ki")]
#[case::storage_is_bytes("ephemeral-storage", 4096, "4Ki")]
#[case::huge_pages_are_bytes("hugepages-2Mi", 4 << 20, "4Mi")]
#[case::devices_are_counted("nvidia.com/gpu", 8, "8")]
#[case::many_devices("nvidia.com/gpu", 8000, "8k")]
#[case::a_binary_number_of_devices("nvidia.com/gpu", 1024, "1024")]
#[case::pods("pods", 15, "15")]
#[case::the_largest_amount("pods", i64::MAX, "9223372036854775807")]
#[case::the_least_amount("memory", i64::MIN, "-8Ei")]
fn amounts_as_kueue_writes_them(#[case] resource: &str, #[case] amount: i64, #[case] text: &str) {
    assert_eq!(format_amount(resource, amount), text);
}

#[rstest]
#[case::bytes_in_thousands("ephemeral-storage", 20_000_000_000, "20G")]
#[case::bytes_in_powers_of_two("memory", 20 << 30, "20Gi")]
#[case::bytes_in_both_forms("memory", 1_024_000, "1024k")]
#[case::bytes_in_none("memory", 1_000_001, "1000001")]
#[case::no_bytes("cpu", 1_500, "1500m")]
#[case::nothing("memory", 0, "0")]
fn amounts_in_their_shorter_form(#[case] resource: &str, #[case] amount: i64, #[case] text: &str) {
    assert_eq!(format_shortest(resource, amount), text);
}

#[test]
fn sums_lose_nothing() {
    let sum = parse("1Gi").unwrap().plus(parse("1G").unwrap());
    assert_eq!(sum.to_string(), "2073741824");
    assert_eq!(Exact::ZERO.plus(parse("1Gi").unwrap()).to_string(), "1Gi");
    assert_eq!(parse("100m").unwrap().plus(parse("1n").unwrap()).to_string(), "100000001n");
}

#[test]
fn invalid_quantity_never_fits() {
    assert_eq!(amount_of("cpu", &Quantity("lots".into())), i64::MAX);
    assert_eq!(amount_of("cpu", &Quantity("2".into())), 2000);
    assert_eq!(amount_of("memory", &Quantity("1500m".into())), 2);
}

/// Division rounded away from zero.
fn away_from_zero(number: i128, by: i128) -> i128 {
    let rest = number % by;
    number / by + if rest == 0 { 0 } else { number.signum() }
}

fn clamp(number: i128) -> i64 {
    number.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

proptest! {
    #[test]
    fn decimal_suffixes_agree_with_the_oracle(
        negative: bool, whole in 0u64.., fraction in 0u32..1_000_000, suffix in 0usize..10,
    ) {
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let text = format!("{}{whole}.{fraction:06}{}", if negative { "-" } else { "" }, SUFFIXES[suffix]);
        // In 10^-15: six fraction digits and the least suffix.
        let Some(femtos) = (i128::from(whole) * 1_000_000 + i128::from(fraction))
            .checked_mul(1000i128.pow(u32::try_from(suffix).unwrap())) else { return Ok(()) };
        let femtos = if negative { -femtos } else { femtos };
        let nanos = away_from_zero(femtos, 1_000_000);
        let exact = parse(&text).unwrap();
        prop_assert_eq!(exact.value(), clamp(away_from_zero(nanos, 1_000_000_000)));
        prop_assert_eq!(exact.milli_value(), clamp(away_from_zero(nanos, 1_000_000)));
        prop_assert_eq!(parse(&exact.to_string()).unwrap(), exact, "canonical form reads back");
    }

    #[test]
    fn binary_suffixes_agree_with_the_oracle(
        negative: bool, whole in 0u64.., fraction in 0u32..10_000, power in 1u32..=6,
    ) {
        const SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let text = format!("{}{whole}.{fraction:04}{}", if negative { "-" } else { "" }, SUFFIXES[power as usize - 1]);
        let Some(tenth_micros) = (i128::from(whole) * 10_000 + i128::from(fraction)).checked_mul(1 << (10 * power))
            else { return Ok(()) };
        let capped = tenth_micros.min(i128::from(i64::MAX) * 10_000);
        let signed = if negative { -capped } else { capped };
        let exact = parse(&text).unwrap();
        prop_assert_eq!(exact.value(), clamp(away_from_zero(signed, 10_000)));
        prop_assert_eq!(exact.milli_value(), clamp(away_from_zero(signed, 10)));
    }

    #[test]
    fn amounts_read_back(amount: i64, resource in prop::sample::select(vec!["cpu", "memory", "nvidia.com/gpu"])) {
        let text = format_amount(resource, amount);
        // 2^63 bytes exceeds the cap of binary suffixes by one.
        prop_assume!(amount != i64::MIN);
        prop_assert_eq!(amount_of(resource, &Quantity(text)), amount);
    }

    #[test]
    fn nothing_makes_it_panic(text in "[-+]?[0-9.]{0,40}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,25}") {
        if let Ok(exact) = parse(&text) {
            let _ = (exact.value(), exact.milli_value(), exact.to_string(), exact.to_f64());
        }
    }
}
