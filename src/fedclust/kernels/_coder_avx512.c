/* Training of autoencoders for x86-64 with AVX-512, chosen at import in portable builds. */
#include "_coder_jobs.h"
#ifdef FEDCLUST_CLONES
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,fma")
#endif
#define LANES 16
#include "_coder.h"

static int supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
}

const coder_arithmetic fedclust_coder_avx512 = {"avx512", supported, epoch};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
