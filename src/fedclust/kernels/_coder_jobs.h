/* The state of an autoencoder during an epoch, and the arithmetic for each instruction set. */
#ifndef FEDCLUST_CODER_JOBS_H
#define FEDCLUST_CODER_JOBS_H

#include "_jobs.h"

#define ABREAST 16 /* rows of layer units and of a batch are padded to a multiple of this many floats */
#define MOST_LAYERS 32

typedef struct {
    int64_t layers;                  /* of weights */
    int64_t sizes[MOST_LAYERS + 1];  /* units */
    float *weights, *means, *squares; /* by layer: a row for each unit of the layer before, one row of biases; padded */
    const float *rows;
    int64_t batch;
    double rate;
    int64_t steps; /* of Adam so far */
} coder;

typedef struct {
    const char *name;
    int (*supported)(void);
    /* Trains on the rows in `order`, one batch after another, and sums the squared errors. Returns 1 without memory. */
    int (*epoch)(const coder *own, const int64_t *order, int64_t count, double *lost);
} coder_arithmetic;

extern const coder_arithmetic fedclust_coder_base;
#ifdef FEDCLUST_CLONES
extern const coder_arithmetic fedclust_coder_avx2, fedclust_coder_avx512;
#endif

static inline int64_t padded(int64_t units) { return (units + ABREAST - 1) / ABREAST * ABREAST; }

#endif
