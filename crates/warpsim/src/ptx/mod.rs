//! PTX text to a tree: nothing is interpreted here.

pub mod ast;
pub mod lexer;
mod location;
mod parser;
mod statement;
pub mod types;
mod variable;

pub use parser::parse;
