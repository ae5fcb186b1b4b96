/* Training of autoencoders for the compiler's target processor. */
#if defined(LANES)
#elif defined(__GNUC__) && defined(__AVX512F__)
#define LANES 16
#elif defined(__GNUC__) && defined(__AVX2__)
#define LANES 8
#elif defined(__GNUC__) && (defined(__SSE2__) || defined(__aarch64__))
#define LANES 4
#else
#define LANES 1
#endif
#include <float.h>
#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16 /* 16: as 0, and half floats on their own */
#error "floats must round after every operation; without this module the NumPy twin is used"
#endif
#include "_coder.h"

static int supported(void) { return 1; }

const coder_arithmetic fedclust_coder_base = {"base", supported, epoch};
