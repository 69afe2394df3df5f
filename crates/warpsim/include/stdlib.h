// For kernels: nothing of it is needed to compile one.
#pragma once
typedef decltype(sizeof(0)) size_t;
