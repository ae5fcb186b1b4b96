/* The resonance loop for x86-64 with AVX-512, chosen at import in portable builds. */
#include "_art_jobs.h"
#ifdef FEDCLUST_CLONES
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq")
#endif
#define LANES 8
#include "_art.h"

static int supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
}

const art_arithmetic fedclust_art_avx512 = {"avx512", supported, make_room, learn, nearest};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
