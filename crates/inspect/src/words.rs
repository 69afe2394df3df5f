//! Words and numbers that tables and pictures share.

use super::{Access, AccessKind, Finding};

/// `3,907`.
pub fn grouped(n: impl Into<u128>) -> String {
    let digits = n.into().to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 block`, `3,907 blocks`.
pub(super) fn counted(n: impl Into<u128>, what: &str) -> String {
    let n = n.into();
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// `7`, `(7, 2)` or `(7, 2, 0)`: as many numbers as the launch has dimensions.
pub(super) fn place(at: [u32; 3], shape: [u32; 3]) -> String {
    match shape {
        [_, 1, 1] => at[0].to_string(),
        [_, _, 1] => format!("({}, {})", at[0], at[1]),
        _ => format!("({}, {}, {})", at[0], at[1], at[2]),
    }
}

/// `256`, `16 × 16`.
pub(super) fn sides(shape: [u32; 3]) -> String {
    let used = 3 - shape.iter().rev().take_while(|n| **n == 1).count();
    let sides: Vec<String> = shape[..used.max(1)].iter().map(|n| grouped(u64::from(*n))).collect();
    sides.join(" × ")
}

/// Blocks of a grid, or threads of a block. (All threads of the largest grid need more than 64 bits.)
pub(super) fn volume(shape: [u32; 3]) -> u128 {
    shape.iter().map(|n| u128::from(*n)).product()
}

/// `2.50`, but `4` where it is whole.
pub(super) fn ratio(a: u64, b: u64) -> String {
    let text = format!("{:.2}", a as f64 / b.max(1) as f64);
    text.strip_suffix(".00").map_or(text.clone(), str::to_string)
}

impl Access {
    /// `load`, `store` or `atomic`.
    pub(super) fn verb(&self) -> &'static str {
        match self.kind {
            AccessKind::Load => "read",
            AccessKind::Store => "write",
            AccessKind::Atomic => "update",
        }
    }

    /// Lanes that took part.
    pub(super) fn active(&self) -> usize {
        self.offsets.iter().flatten().count()
    }

    /// `32 lanes read 4 bytes each`.
    pub(super) fn deed(&self) -> String {
        let lanes = self.active();
        let ends = if lanes == 1 { "s" } else { "" };
        let bytes = counted(u64::from(self.bytes), "byte");
        let each = if lanes == 1 { "" } else { " each" };
        format!("{} {}{ends} {bytes}{each}", counted(lanes as u64, "lane"), self.verb())
    }
}

/// Findings of one kind that one thread met first on one line: `c[i] = a[i] + b[i]` leaves three buffers at once.
pub(super) fn together<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<Vec<&'a Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    let key = |finding: &'a Finding| (finding.kind, finding.source.as_ref(), finding.block, finding.thread);
    for finding in findings {
        // Without a line, nothing says that two belong together.
        match groups.iter_mut().find(|group| finding.source.is_some() && key(group[0]) == key(finding)) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}
