//! Integer division. By zero it is unspecified; GPUs give all ones, and the dividend as remainder.

macro_rules! division {
    ($quotient:ident, $remainder:ident, $word:ty, $signed:ty) => {
        #[inline(always)]
        pub fn $quotient(x: $word, y: $word, signed: bool) -> $word {
            match (y, signed) {
                (0, _) => <$word>::MAX,
                (_, false) => x / y,
                (_, true) => (x as $signed).wrapping_div(y as $signed) as $word,
            }
        }

        #[inline(always)]
        pub fn $remainder(x: $word, y: $word, signed: bool) -> $word {
            match (y, signed) {
                (0, _) => x,
                (_, false) => x % y,
                (_, true) => (x as $signed).wrapping_rem(y as $signed) as $word,
            }
        }
    };
}

division!(quotient32, remainder32, u32, i32);
division!(quotient64, remainder64, u64, i64);
