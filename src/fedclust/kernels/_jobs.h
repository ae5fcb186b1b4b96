/* The functions that the module calls, for each instruction set. */
#ifndef FEDCLUST_JOBS_H
#define FEDCLUST_JOBS_H

#include <stddef.h>
#include <stdint.h>

/* Columns of doubles, or of floats that widen on read: value (f, r) is at data + f * stride + r * size. */
typedef struct {
    const char *data;
    ptrdiff_t stride;
    int64_t rows;
    int size;
} columns;

typedef enum { HARD, FUZZY, GIVEN } weighting;

/* Sums of w, w x and w d2 over rows. mass (C), pull (C, F), objective (1): two limbs each, or, if plain, doubles. */
typedef struct {
    weighting rule;
    int plain;
    int64_t C, F, count;
    const columns *blocks;
    const columns *weights; /* GIVEN only: one for each block */
    const double *centers;
    double m;
    const int32_t *mass_unit, *pull_unit;
    int32_t objective_unit;
    void *mass, *pull, *objective;
} sweep_job;

typedef enum { SQUARED, NEAREST, MEMBERSHIPS, WEIGHTS } row_answer;

/* One answer per row. Without centers the block itself holds squared distances, one column per centre. */
typedef struct {
    row_answer answer;
    columns block;
    int64_t C, F;
    const double *centers;
    double m;
    double *out;       /* (C, rows); NEAREST: the smallest squared distance */
    ptrdiff_t out_row; /* doubles from one centre's answers to the next's */
    int32_t *labels;
} rows_job;

/* Squared distances as integers times 2^unit: out (C, rows, 2), out_row limbs from one centre to the next. */
typedef struct {
    columns block;
    int64_t C, F;
    const double *centers;
    int32_t unit;
    uint64_t *out;
    ptrdiff_t out_row;
} exact_job;

typedef enum { EXP, LOG, EXP2, LOG2, POWER } function;

typedef struct {
    const char *name;
    int (*supported)(void);
    int (*sweep)(const sweep_job *);
    int (*rows)(const rows_job *);
    int (*exact)(const exact_job *);
    int (*totals)(const columns *block, int64_t count, const int32_t *unit, uint64_t *out);
    void (*elementary)(function which, const double *x, double p, double *out, int64_t n);
} arithmetic;

/* A portable build contains several instruction sets if the compiler supports them, and chooses one at import. */
#if defined(FEDCLUST_PORTABLE) && defined(__GNUC__) && defined(__x86_64__) && defined(__ELF__)
#define FEDCLUST_CLONES
extern const arithmetic fedclust_avx2, fedclust_avx512;
#endif
extern const arithmetic fedclust_base;

#endif
