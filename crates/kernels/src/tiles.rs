//! Programs on tiles in Rust (`tiles/`): each with the library that it stands on, its constants and its launch.

use crate::ladder::{Language, PLAIN, Rung, WHOLE_ROW, file};
use gpulab::error::Result;
use gpulab::launch::Source;

/// A program with its constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileProgram {
    /// Its name, which is that of its file and of its kernel, too.
    pub name: &'static str,
    library: &'static str,
    /// Its constants.
    pub constants: Vec<(&'static str, u32)>,
}

impl TileProgram {
    /// `y = softmax(x)` of rows of up to 8192 · `vectors` numbers, 8 · `vectors` of them in each thread.
    pub fn softmax(vectors: u32) -> TileProgram {
        TileProgram { name: "softmax", library: "rows", constants: vec![("VECTORS", vectors)] }
    }

    /// `c = a · b`: `groups` warpgroups compute a tile of 64 rows each and so many columns, in steps of 64; `stages` of these lie in
    /// shared memory; bands of `band` rows of tiles are worked on together.
    pub fn matmul(groups: u32, tile_n: u32, stages: u32, band: u32) -> TileProgram {
        let constants =
            vec![("TILE_M", 64 * groups), ("TILE_N", tile_n), ("TILE_K", 64), ("STAGES", stages), ("BAND", band)];
        TileProgram { name: "matmul", library: "tiles", constants: with_roles(groups, constants) }
    }

    /// Attention: `groups` warpgroups compute 64 queries each, of heads of `head` numbers, over tiles of so many keys, `stages` of
    /// which lie in shared memory. `settle`: 1 where the products with v go on while scores are weighed.
    pub fn attention(groups: u32, head: u32, keys: u32, stages: u32, settle: u32) -> TileProgram {
        let constants = vec![("HEAD", head), ("KEYS", keys), ("STAGES", stages), ("SETTLE", settle)];
        TileProgram { name: "attention", library: "tiles", constants: with_roles(groups, constants) }
    }

    /// The program's text, with its library and its constants.
    ///
    /// # Errors
    /// As [`file()`].
    pub fn source(&self) -> Result<Source> {
        let text =
            file(&format!("tiles/{}.rs", self.name))?.with_items(&file(&format!("tiles/{}.rs", self.library))?.text);
        Ok(self.constants.iter().fold(text, |text, (name, value)| text.define(name, value)))
    }

    /// A name for tables, such as `matmul GROUPS=2 TILE_N=256`.
    pub fn full_name(&self) -> String {
        let constants = self.constants.iter().map(|(name, value)| format!(" {name}={value}"));
        self.name.to_string() + &constants.collect::<String>()
    }

    fn constant(&self, name: &str) -> u32 {
        self.constants.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }

    /// How it is launched.
    pub(crate) fn rung(&self) -> Rung {
        let of = |name| self.constant(name);
        let plain = Rung { language: Language::Rust, kernel: self.name, ..PLAIN };
        let specialised = Rung { block: (128 * (of("GROUPS") + 1), 1), needs: (9, 0), only: true, ..plain };
        // What begins at a multiple of 1024 bytes, two tiles of 64 × 64 in each warpgroup, and 1024 bytes for the barriers of a ring.
        let shared =
            |rings: &[u32]| 1024 + of("GROUPS") * 2 * 64 * 64 * 2 + rings.iter().map(|bytes| bytes + 1024).sum::<u32>();
        match self.name {
            "softmax" => Rung {
                path: "tiles/softmax",
                block: (1024, 1),
                each_thread: 8 * of("VECTORS"),
                tile: (WHOLE_ROW, 1),
                needs: (8, 0),
                ..plain
            },
            "matmul" => Rung {
                path: "tiles/matmul",
                tile: (of("TILE_N"), of("TILE_M")),
                blocks_per_sm: 1,
                shared_bytes: shared(&[of("STAGES") * of("TILE_K") * (of("TILE_M") + of("TILE_N")) * 2]),
                ..specialised
            },
            _ => {
                let tiles = of("STAGES") * of("KEYS") * of("HEAD") * 2;
                Rung {
                    path: "tiles/attention",
                    tile: (of("GROUPS") * 64 * of("HEAD"), 1),
                    shared_bytes: shared(&[of("GROUPS") * 64 * of("HEAD") * 2, tiles, tiles]),
                    ..specialised
                }
            }
        }
    }
}

/// With what the two roles of a program get: so many warpgroups compute, and their threads have as many registers as 65,536 allow.
fn with_roles(groups: u32, mut constants: Vec<(&'static str, u32)>) -> Vec<(&'static str, u32)> {
    // Roles share what the launch gave. Of 640 threads each gets 96 registers, by eights, which is less than 65,536 in all: four
    // warpgroups that take their parts of 65,536 wait for ever, and on an H200 such a program never came back.
    let (spare, registers) = match groups {
        2 => (40, 232),
        3 => (32, 160),
        other => panic!("{other} warpgroups compute: the libraries' programs have 2 or 3"),
    };
    constants.extend([("GROUPS", groups), ("SPARE", spare), ("REGISTERS", registers)]);
    constants
}
