/* An autoencoder on its way through an epoch, and the arithmetic for each instruction set. */
#ifndef FEDCLUST_CODER_JOBS_H
#define FEDCLUST_CODER_JOBS_H

#include "_jobs.h"

#define ABREAST 16 /* units of a layer, and rows of a batch, stand in rows of a multiple of so many floats */
#define MOST_LAYERS 32

typedef struct {
    int64_t layers;                  /* of weights */
    int64_t sizes[MOST_LAYERS + 1];  /* units */
    float *weights, *means, *squares; /* layer after layer: a line for each unit before it, one of biases; padded */
    const float *rows;
    int64_t batch;
    double rate;
    int64_t steps; /* of Adam, done before */
} coder;

typedef struct {
    const char *name;
    int (*supported)(void);
    /* One batch after the other of the rows in `order`; summed squares of what the model got wrong. 1: no memory. */
    int (*epoch)(const coder *own, const int64_t *order, int64_t count, double *lost);
} coder_arithmetic;

extern const coder_arithmetic fedclust_coder_base;
#ifdef FEDCLUST_CLONES
extern const coder_arithmetic fedclust_coder_avx2, fedclust_coder_avx512;
#endif

static inline int64_t padded(int64_t units) { return (units + ABREAST - 1) / ABREAST * ABREAST; }

#endif
