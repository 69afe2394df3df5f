//! In which pieces a warp loads or stores a matrix of `wmma`: the ISA leaves that open; these are the instructions that
//! ptxas makes for GPUs of compute capability 8.0 to 9.0, where tensor cores multiply 16 × k by k × 8.

use crate::exec::values::lanes::LANES;
use crate::op::{Element, Role, Tile};

/// One instruction: from which row and column each lane starts, and how many bytes it takes along the layout.
pub struct Piece {
    pub places: [(u64, u64); LANES],
    pub bytes: u32,
}

/// The pieces of a matrix. Lanes stand in 8 groups of 4, as in the fragments of `mma`.
pub fn of(t: &Tile) -> Vec<Piece> {
    let (rows, columns) = t.fragment.shape;
    // A product of 8 × 32 is done as its transpose, 32 × 8.
    let flat = t.fragment.element != Element::F64
        && match t.role {
            Role::A | Role::C => rows == 8,
            Role::B => columns == 32,
        };
    let (role, columns_first, shape) = match (t.role, flat) {
        (role, false) => (role, t.columns_first, (rows, columns)),
        (Role::A, true) => (Role::B, !t.columns_first, (columns, rows)),
        (Role::B, true) => (Role::A, !t.columns_first, (columns, rows)),
        (Role::C, true) => (Role::C, !t.columns_first, (columns, rows)),
    };
    // Groups go along one side (8 of it), the lanes of a group along the other: `run` elements each, of which an
    // instruction takes all where they are neighbours in memory.
    let (groups_in_rows, run, whole) = match (t.fragment.element, role) {
        // Halves can be transposed in registers, so they are read as they lie.
        (Element::F16 | Element::Bf16, _) => (!columns_first, 2, true),
        (_, Role::C) => (true, 2, !columns_first),
        (Element::S8 | Element::U8, Role::A) => (true, 4, !columns_first),
        (Element::S8 | Element::U8, Role::B) => (false, 4, columns_first),
        (_, role) => (role == Role::A, 1, true),
    };
    let (across, along) = if groups_in_rows { shape } else { (shape.1, shape.0) };
    let (parts, taken) = if whole { (1, run) } else { (run, 1) };
    let mut out = Vec::new();
    for first in (0..across).step_by(8) {
        for second in (0..along).step_by(4 * run) {
            for part in 0..parts {
                let places = std::array::from_fn(|lane| {
                    let (x, y) = ((first + lane / 4) as u64, (second + lane % 4 * run + part) as u64);
                    if groups_in_rows != flat { (x, y) } else { (y, x) }
                });
                out.push(Piece { places, bytes: taken as u32 * t.fragment.element.bytes() as u32 });
            }
        }
    }
    out
}
