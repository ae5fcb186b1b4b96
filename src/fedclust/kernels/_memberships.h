/* Fuzzy memberships and weights from squared distances. */

/* r = dmin / d2, w = r^(1/(m-1)), S = sum w; memberships u = w / S, or weights u^m = (w r) S^-m and their objective.
 * STEP rows at a time. */
INLINE void fuzzy_rows(const double *d2, int64_t T, int64_t padded, int64_t C, double m, double *w, double *objective,
                       const int two, const int memberships)
{
    const power_of root = power_to(two ? 1.0 : 1.0 / (m - 1.0)), scale = power_to(-m);
    for (int64_t r = 0; r < padded; r += LANES * ABREAST) {
        reals least[ABREAST], S[ABREAST], s[ABREAST], J[ABREAST];
        EACH least[j] = load(d2 + r + j * LANES);
        for (int64_t c = 1; c < C; c++)
            EACH least[j] = lesser(load(d2 + c * T + r + j * LANES), least[j]);
        EACH S[j] = splat(0.0);
        for (int64_t c = 0; c < C; c++) {
            reals ratio[ABREAST], u[ABREAST];
            EACH {
                reals d = load(d2 + c * T + r + j * LANES);
                ratio[j] = if_equal(d, least[j], splat(1.0), least[j] / d);
            }
            if (two)
                EACH u[j] = ratio[j];
            else
                power(ratio, root, u);
            EACH S[j] = S[j] + u[j];
            EACH store(w + c * T + r + j * LANES, memberships ? u[j] : u[j] * ratio[j]);
        }
        if (memberships) {
            for (int64_t c = 0; c < C; c++)
                EACH store(w + c * T + r + j * LANES, load(w + c * T + r + j * LANES) / S[j]);
            continue;
        }
        if (two)
            EACH s[j] = splat(1.0) / (S[j] * S[j]);
        else
            power(S, scale, s);
        EACH J[j] = splat(0.0);
        for (int64_t c = 0; c < C; c++)
            EACH {
                reals um = load(w + c * T + r + j * LANES) * s[j];
                J[j] = J[j] + um * load(d2 + c * T + r + j * LANES);
                store(w + c * T + r + j * LANES, um);
            }
        EACH store(objective + r + j * LANES, J[j]);
    }
}

static void fuzzy_weights(const double *d2, int64_t T, int64_t padded, int64_t C, double m, double *w, double *objective)
{
    if (m == 2.0)
        fuzzy_rows(d2, T, padded, C, m, w, objective, 1, 0);
    else
        fuzzy_rows(d2, T, padded, C, m, w, objective, 0, 0);
}

static void fuzzy_memberships(const double *d2, int64_t T, int64_t padded, int64_t C, double m, double *w)
{
    if (m == 2.0)
        fuzzy_rows(d2, T, padded, C, m, w, NULL, 1, 1);
    else
        fuzzy_rows(d2, T, padded, C, m, w, NULL, 0, 1);
}
