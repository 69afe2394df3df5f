//! Single instructions.

use super::{clean, download, upload};
use warpsim::{Arg, Device, Launch, PtxModule};

/// Runs one instruction, with `%a`, `%b`, `%c` as words of 64 bits and their lower halves `%x`, `%y`, `%z`
/// (`%h`, `%i` of 16 bits), and gives the result register: `%r` (32 bits), `%rd` (64), `%rs` (16) or `%p`.
pub fn run(line: &str, cases: &[[u64; 3]]) -> Vec<u64> {
    let first = line.split_once(' ').map_or("", |l| l.1);
    let result = match first {
        _ if first.starts_with("%rd") => "mov.b64 %out, %rd;",
        _ if first.starts_with("%rs") => "cvt.u64.u16 %out, %rs;",
        _ if first.starts_with("%p") || first.starts_with("%q|%p") => "selp.b64 %out, 1, 0, %p;",
        _ => "cvt.u64.u32 %out, %r;",
    };
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry one(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .b16 %h, %i, %rs; .reg .b32 %x, %y, %z, %r, %t; .reg .b64 %a, %b, %c, %rd, %out, %in, %to, %at;\n\
         .reg .pred %p, %q; .reg .pred %yes; setp.eq.u32 %yes, 0, 0;\n\
         mov.u32 %t, %tid.x; ld.param.u64 %in, [in]; mad.wide.u32 %in, %t, 24, %in;\n\
         ld.param.u64 %to, [out]; mad.wide.u32 %to, %t, 8, %to;\n\
         ld.global.u64 %a, [%in]; ld.global.u64 %b, [%in+8]; ld.global.u64 %c, [%in+16];\n\
         cvt.u32.u64 %x, %a; cvt.u32.u64 %y, %b; cvt.u32.u64 %z, %c; cvt.u16.u64 %h, %a; cvt.u16.u64 %i, %b;\n\
         {line}\n{result} st.global.u64 [%to], %out; ret;\n}}\n"
    );
    let module = PtxModule::load(&ptx).unwrap_or_else(|e| panic!("{line}: {e}"));
    let mut device = Device::new();
    let (input, out) = (upload(&mut device, &cases.concat()), upload(&mut device, &vec![0u64; cases.len()]));
    let launch = Launch::linear(1, cases.len() as u32);
    clean(&mut device, &module, "one", launch, &[Arg::Pointer(input), Arg::Pointer(out)]);
    download(&device, out, cases.len())
}

/// Checks an instruction on cases of up to three operands with their result.
pub fn check<const N: usize>(line: &str, cases: &[([u64; N], u64)]) {
    let operands: Vec<[u64; 3]> =
        cases.iter().map(|(o, _)| std::array::from_fn(|i| o.get(i).copied().unwrap_or(0))).collect();
    for ((operands, expected), got) in cases.iter().zip(run(line, &operands)) {
        assert_eq!(got, *expected, "{line} of {operands:x?}: {got:#x} for {expected:#x}");
    }
}
