/* The resonance loop for x86-64 with AVX2, chosen at import in portable builds. */
#include "_art_jobs.h"
#ifdef FEDCLUST_CLONES
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define LANES 4
#include "_art.h"

static int supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}

const art_arithmetic fedclust_art_avx2 = {"avx2", supported, make_room, learn, nearest};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
