/* A net of nodes as the compiled loop stores it, and the loop for each instruction set. */
#ifndef FEDCLUST_ART_JOBS_H
#define FEDCLUST_ART_JOBS_H

#include "_jobs.h"

typedef struct {
    int32_t to, age;
} art_edge;

typedef struct {
    art_edge *at;
    int32_t count, room;
} art_edges;

typedef struct {
    int server;
    int64_t d, nodes, room, most;
    double *rows, *columns; /* positions, node by node and feature by feature */
    int64_t *wins;
    double *widths;
    int64_t *older, *newer, newest; /* the node used before and after each node; -1: none */
    art_edges *edges;
    int64_t seen, half, settled, deleted, deleted_ages, refused;
    double vigilance, width, width_total;
    /* working space */
    double *alike, *scratch;
    const double **listed;
    double *factor, *pivots, *column, determinant;
    int64_t factor_room;
} art_net;

typedef struct {
    const char *name;
    int (*supported)(void);
    int (*make_room)(art_net *net);
    int (*learn)(art_net *net, const double *rows, int64_t count);
    void (*nearest)(const art_net *net, const double *rows, int64_t count, double width, int32_t *labels, double *least);
} art_arithmetic;

#ifdef FEDCLUST_CLONES
extern const art_arithmetic fedclust_art_avx2, fedclust_art_avx512;
#endif
extern const art_arithmetic fedclust_art_base;

#endif
