//! One loop, compiled once for each vector width, and chosen by what this CPU has when it runs.

/// Defines `fn name(…) -> R` that calls the `#[inline(always)]` function `body` compiled for the widest
/// vectors found. A notebook's crate is built for the oldest CPU of its kind; without this the loop
/// would use 128-bit vectors everywhere.
macro_rules! widest {
    (fn $name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)? = $body:path) => {
        fn $name($($arg: $ty),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn avx512($($arg: $ty),*) $(-> $out)? {
                    $body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $out)? {
                    $body($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx512f") {
                    // SAFETY: the line above found the one feature that it needs.
                    return unsafe { avx512($($arg),*) };
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the line above found both features that it needs.
                    return unsafe { avx2($($arg),*) };
                }
            }
            // NEON is part of every aarch64, so the plain function uses it already.
            $body($($arg),*)
        }
    };
}
pub(super) use widest;
