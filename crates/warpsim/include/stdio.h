// For kernels: `printf` is built into the compiler.
#pragma once
