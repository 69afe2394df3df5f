// For kernels: `memcpy` and `memset` are built into the compiler.
#pragma once
