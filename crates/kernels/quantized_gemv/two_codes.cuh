// Codes of BITS bits (4 or 8; `codes.cuh` says how they lie) become bf16 for the tensor cores, two at a time.
#pragma once

// bf16 from 16 to 31 are the whole numbers, the upper four bits of the mantissa count, and ^ makes code + 8 of two's
// complement: what has a sign comes as 24 + code, and the lower half of a byte as 16 + it. Nothing is subtracted here.
constexpr unsigned int SIGNED = 0x41c041c0, UNSIGNED = 0x41804180, MINUS = 0x80008000;

// Codes i and i + 4 of a word of 4 bits as two bf16. Of a word of 8 bits: the lower (i even) or upper half of bytes i / 2
// and i / 2 + 2; byte = lower + 16 · upper. Shift, select and ^ are two instructions.
template <int I>
__device__ unsigned int two_codes(unsigned int word) {
    unsigned int moved = I == 0 ? word << 3 : word >> (4 * I - 3);
    return (moved & 0x00780078) ^ (BITS == 4 || I % 2 == 1 ? SIGNED : UNSIGNED);
}
