// The element type of all arrays: float, or with -DBF16 bf16. All arithmetic is in float.
#pragma once
#ifdef BF16
#include <cuda_bf16.h>
typedef __nv_bfloat16 number;
#else
typedef float number;
#endif

// What is hidden has this score: its exp is 0.
#define HIDDEN __int_as_float(0xff800000) // -infinity
