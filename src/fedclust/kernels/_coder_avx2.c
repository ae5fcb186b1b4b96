/* Training of autoencoders for x86-64 with AVX2, chosen at import in portable builds. */
#include "_coder_jobs.h"
#ifdef FEDCLUST_CLONES
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define LANES 8
#include "_coder.h"

static int supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const coder_arithmetic fedclust_coder_avx2 = {"avx2", supported, epoch};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
