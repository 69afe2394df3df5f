//! `.loc`: the source line of the instructions that follow.

use super::parser::Parser;
use crate::error::Result;

/// A location in a source as `.loc` writes it: number of the file, line, column.
pub(super) type Location = (u64, u64, u64);

impl Parser {
    /// `.loc file line column [, function_name …, inlined_at file line column]`.
    ///
    /// Code of another file, a header's, belongs to the line that calls it: that is the line which its reader wrote. A
    /// function of the same file keeps its own lines, inlined or not.
    pub(super) fn location(&mut self) -> Result<()> {
        let location = self.position()?;
        let (mut line, mut caller) = ((location.0 as u32, location.1 as u32), None);
        while self.accept(b',') {
            let word = self.word()?;
            match word.as_str() {
                "function_name" => {
                    self.word()?;
                    if self.accept(b'+') {
                        self.integer()?;
                    }
                }
                "inlined_at" => caller = Some(self.position()?),
                _ => return Err(self.error(&format!("`{word}` in `.loc`"))),
            }
        }
        if let Some(caller) = caller {
            // The caller's location came before, and with it where the caller was inlined itself.
            let called = self.inlined.get(&caller).copied().unwrap_or((caller.0 as u32, caller.1 as u32));
            if called.0 != line.0 {
                line = called;
            }
            self.inlined.insert(location, line);
        }
        self.loc = line;
        Ok(())
    }

    fn position(&mut self) -> Result<Location> {
        Ok((self.integer()?, self.integer()?, self.integer()?))
    }
}

#[cfg(test)]
mod tests {
    use crate::ptx::parse;

    /// File and line of each instruction.
    fn lines(locations: &[&str]) -> Vec<(u32, u32)> {
        let body: String = locations.iter().map(|loc| format!(".loc {loc}\nbar.sync 0;\n")).collect();
        let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() {{\n{body}ret;\n}}\n");
        let module = parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let body = module.functions[0].body.as_ref().expect("a body");
        let instructions = body.iter().filter_map(|statement| statement.instruction());
        instructions.filter(|one| one.opcode == "bar.sync").map(|one| one.loc).collect()
    }

    #[test]
    fn a_headers_code_belongs_to_the_line_that_calls_it() {
        let deep = [
            "1 7 5",
            "2 91 5, function_name $L__info_string0, inlined_at 1 7 5",
            "3 20 9, function_name $L__info_string1+16, inlined_at 2 91 5",
            // The same header again, from another line.
            "2 91 5, function_name $L__info_string0, inlined_at 1 9 5",
            "3 20 9, function_name $L__info_string1, inlined_at 2 91 5",
            // What the header calls back is the reader's own.
            "1 3 30, function_name $L__info_string2, inlined_at 3 20 9",
        ];
        assert_eq!(lines(&deep), [(1, 7), (1, 7), (1, 7), (1, 9), (1, 9), (1, 3)]);
    }

    #[test]
    fn a_function_of_the_same_file_keeps_its_lines() {
        let own = [
            "1 12 5, function_name $L__info_string0, inlined_at 1 30 9",
            "2 8 1, function_name $L__info_string1, inlined_at 1 12 5",
            // Where the caller was never seen, its location counts.
            "2 4 1, function_name $L__info_string1, inlined_at 5 6 7",
        ];
        assert_eq!(lines(&own), [(1, 12), (1, 12), (5, 6)]);
    }
}
