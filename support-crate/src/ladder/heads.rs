//! Rungs whose constants follow from the width of a head: the table's row for 128 numbers, and here the one for 64.

use super::Rung;
use super::table::{FLASH_64, RUNGS};
use crate::error::{Error, Result};

impl Rung {
    /// The same rung for heads of that many numbers: other constants, tile and block.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rung or a width that has none.
    pub fn for_heads_of(&self, width: usize) -> Result<Rung> {
        let rows = [RUNGS, FLASH_64].into_iter().flatten();
        let head =
            |rung: &Rung| rung.defines.iter().find(|(name, _)| *name == "HEAD").map(|(_, value)| *value as usize);
        rows.copied().find(|rung| rung.path == self.path && head(rung) == Some(width)).ok_or_else(|| Error::Invalid {
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
        let wide: Vec<&Rung> = RUNGS.iter().filter(|rung| rung.kernel == "flash_attention").collect();
        assert_eq!(wide.len(), FLASH_64.len());
        for (wide, narrow) in wide.into_iter().zip(FLASH_64) {
            let names = |rung: &Rung| rung.defines.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            assert_eq!((wide.path, names(wide), wide.needs), (narrow.path, names(narrow), narrow.needs));
            assert_eq!(wide.for_heads_of(64).as_ref(), Ok(narrow));
            assert_eq!(narrow.for_heads_of(128).as_ref(), Ok(wide));
            assert!(wide.for_heads_of(96).unwrap_err().to_string().contains("\nnext: "));
        }
        assert!(rung("rope/01_pair_a_thread").unwrap().for_heads_of(64).is_err());
    }
}
