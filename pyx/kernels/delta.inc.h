/* delta.inc.h: rotated bases and the gated delta rule (change_basis, conv_silu, delta_chunk and delta_seal of
 * kernels.h) for every vector target, written once.
 *
 * The includer has included lanes.inc.h and defines
 *
 *   DELTA_TILE                    vectors that are multiplied with a strip of a state at once, an even number
 *
 * Columns of a state are lanes, so no sum crosses lanes but those of dot products.  Everything is static: see
 * numbers.h. */
#ifndef BITNET_EDGE_DELTA_H
#define BITNET_EDGE_DELTA_H

/* ---- rotated bases ----------------------------------------------------------------------------------------------- */

/* (a, b) -> (a + b, a - b) for lanes a without and b with a bit: `other` has a and b changed over, `minus` the sign bit
 * where b stands. */
INLINE vf butterfly(vf x, vf other, vi minus) { return other + (vf)((vi)x ^ minus); }

#define SIGN INT32_MIN
#define SWAP(x, ...) (vf) PICK(vi, (vi)x, (vi)x, __VA_ARGS__)
#if LANE_WIDTH == 4
INLINE vf butterflies(vf x)
{
    x = butterfly(x, SWAP(x, 1, 0, 3, 2), (vi){0, SIGN, 0, SIGN});
    return butterfly(x, SWAP(x, 2, 3, 0, 1), (vi){0, 0, SIGN, SIGN});
}
#elif LANE_WIDTH == 8
INLINE vf butterflies(vf x)
{
    x = butterfly(x, SWAP(x, 1, 0, 3, 2, 5, 4, 7, 6), (vi){0, SIGN, 0, SIGN, 0, SIGN, 0, SIGN});
    x = butterfly(x, SWAP(x, 2, 3, 0, 1, 6, 7, 4, 5), (vi){0, 0, SIGN, SIGN, 0, 0, SIGN, SIGN});
    return butterfly(x, SWAP(x, 4, 5, 6, 7, 0, 1, 2, 3), (vi){0, 0, 0, 0, SIGN, SIGN, SIGN, SIGN});
}
#else
#define FOUR(a, b, c, d) a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d
INLINE vf butterflies(vf x)
{
    x = butterfly(x, SWAP(x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14), (vi){FOUR(0, SIGN, 0, SIGN)});
    x = butterfly(x, SWAP(x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13), (vi){FOUR(0, 0, SIGN, SIGN)});
    x = butterfly(x, SWAP(x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11),
                  (vi){0, 0, 0, 0, SIGN, SIGN, SIGN, SIGN, 0, 0, 0, 0, SIGN, SIGN, SIGN, SIGN});
    return butterfly(x, SWAP(x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7),
                     (vi){0, 0, 0, 0, 0, 0, 0, 0, SIGN, SIGN, SIGN, SIGN, SIGN, SIGN, SIGN, SIGN});
}
#endif

/* Two steps at once over a block: four numbers apart by half. */
INLINE void double_step(float *x, int64_t block, int64_t half)
{
    for (int64_t i = 0; i < block; i += 4 * half)
        for (int64_t j = i; j < i + half; j += LANE_WIDTH) {
            vf a = load_float(x + j), b = load_float(x + j + half);
            vf c = load_float(x + j + 2 * half), d = load_float(x + j + 3 * half);
            vf ab = a + b, ba = a - b, cd = c + d, dc = c - d;
            store_float(x + j, ab + cd);
            store_float(x + j + half, ba + dc);
            store_float(x + j + 2 * half, ab - cd);
            store_float(x + j + 3 * half, ba - dc);
        }
}

INLINE void single_step(float *x, int64_t block, int64_t half)
{
    for (int64_t i = 0; i < block; i += 2 * half)
        for (int64_t j = i; j < i + half; j += LANE_WIDTH) {
            vf a = load_float(x + j), b = load_float(x + j + half);
            store_float(x + j, a + b);
            store_float(x + j + half, a - b);
        }
}

static void change_basis(const float *x, const float *before, const float *after, int64_t n, int64_t block, float *out)
{
    const float factor = (float)(1.0 / sqrt((double)block));
    for (int64_t at = 0; at < n; at += block) {
        int64_t half = LANE_WIDTH;
        for (int64_t i = at; i < at + block; i += LANE_WIDTH) {
            vf y = load_float(x + i);
            store_float(out + i, butterflies(before ? load_float(before + i) * y : y));
        }
        for (; 2 * half < block; half *= 4)
            double_step(out + at, block, half);
        if (half < block)
            single_step(out + at, block, half);
        for (int64_t i = at; i < at + block; i += LANE_WIDTH) {
            vf y = load_float(out + i) * factor;
            store_float(out + i, after ? load_float(after + i) * y : y);
        }
    }
}

/* ---- gated delta rule -------------------------------------------------------------------------------------------- */

static void conv_silu(const float *const *x, const float *w, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + LANE_WIDTH <= n; i += LANE_WIDTH) {
        vf y = load_float(x[0] + i) * load_float(w + i);
        for (int tap = 1; tap < CONV_TAPS; tap++)
            y += load_float(x[tap] + i) * load_float(w + tap * n + i);
        store_float(out + i, y / (1.0f + exp_lanes(-y)));
    }
    for (; i < n; i++) {
        float y = x[0][i] * w[i];
        for (int tap = 1; tap < CONV_TAPS; tap++)
            y += x[tap][i] * w[tap * n + i];
        out[i] = y / (1.0f + kernel_expf(-y));
    }
}

/* n a multiple of LANES */
INLINE float dot(const float *a, const float *b, int64_t n)
{
    vf sum[VECTORS] = {0};
    for (int64_t i = 0; i < n; i += LANES)
        for (int v = 0; v < VECTORS; v++)
            sum[v] += load_float(a + i + v * LANE_WIDTH) * load_float(b + i + v * LANE_WIDTH);
    return tree_sum(sum);
}

/* y[m][16] = sum_i strip[i] * x[m][i] for n_x vectors. */
INLINE void ask(const float *strip, int64_t dk, const float *const *x, int n_x, float (*y)[DELTA_STRIP])
{
    vf sum[DELTA_TILE][VECTORS] = {0};
    for (int64_t i = 0; i < dk; i++)
        for (int v = 0; v < VECTORS; v++) {
            vf row = load_float(strip + i * DELTA_STRIP + v * LANE_WIDTH);
            if (v == 0)
                fetch((const char *)(strip + i * DELTA_STRIP) + kernels_chosen.ahead, sizeof(float) * DELTA_STRIP);
            for (int m = 0; m < n_x; m++)
                sum[m][v] += row * x[m][i];
        }
    for (int m = 0; m < n_x; m++)
        memcpy(y[m], sum[m], sizeof y[m]);
}

static void delta_chunk(const float *state, int64_t dk, int64_t dv, int64_t first, int64_t n, const float *k,
                        const double *c, const float *q, int64_t ld_q, const float *v, int64_t ld_v, const float *beta,
                        int64_t ld_beta, float *d, float *o, int64_t ld_o)
{
    float of_key[DELTA_CHUNK][DELTA_CHUNK], of_query[DELTA_CHUNK][DELTA_CHUNK], left[DELTA_CHUNK];
    float asked[2 * DELTA_CHUNK][DELTA_STRIP]; /* of key, then query, of every token */
    const float *x[2 * DELTA_CHUNK];
    for (int64_t m = 0; m < n; m++) {
        const int64_t t = first + m;
        x[2 * m] = k + t * dk;
        x[2 * m + 1] = q + m * ld_q;
        left[m] = kernel_expf((float)c[t]);
        for (int64_t s = 0; s <= t; s++) {
            const float r = kernel_expf((float)(c[t] - c[s]));
            of_key[m][s] = r * dot(k + t * dk, k + s * dk, dk);
            of_query[m][s] = r * dot(q + m * ld_q, k + s * dk, dk);
        }
    }
    for (int64_t j = 0; j < dv; j += DELTA_STRIP, state += dk * DELTA_STRIP, d += DELTA_CHUNK * DELTA_STRIP) {
        int64_t some = 0;
        for (; some + DELTA_TILE <= 2 * n; some += DELTA_TILE)
            ask(state, dk, x + some, DELTA_TILE, asked + some);
        for (; some < 2 * n; some += 2)
            ask(state, dk, x + some, 2, asked + some);
        for (int64_t m = 0; m < n; m++) {
            const int64_t t = first + m;
            vf y[VECTORS], z[VECTORS];
            for (int i = 0; i < VECTORS; i++) {
                y[i] = left[m] * load_float(asked[2 * m] + i * LANE_WIDTH);
                z[i] = left[m] * load_float(asked[2 * m + 1] + i * LANE_WIDTH);
            }
            for (int64_t s = 0; s < t; s++)
                for (int i = 0; i < VECTORS; i++) {
                    const vf added = load_float(d + s * DELTA_STRIP + i * LANE_WIDTH);
                    y[i] += of_key[m][s] * added;
                    z[i] += of_query[m][s] * added;
                }
            for (int i = 0; i < VECTORS; i++) {
                const vf added = beta[m * ld_beta] * (load_float(v + m * ld_v + j + i * LANE_WIDTH) - y[i]);
                store_float(d + t * DELTA_STRIP + i * LANE_WIDTH, added);
                store_float(o + m * ld_o + j + i * LANE_WIDTH, z[i] + of_query[m][t] * added);
            }
        }
    }
}

static void delta_seal(const float *state, int64_t dk, int64_t dv, const float *k, const double *c, const float *d,
                       float *to)
{
    enum { ROWS = 4 };
    const float left = kernel_expf((float)c[DELTA_CHUNK - 1]);
    float w[MAX_DELTA_DIM][DELTA_CHUNK]; /* [dk][token] */
    for (int64_t s = 0; s < DELTA_CHUNK; s++) {
        const float r = kernel_expf((float)(c[DELTA_CHUNK - 1] - c[s]));
        for (int64_t i = 0; i < dk; i++)
            w[i][s] = r * k[s * dk + i];
    }
    for (int64_t j = 0; j < dv; j += DELTA_STRIP, d += DELTA_CHUNK * DELTA_STRIP)
        for (int64_t i = 0; i < dk; i += ROWS, state += ROWS * DELTA_STRIP, to += ROWS * DELTA_STRIP) {
            vf x[ROWS][VECTORS];
            for (int row = 0; row < ROWS; row++)
                for (int p = 0; p < VECTORS; p++)
                    x[row][p] = left * load_float(state + row * DELTA_STRIP + p * LANE_WIDTH);
            for (int s = 0; s < DELTA_CHUNK; s++)
                for (int p = 0; p < VECTORS; p++) {
                    const vf added = load_float(d + s * DELTA_STRIP + p * LANE_WIDTH);
                    for (int row = 0; row < ROWS; row++)
                        x[row][p] += w[i + row][s] * added;
                }
            memcpy(to, x, sizeof x);
        }
}

#endif
