//! The rows of flash attention: a rung has other constants for heads of 64 numbers than for 128. They are the best of those
//! tried on an H200.

use super::{PLAIN, Rung};
use gpulab::error::{Error, Result};

/// Attention in one pass, for heads of 128 numbers: a row of its result is a head, and a tile counts the numbers of the
/// queries that a block answers.
const FLASH: Rung = Rung { kernel: "flash_attention", needs: (8, 0), block: (128, 1), tile: (64 * 128, 1), ..PLAIN };

/// The rungs for heads of 64 numbers; what they have in common.
const FLASH_NARROW: Rung = Rung { tile: (64 * 64, 1), ..FLASH };

/// From here on Hopper alone: warpgroups multiply, each of 64 queries, and one fetches.
const FLASH_HOPPER: Rung = Rung {
    defines: &[("HEAD", 128), ("KEYS", 128), ("GROUPS", 2), ("STAGES", 2), ("REGISTERS", 240), ("SPARE", 24)],
    needs: (9, 0),
    only: true,
    block: (384, 1),
    tile: (128 * 128, 1),
    shared_bytes: flash_tiles(128, 128, 128, 2) + flash_barriers(2),
    ..FLASH
};

const FLASH_HOPPER_NARROW: Rung = Rung {
    defines: &[("HEAD", 64), ("KEYS", 128), ("GROUPS", 3), ("STAGES", 2), ("REGISTERS", 160), ("SPARE", 32)],
    block: (512, 1),
    tile: (192 * 64, 1),
    shared_bytes: flash_tiles(64, 192, 128, 2) + flash_barriers(2),
    ..FLASH_HOPPER
};

/// Bytes of so many queries, and of so many stages of as many keys of k and of v.
const fn flash_tiles(head: u32, queries: u32, keys: u32, stages: u32) -> u32 {
    (queries + 2 * stages * keys) * head * 2
}

/// Bytes of the barriers: one for q, and four a stage.
const fn flash_barriers(stages: u32) -> u32 {
    8 + 4 * 8 * stages
}

/// The rungs for heads of 128 numbers, which stand in the course's table.
pub(super) const FLASH_128: [Rung; 9] = [
    Rung {
        path: "flash_attention/01_one_pass",
        defines: &[("HEAD", 128)],
        block: (256, 1),
        tile: (8 * 128, 1),
        ..FLASH
    },
    Rung {
        path: "flash_attention/02_shared_tiles",
        defines: &[("HEAD", 128), ("WARPS", 16)],
        block: (512, 1),
        tile: (16 * 128, 1),
        ..FLASH
    },
    Rung { path: "flash_attention/03_tensor_cores", defines: &[("HEAD", 128), ("WARPS", 4), ("KEYS", 64)], ..FLASH },
    Rung {
        path: "flash_attention/04_async_copies",
        defines: &[("HEAD", 128), ("WARPS", 4), ("KEYS", 64), ("STAGES", 2)],
        shared_bytes: 2 * 2 * 64 * (128 + 8) * 2,
        ..FLASH
    },
    Rung {
        path: "flash_attention/05_swizzle",
        defines: &[("HEAD", 128), ("WARPS", 4), ("KEYS", 64), ("STAGES", 2)],
        shared_bytes: flash_tiles(128, 0, 64, 2),
        ..FLASH
    },
    Rung {
        path: "flash_attention/06_wgmma",
        defines: &[("HEAD", 128), ("KEYS", 128), ("GROUPS", 2), ("STAGES", 2)],
        block: (256, 1),
        shared_bytes: flash_tiles(128, 128, 128, 2),
        ..FLASH_HOPPER
    },
    Rung { path: "flash_attention/07_warp_specialised", ..FLASH_HOPPER },
    Rung { path: "flash_attention/08_overlap", ..FLASH_HOPPER },
    Rung { path: "flash_attention/09_ping_pong", ..FLASH_HOPPER },
];

/// The same for heads of 64 numbers.
pub(super) const FLASH_64: [Rung; 9] = [
    Rung {
        path: "flash_attention/01_one_pass",
        defines: &[("HEAD", 64)],
        block: (256, 1),
        tile: (8 * 64, 1),
        ..FLASH_NARROW
    },
    Rung {
        path: "flash_attention/02_shared_tiles",
        defines: &[("HEAD", 64), ("WARPS", 16)],
        block: (512, 1),
        tile: (16 * 64, 1),
        ..FLASH_NARROW
    },
    Rung {
        path: "flash_attention/03_tensor_cores",
        defines: &[("HEAD", 64), ("WARPS", 4), ("KEYS", 64)],
        ..FLASH_NARROW
    },
    Rung {
        path: "flash_attention/04_async_copies",
        defines: &[("HEAD", 64), ("WARPS", 4), ("KEYS", 64), ("STAGES", 2)],
        shared_bytes: 2 * 2 * 64 * (64 + 8) * 2,
        ..FLASH_NARROW
    },
    Rung {
        path: "flash_attention/05_swizzle",
        defines: &[("HEAD", 64), ("WARPS", 4), ("KEYS", 64), ("STAGES", 2)],
        shared_bytes: flash_tiles(64, 0, 64, 2),
        ..FLASH_NARROW
    },
    Rung {
        path: "flash_attention/06_wgmma",
        defines: &[("HEAD", 64), ("KEYS", 128), ("GROUPS", 2), ("STAGES", 2)],
        block: (256, 1),
        tile: (128 * 64, 1),
        shared_bytes: flash_tiles(64, 128, 128, 2),
        ..FLASH_HOPPER
    },
    Rung { path: "flash_attention/07_warp_specialised", ..FLASH_HOPPER_NARROW },
    Rung { path: "flash_attention/08_overlap", ..FLASH_HOPPER_NARROW },
    Rung { path: "flash_attention/09_ping_pong", ..FLASH_HOPPER_NARROW },
];

impl Rung {
    /// The same rung for heads of that many numbers: other constants, tile and block.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rung or a width that has none.
    pub fn for_heads_of(&self, width: usize) -> Result<Rung> {
        let mut rows = FLASH_128.iter().chain(&FLASH_64);
        let head =
            |rung: &Rung| rung.defines.iter().find(|(name, _)| *name == "HEAD").map(|(_, value)| *value as usize);
        rows.find(|rung| rung.path == self.path && head(rung) == Some(width)).copied().ok_or_else(|| Error::Invalid {
            what: format!("`{}` has no constants for heads of {width} numbers", self.path),
            fix: "use a rung of `flash_attention`, and heads of 64 or 128 numbers".to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::rung;

    #[test]
    fn both_widths_have_all_rungs_with_the_same_constants_names() {
        for (wide, narrow) in FLASH_128.iter().zip(&FLASH_64) {
            let names = |rung: &Rung| rung.defines.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            assert_eq!((wide.path, names(wide), wide.needs), (narrow.path, names(narrow), narrow.needs));
            assert_eq!(wide.for_heads_of(64).as_ref(), Ok(narrow));
            assert_eq!(narrow.for_heads_of(128).as_ref(), Ok(wide));
            assert!(wide.for_heads_of(96).unwrap_err().to_string().contains("\nnext: "));
        }
        assert!(rung("rope/01_pair_a_thread").unwrap().for_heads_of(64).is_err());
    }
}
