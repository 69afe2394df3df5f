//! How large a topic's work is: one number, or two, or three; and the sides of a matrix product.

use super::errors::lengths;
use gpulab::error::{Error, Result};
use std::fmt;

/// The size of a topic's work: elements; rows and columns; or m, n and k of a product. A topic says what its numbers
/// mean. `4096`, `(32768, 8192)` and `(4096, 4096, 4096)` are sizes where one is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Size {
    /// One number.
    One(usize),
    /// Two numbers.
    Two(usize, usize),
    /// Three numbers.
    Three(usize, usize, usize),
}

impl From<usize> for Size {
    fn from(n: usize) -> Size {
        Size::One(n)
    }
}

impl From<(usize, usize)> for Size {
    fn from((rows, columns): (usize, usize)) -> Size {
        Size::Two(rows, columns)
    }
}

impl From<(usize, usize, usize)> for Size {
    fn from((m, n, k): (usize, usize, usize)) -> Size {
        Size::Three(m, n, k)
    }
}

impl From<Shape> for Size {
    fn from(Shape { m, n, k }: Shape) -> Size {
        Size::Three(m, n, k)
    }
}

impl Size {
    /// Its numbers.
    pub fn numbers(self) -> Vec<usize> {
        match self {
            Size::One(n) => vec![n],
            Size::Two(a, b) => vec![a, b],
            Size::Three(a, b, c) => vec![a, b, c],
        }
    }

    /// As it stands in tables: `1000003`, `32768x8192`, `4096x4096x4096`.
    pub fn name(self) -> String {
        self.joined("x")
    }

    /// The size of that name.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a text that is none.
    pub fn from_name(name: &str) -> Result<Size> {
        let numbers: Option<Vec<usize>> = name.split('x').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([n]) => Ok(Size::One(*n)),
            Some([a, b]) => Ok(Size::Two(*a, *b)),
            Some([a, b, c]) => Ok(Size::Three(*a, *b, *c)),
            _ => Err(Error::invalid(
                format!("`{name}` is no size"),
                "write one to three numbers, such as 4096, 32768x8192 or 4096x4096x4096",
            )),
        }
    }

    fn joined(self, between: &str) -> String {
        self.numbers().iter().map(usize::to_string).collect::<Vec<_>>().join(between)
    }

    /// The only number of a topic whose sizes have one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more numbers.
    pub fn one(self) -> Result<usize> {
        if let Size::One(n) = self { Ok(n) } else { self.other("one number") }
    }

    /// Both numbers of a topic whose sizes have two.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another count.
    pub fn two(self) -> Result<(usize, usize)> {
        if let Size::Two(a, b) = self { Ok((a, b)) } else { self.other("two numbers, such as (rows, columns)") }
    }

    /// The numbers of a topic whose sizes have three.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another count.
    pub fn three(self) -> Result<(usize, usize, usize)> {
        if let Size::Three(a, b, c) = self { Ok((a, b, c)) } else { self.other("three numbers, such as (m, n, k)") }
    }

    fn other<T>(self, wanted: &str) -> Result<T> {
        Err(Error::invalid(format!("a size of {self} for this topic"), format!("give {wanted}")))
    }
}

impl fmt::Display for Size {
    /// `32768 × 8192`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined(" × "))
    }
}

/// The sides of a product: `a` has `m` rows of `k`, `b` has `k` rows of `n`, `c` has `m` rows of `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows of `a` and of `c`.
    pub m: usize,
    /// Columns of `b` and of `c`.
    pub n: usize,
    /// Columns of `a`, rows of `b`: what is summed over.
    pub k: usize,
}

impl From<usize> for Shape {
    /// Square matrices of that side.
    fn from(side: usize) -> Shape {
        Shape { m: side, n: side, k: side }
    }
}

impl TryFrom<Size> for Shape {
    type Error = Error;

    fn try_from(size: Size) -> Result<Shape> {
        let (m, n, k) = size.three()?;
        Ok(Shape { m, n, k })
    }
}

impl Shape {
    /// Multiplications and additions of the product: 2mnk.
    pub fn operations(self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// An error that names the first of the three matrices that holds another number of elements.
    pub(super) fn lengths(self, a: usize, b: usize, c: usize) -> Result<()> {
        let Shape { m, n, k } = self;
        lengths("matmul", &[("a", a, m * k), ("b", b, k * n), ("c", c, m * n)])
    }

    /// Numbers of the three matrices.
    pub fn numbers(self) -> usize {
        self.m * self.k + self.k * self.n + self.m * self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_keeps_its_name_and_what_is_none_is_refused() {
        for size in [Size::from(7), (32768, 8192).into(), (1, 2, 3).into(), Shape::from(4).into()] {
            assert_eq!(Size::from_name(&size.name()), Ok(size));
        }
        assert_eq!((Size::from((3, 4)).name(), Size::from((3, 4)).to_string()), ("3x4".into(), "3 × 4".into()));
        for name in ["", "x", "4x", "a", "1x2x3x4", "-1"] {
            assert!(Size::from_name(name).unwrap_err().to_string().contains("\nnext: write one to three"), "{name}");
        }
        assert!(Size::from(3).three().unwrap_err().to_string().contains("next: give three numbers"));
        assert_eq!((Size::from(3).one(), Size::from((1, 2)).two()), (Ok(3), Ok((1, 2))));
    }
}
