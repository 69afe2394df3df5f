//! Exercises of lesson 17a: kernels in Rust. A transpose from a blank page, the layout of a `repr(C)` struct on paper, and a kernel
//! whose source stays hidden until its mistake is named.

mod count;
mod transpose;

pub use count::{CountFault, CountReport, count_report, count_report_checked, diagnose_count, revealed_count};
pub use transpose::transpose;

use super::Verdict;
use super::on_paper::number;

/// A warp's load request for the `f64` of `struct Particle { id: u8, mass: f64, charge: f32 }`, `repr(C)`, from an array of them:
/// how many sectors does it touch?
pub fn particle_sectors(answer: Option<f64>) -> Verdict {
    let slips = [
        (8.0, "that is an array of `f64` alone: what lies between two masses here?"),
        (16.0, "that is the order of fields that needs the least padding: may `repr(C)` change their order?"),
        (13.0, "a field begins at a multiple of its own size: which byte of the struct is the first one of `mass`?"),
        (14.0, "a field begins at a multiple of its own size: which byte of the struct is the first one of `mass`?"),
        (20.0, "does the next element begin where the last field ends? Its own `mass` must be aligned, too"),
        (
            32.0,
            "one sector for each lane: do two masses never share one? Draw the first four structs, and sectors of 32 bytes",
        ),
        (24.0 * 32.0, "that is bytes: how many sectors are they?"),
        (1.0, "the question is about all 32 lanes of a warp"),
    ];
    let start =
        "draw one struct byte by byte, then four in a row above sectors of 32 bytes: which sectors hold a mass?";
    number("particle_sectors", answer, 24.0..=24.0, &slips, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Particle {
        id: u8,
        mass: f64,
        charge: f32,
    }

    #[test]
    fn the_sectors_right_and_wrong() {
        // What the question says, asked of the compiler.
        let (size, at) = (size_of::<Particle>(), std::mem::offset_of!(Particle, mass));
        let sectors: std::collections::BTreeSet<usize> = (0..32).map(|lane| (lane * size + at) / 32).collect();
        assert_eq!((size, sectors.len()), (24, 24));
        assert!(particle_sectors(Some(24.0)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(8.0), "an array of `f64` alone"),
            (Some(16.0), "change their order"),
            (Some(13.0), "multiple of its own size"),
            (Some(20.0), "must be aligned, too"),
            (Some(32.0), "never share one"),
            (Some(768.0), "that is bytes"),
            (Some(1.0), "all 32 lanes"),
            (Some(25.0), "draw one struct"),
            (Some(f64::NAN), "is no answer"),
            (Some(f64::INFINITY), "is no answer"),
            (Some(-24.0), "is no answer"),
        ] {
            let text = particle_sectors(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }
}
