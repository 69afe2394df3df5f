//! Questions that are answered on paper: one number, and the mistakes that lead to others.

use super::Verdict;
use super::verdict::{verdict, wrong};
use gpulab::measurement::figures;

/// Checks one number. `right` is the range of right answers; each mistake is the number that it leads to, and its hint;
/// `else_hint` is for all others.
pub(super) fn number(
    exercise: &str,
    answer: Option<f64>,
    right: std::ops::RangeInclusive<f64>,
    mistakes: &[(f64, &'static str)],
    else_hint: &'static str,
) -> Verdict {
    verdict(exercise, || {
        let Some(given) = answer else {
            return wrong("no number yet", "write it as `Some(12.5)`, once you have worked it out on paper");
        };
        if right.contains(&given) {
            return Ok(());
        }
        let near = |other: f64| (given / other - 1.0).abs() < 0.01;
        let hint = mistakes.iter().find(|(other, _)| near(*other)).map_or(else_hint, |(_, hint)| hint);
        wrong(format!("your number is {}, and that is not it", figures(given)), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_passes_in_its_range_and_a_known_mistake_gets_its_hint() {
        let check = |answer| number("n", answer, 9.9..=10.1, &[(20.0, "half of it")], "count again");
        assert!(check(Some(10.0)).passed() && check(Some(9.9)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(20.1), "half of it"),
            (Some(3.0), "count again"),
            (Some(f64::NAN), "count again"),
            (Some(f64::INFINITY), "count again"),
        ] {
            let text = check(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said) && !text.contains("9.9"), "{text}");
        }
    }
}
