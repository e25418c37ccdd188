/* avx512vnni.c: x86-64 with AVX-512 F/BW/VL/DQ and VNNI (Cascade Lake 2019, Ice Lake, Zen 4).
 *
 * vpdpbusd multiplies unsigned by signed bytes and adds four products into an int32 lane, without saturation. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) &&                 \
    defined(__AVX512VNNI__)

#include "x86.h"

/* ---- ternary matrices -------------------------------------------------------------------------------------------- */

INLINE __m512i load512(const void *p) { return _mm512_loadu_si512(p); }

INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* 32 bytes of p and 32 bytes of q. */
INLINE __m512i load_halves(const void *p, const void *q)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(load256(p)), load256(q), 1);
}

INLINE __m512i set_mask(int byte) { return _mm512_set1_epi8((char)byte); }

/* The sums over the lanes of four vectors, each in two halves. */
INLINE __m256i sum4_halves(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    return _mm256_add_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
}

INLINE __m128i sum4(const __m512i v[4])
{
    __m256i halves = sum4_halves(v);
    return _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

/* n rows side by side, two blocks a step.  The codes are used in place, masked but not shifted, at weights 64,
 * 16, 4 and 1; the products are multiples of the weight, so the shifts at the end are exact.
 * int32 lanes: weight 64 gains at most 4 * 192 * 127 = 97536 a step of 256 codes, enough for K = 5.6 million. */
INLINE void matvec_rows(const uint8_t *codes, int n, int64_t n_block, int stream, const int8_t *x, int32_t *acc)
{
    const __m512i m67 = set_mask(0xc0), m45 = set_mask(0x30), m23 = set_mask(0x0c), m01 = set_mask(0x03);
    const int64_t stride = n_block * TERNARY_BLOCK_BYTES;
    const uint8_t *next = codes + n * stride;
    __m512i s67[4], s45[4], s23[4], s01[4];
    for (int r = 0; r < n; r++)
        s67[r] = s45[r] = s23[r] = s01[r] = _mm512_setzero_si512();
    int64_t b = 0;
    for (; b + 2 <= n_block; b += 2, x += 2 * TERNARY_BLOCK, codes += 2 * TERNARY_BLOCK_BYTES) {
        __m512i x0 = load_halves(x, x + 128), x1 = load_halves(x + 32, x + 160);
        __m512i x2 = load_halves(x + 64, x + 192), x3 = load_halves(x + 96, x + 224);
        if (stream)
            fetch_rows(codes, stride, n, next, 2 * TERNARY_BLOCK_BYTES);
        next += 2 * n * TERNARY_BLOCK_BYTES;
        for (int r = 0; r < n; r++) {
            __m512i c = load512(codes + r * stride);
            s67[r] = _mm512_dpbusd_epi32(s67[r], _mm512_and_si512(c, m67), x0);
            s45[r] = _mm512_dpbusd_epi32(s45[r], _mm512_and_si512(c, m45), x1);
            s23[r] = _mm512_dpbusd_epi32(s23[r], _mm512_and_si512(c, m23), x2);
            s01[r] = _mm512_dpbusd_epi32(s01[r], _mm512_and_si512(c, m01), x3);
        }
    }
    if (b < n_block) { /* an odd block: the upper half is zero */
        __m512i x0 = _mm512_zextsi256_si512(load256(x)), x1 = _mm512_zextsi256_si512(load256(x + 32));
        __m512i x2 = _mm512_zextsi256_si512(load256(x + 64)), x3 = _mm512_zextsi256_si512(load256(x + 96));
        for (int r = 0; r < n; r++) {
            __m512i c = _mm512_zextsi256_si512(load256(codes + r * stride));
            s67[r] = _mm512_dpbusd_epi32(s67[r], _mm512_and_si512(c, m67), x0);
            s45[r] = _mm512_dpbusd_epi32(s45[r], _mm512_and_si512(c, m45), x1);
            s23[r] = _mm512_dpbusd_epi32(s23[r], _mm512_and_si512(c, m23), x2);
            s01[r] = _mm512_dpbusd_epi32(s01[r], _mm512_and_si512(c, m01), x3);
        }
    }
    for (int r = 0; r < n; r++) {
        __m512i a = _mm512_add_epi32(_mm512_srai_epi32(s67[r], 6), _mm512_srai_epi32(s45[r], 4));
        __m512i c = _mm512_add_epi32(_mm512_srai_epi32(s23[r], 2), s01[r]);
        s01[r] = _mm512_add_epi32(a, c);
    }
    if (n == 4)
        _mm_storeu_si128((__m128i *)acc, sum4(s01));
    else
        for (int r = 0; r < n; r++)
            acc[r] = _mm512_reduce_add_epi32(s01[r]);
}

/* Rows of two blocks: nothing to collect, so the shifts come in between, and the activations stay in registers. */
INLINE void matvec_256(const uint8_t *codes, int64_t n_row, const int8_t *x, int32_t *acc)
{
    const __m512i m67 = set_mask(0xc0), m45 = set_mask(0x30), m23 = set_mask(0x0c), m01 = set_mask(0x03);
    const __m512i x0 = load_halves(x, x + 128), x1 = load_halves(x + 32, x + 160);
    const __m512i x2 = load_halves(x + 64, x + 192), x3 = load_halves(x + 96, x + 224);
    for (int64_t r = 0; r < n_row; r += 4) {
        __m512i s[4];
        for (int i = 0; i < 4; i++) {
            __m512i c = load512(codes + (r + i) * 2 * TERNARY_BLOCK_BYTES);
            s[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(c, m67), x0);
            s[i] = _mm512_dpbusd_epi32(_mm512_srai_epi32(s[i], 2), _mm512_and_si512(c, m45), x1);
            s[i] = _mm512_dpbusd_epi32(_mm512_srai_epi32(s[i], 2), _mm512_and_si512(c, m23), x2);
            s[i] = _mm512_dpbusd_epi32(_mm512_srai_epi32(s[i], 2), _mm512_and_si512(c, m01), x3);
        }
        _mm_storeu_si128((__m128i *)(acc + r), sum4(s));
    }
}

INLINE void matvec(const uint8_t *codes, int64_t n_row, int64_t n_block, int stream, const int8_t *x, int32_t *acc)
{
    const int64_t row_bytes = n_block * TERNARY_BLOCK_BYTES;
    const int side = stream ? rows_at_once(row_bytes) : 4;
#define PART(n) matvec_rows(codes + r * row_bytes, n, n_block, stream, x, acc + r)
    BY_ROWS(side, n_row, PART)
#undef PART
}

static void ternary_matvec(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int32_t *acc)
{
    if (is_stream(n_block * TERNARY_BLOCK))
        matvec(codes, n_row, n_block, 1, x, acc);
    else if (n_block == 2 && n_row % 4 == 0)
        matvec_256(codes, n_row, x, acc);
    else
        matvec(codes, n_row, n_block, 0, x, acc);
}

/* Four rows against up to four tokens, two blocks a step: 16 sums, and each vector of codes serves all tokens. */
#define TILE_TOKENS 4
#define TILE_WHOLE (1 << 20)
enum { TILE_ROWS = 4 };

INLINE void tile(const uint8_t *codes, int64_t row_bytes, int64_t n_block, const int8_t *x, int64_t x_stride, int n_row,
                 int n_token, int stream, int32_t *sum)
{
    const __m512i low = set_mask(0x03);
    const uint8_t *next = codes + n_row * row_bytes;
    __m512i s[TILE_TOKENS][TILE_ROWS];
#pragma GCC unroll 4
    for (int t = 0; t < n_token; t++)
#pragma GCC unroll 4
        for (int r = 0; r < TILE_ROWS; r++)
            s[t][r] = _mm512_setzero_si512();
    for (int64_t b = 0; b < n_block; b += 2, x += 2 * TERNARY_BLOCK, codes += 2 * TERNARY_BLOCK_BYTES) {
        const int pair = b + 2 <= n_block; /* of an odd block the upper half is zero */
        __m512i c[TILE_ROWS];
        if (stream)
            fetch_plain(next, 2 * n_row * TERNARY_BLOCK_BYTES);
        next += 2 * n_row * TERNARY_BLOCK_BYTES;
#pragma GCC unroll 4
        for (int r = 0; r < n_row; r++)
            c[r] = pair ? load512(codes + r * row_bytes) : _mm512_zextsi256_si512(load256(codes + r * row_bytes));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i xv[TILE_TOKENS];
            __asm__ volatile("" ::: "memory"); /* else all inputs are loaded first, and sums go to the stack */
#pragma GCC unroll 4
            for (int t = 0; t < n_token; t++)
                xv[t] = load_halves(
                    x + t * x_stride + 32 * i, x + t * x_stride + 32 * i + (pair ? TERNARY_BLOCK : 0));
#pragma GCC unroll 4
            for (int r = 0; r < n_row; r++) {
                __m512i u = _mm512_and_si512(i < 3 ? _mm512_srli_epi16(c[r], 6 - 2 * i) : c[r], low);
#pragma GCC unroll 4
                for (int t = 0; t < n_token; t++)
                    s[t][r] = _mm512_dpbusd_epi32(s[t][r], u, xv[t]);
            }
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < n_token; t++)
        if (n_row == TILE_ROWS)
            _mm_storeu_si128((__m128i *)(sum + t * TILE_ROWS), sum4(s[t]));
        else
            sum[t * TILE_ROWS] = _mm512_reduce_add_epi32(s[t][0]);
}

#define LOOKUP_LEAST_TOKENS 32 /* with 16 both take the same time (benchmarks/log#one-step) */
#define multiply_dot(s, codes, x) (ints16)_mm512_dpbusd_epi32((__m512i)(s), (__m512i)(codes), (__m512i)(x))
#include "tiles.inc.h"
#include "lookup.inc.h"

/* ---- needed by bit_dots.inc.h ---------------------------------------------------------------------------------- */

#define BIT_WIDTH 64
typedef __m512i vbytes;
typedef __m512i vsums;

INLINE vbytes load_codes(const void *p) { return load512(p); }
INLINE vbytes low_nibbles(vbytes c) { return _mm512_and_si512(c, set_mask(0x0f)); }
INLINE vbytes high_nibbles(vbytes c) { return _mm512_and_si512(_mm512_srli_epi16(c, 4), set_mask(0x0f)); }

INLINE vsums dot_codes(vsums sums, const vbytes u[8], const int8_t *x)
{
    for (int m = 0; m < 8; m++)
        sums = _mm512_dpbusd_epi32(sums, u[m], load512(x + 64 * m));
    return sums;
}

INLINE int32_t sum_lanes(vsums sums) { return _mm512_reduce_add_epi32(sums); }

/* Bits stay where they are, worth 1, 2, 4 and 8, and each worth has its own sum: one shift a line instead of seven. */
#define BIT_SUMS 4

INLINE void dot_bits(vsums sum[BIT_SUMS], vbytes c, const int8_t *x)
{
    vbytes upper = _mm512_srli_epi16(c, 4);
    for (int b = 0; b < 4; b++) {
        vbytes mask = set_mask(1 << b);
        sum[b] = _mm512_dpbusd_epi32(sum[b], _mm512_and_si512(c, mask), load512(x + 64 * b));
        sum[b] = _mm512_dpbusd_epi32(sum[b], _mm512_and_si512(upper, mask), load512(x + 64 * (b + 4)));
    }
}

INLINE vsums bit_total(const vsums sum[BIT_SUMS])
{
    __m512i ones = _mm512_add_epi32(sum[0], _mm512_srai_epi32(sum[1], 1));
    return _mm512_add_epi32(ones, _mm512_add_epi32(_mm512_srai_epi32(sum[2], 2), _mm512_srai_epi32(sum[3], 3)));
}

#include "bit_dots.inc.h"

/* ---- needed by lanes.inc.h and attention.inc.h ------------------------------------------------------------------- */

#define LANE_WIDTH 16
typedef float vf __attribute__((vector_size(4 * LANE_WIDTH)));

INLINE vf load_half(const uint16_t *p) { return (vf)_mm512_cvtph_ps(load256(p)); }

INLINE void store_half(uint16_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

#define LARGER(a, b) _mm512_max_ps((__m512)(a), (__m512)(b))

INLINE void round_bytes(const vf x[2], uint8_t *u)
{
    for (int i = 0; i < 2; i++)
        _mm_storeu_si128((__m128i *)u + i, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32((__m512)x[i])));
}

/* Multiplications and additions of 256 bits: those of 512 take 1.25 times as long on Zen 4
 * (benchmarks/log#upper-bytes). Four vectors share what is broadcast of a query: 16 of the 32 registers are sums. */
#define HALF_WIDTH 8
#define HALF_VECTORS 4
typedef float vh __attribute__((vector_size(4 * HALF_WIDTH)));

INLINE vh load_half_h(const uint16_t *p) { return (vh)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

#include "lanes.inc.h"

/* ---- needed by delta.inc.h: with VECTORS vectors each, as many sums as registers hold ---------------------------- */

#define DELTA_TILE 8
#include "delta.inc.h"

/* ---- needed by groups.inc.h: a register is 16 rows by 4 elements ------------------------------------------------- */

#define GROUP_SOME 4
#define GROUP_MANY 16
#define PANEL_TOKENS 4
#define PANEL_OWN 1

INLINE __m128i load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

INLINE __m512i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

/* Rows that begin `stride` bytes apart, by an address that takes no register of its own; three is 3 * stride. */
struct rows16 {
    const uint8_t *first[4];
    int64_t stride, three;
};

INLINE struct rows16 rows16_at(const uint8_t *rows, int64_t stride)
{
    return (struct rows16){{rows, rows + 4 * stride, rows + 8 * stride, rows + 12 * stride}, stride, 3 * stride};
}

INLINE const uint8_t *row_of(const struct rows16 *r, int i)
{
    const uint8_t *first = r->first[i / 4];
    return i % 4 == 0 ? first : i % 4 == 1 ? first + r->stride : i % 4 == 2 ? first + 2 * r->stride : first + r->three;
}

/* 16 bytes each of rows i, i + 4, i + 8 and i + 12. */
INLINE __m512i group_quad(const struct rows16 *r, int i, int at)
{
    __m256i low = _mm256_castsi128_si256(load128(row_of(r, i) + at));
    __m256i high = _mm256_castsi128_si256(load128(row_of(r, i + 8) + at));
    low = _mm256_inserti128_si256(low, load128(row_of(r, i + 4) + at), 1);
    high = _mm256_inserti128_si256(high, load128(row_of(r, i + 12) + at), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* 16 bytes of each of 16 rows -> v[j]: bytes 4j .. 4j+3 of all rows. */
INLINE void group_turn(const struct rows16 *r, int at, __m512i v[4])
{
    __m512i a[4];
    for (int i = 0; i < 4; i++)
        a[i] = group_quad(r, i, at);
    __m512i b0 = _mm512_unpacklo_epi32(a[0], a[1]), b1 = _mm512_unpackhi_epi32(a[0], a[1]);
    __m512i b2 = _mm512_unpacklo_epi32(a[2], a[3]), b3 = _mm512_unpackhi_epi32(a[2], a[3]);
    v[0] = _mm512_unpacklo_epi64(b0, b2), v[1] = _mm512_unpackhi_epi64(b0, b2);
    v[2] = _mm512_unpacklo_epi64(b1, b3), v[3] = _mm512_unpackhi_epi64(b1, b3);
}

/* The scales of rows i .. i+3, put together outside of the vector units, which have enough to do. */
INLINE int64_t group_scales4(const struct rows16 *r, int i)
{
    uint16_t h[4];
    for (int j = 0; j < 4; j++)
        memcpy(h + j, row_of(r, i + j), 2);
    return (int64_t)(h[0] | (uint64_t)h[1] << 16 | (uint64_t)h[2] << 32 | (uint64_t)h[3] << 48);
}

/* The scales of 16 rows. */
INLINE vf group_scales(const struct rows16 *r)
{
    return (vf)_mm512_cvtph_ps(_mm256_setr_epi64x(
        group_scales4(r, 0), group_scales4(r, 4), group_scales4(r, 8), group_scales4(r, 12)));
}

/* One token.  Nothing is turned before the sums are there: a lane has four neighbours of a row, a register four rows,
 * and 16 activations serve all of them.  Sums of codes in place at 64 come first and are shifted down before those at
 * 16, 4 and 1 join them; all are multiples of what is shifted out. */
INLINE void group_one(const uint8_t *rows, int64_t stride, int64_t n_group, int group_bytes, const uint8_t *ahead,
                      const int8_t *q, const float *d, const int32_t *sum, float (*y)[16])
{
    const __m512i m[4] = {set_mask(0x03), set_mask(0x0c), set_mask(0x30), set_mask(0xc0)};
    struct rows16 r = rows16_at(rows, stride);
    vf total = {0};
    for (int64_t g = 0; g < n_group; g++, q += GROUP) {
        __m512i s[4], a[4], b[4];
        for (int i = 0; i < 4; i++) {
            a[i] = group_quad(&r, i, 2);
            b[i] = group_quad(&r, i, group_bytes - 16);
            s[i] = _mm512_setzero_si512();
        }
        for (int f = 3; f >= 0; f--) {
            __m512i x = _mm512_broadcast_i32x4(load128(q + 32 * f));
            __m512i z = _mm512_broadcast_i32x4(load128(q + 32 * f + 16));
            for (int i = 0; i < 4; i++)
                s[i] = _mm512_dpbusd_epi32(f == 3 ? s[i] : _mm512_srai_epi32(s[i], 2), _mm512_and_si512(a[i], m[f]), x);
            for (int i = 0; i < 4; i++)
                s[i] = _mm512_dpbusd_epi32(s[i], _mm512_and_si512(b[i], m[f]), z);
        }
        group_fetch(ahead, g, group_bytes);
        vf scale = group_scales(&r);
        for (int i = 0; i < 4; i++)
            r.first[i] += group_bytes;
        __m512i u = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
        __m512i w = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
        __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(u, w), _mm512_unpackhi_epi64(u, w));
        all = _mm512_sub_epi32(all, _mm512_set1_epi32(sum[g]));
        total += (vf)_mm512_cvtepi32_ps(all) * (scale * d[g]);
    }
    store_float(y[0], total);
}

/* Codes in place at weights 1, 4, 16 and 64, each with its own sums, as in matvec_rows. */
INLINE void group_vector(const uint8_t *rows, int64_t stride, int64_t n_group, int group_bytes, const uint8_t *ahead,
                         int n_token, const int8_t *q, const float *d, const int32_t *sum, float (*y)[16])
{
    if (n_token == 1) {
        group_one(rows, stride, n_group, group_bytes, ahead, q, d, sum, y);
        return;
    }
    const __m512i m[4] = {set_mask(0x03), set_mask(0x0c), set_mask(0x30), set_mask(0xc0)};
    struct rows16 r = rows16_at(rows, stride);
    vf total[4] = {{0}};
    for (int64_t g = 0; g < n_group; g++, q += GROUP) {
        __m512i s[4][4];
        for (int t = 0; t < n_token; t++) {
            s[t][0] = _mm512_set1_epi32(-sum[t * n_group + g]);
            s[t][1] = s[t][2] = s[t][3] = _mm512_setzero_si512();
        }
        for (int half = 0; half < 2; half++) {
            __m512i v[4];
            group_turn(&r, half ? group_bytes - 16 : 2, v);
            for (int j = 0; j < 4; j++)
                for (int f = 0; f < 4; f++) {
                    __m512i c = _mm512_and_si512(v[j], m[f]);
                    const int8_t *x = q + 32 * f + 16 * half + 4 * j;
                    for (int t = 0; t < n_token; t++)
                        s[t][f] = _mm512_dpbusd_epi32(s[t][f], c, broadcast4(x + t * n_group * GROUP));
                }
        }
        group_fetch(ahead, g, group_bytes);
        vf scale = group_scales(&r);
        for (int i = 0; i < 4; i++)
            r.first[i] += group_bytes;
        for (int t = 0; t < n_token; t++) {
            __m512i a = _mm512_add_epi32(s[t][0], _mm512_srai_epi32(s[t][1], 2));
            __m512i b = _mm512_add_epi32(_mm512_srai_epi32(s[t][2], 4), _mm512_srai_epi32(s[t][3], 6));
            total[t] += (vf)_mm512_cvtepi32_ps(_mm512_add_epi32(a, b)) * (scale * d[t * n_group + g]);
        }
    }
    for (int t = 0; t < n_token; t++)
        store_float(y[t], total[t]);
}

/* Codes are used with those of the rows below them in the byte, whose sums are taken away at the end: one mask less,
 * and no shift but those of sums, which are exact. */
INLINE void panel_sums(const uint8_t *codes, const uint8_t *ahead, int n_step, int n_token, const int8_t *q, int64_t ld,
                       vi (*sum)[PANEL_VECTORS])
{
    const __m512i m[3] = {set_mask(0x03), set_mask(0x0f), set_mask(0x3f)};
    const int n_chain = n_token == 1 ? 2 : 1; /* steps whose sums do not wait for each other */
    __m512i s[PANEL_TOKENS][4];
#pragma GCC unroll 4
    for (int t = 0; t < PANEL_TOKENS; t++)
#pragma GCC unroll 4
        for (int f = 0; f < 4; f++)
            s[t][f] = _mm512_setzero_si512();
    for (int i = 0; i < n_step; i += n_chain)
#pragma GCC unroll 2
        for (int j = 0; j < n_chain; j++) {
            __asm__ volatile("" ::: "memory"); /* step by step: all loads at once would push sums out of registers */
            __m512i c = load512(codes + 64 * (i + j));
            panel_fetch(ahead + 64 * (i + j), 64, n_token);
            const __m512i u[4] = {_mm512_and_si512(c, m[0]), _mm512_and_si512(c, m[1]), _mm512_and_si512(c, m[2]), c};
#pragma GCC unroll 4
            for (int t = 0; t < n_token; t++) {
                __m512i x = broadcast4(q + t * ld + 4 * (i + j));
#pragma GCC unroll 4
                for (int f = 0; f < 4; f++)
                    s[t + j][f] = _mm512_dpbusd_epi32(s[t + j][f], u[f], x);
            }
        }
#pragma GCC unroll 4
    for (int t = 0; t < n_token; t++) {
        if (n_chain == 2)
#pragma GCC unroll 4
            for (int f = 0; f < 4; f++)
                s[0][f] = _mm512_add_epi32(s[0][f], s[1][f]);
#pragma GCC unroll 4
        for (int f = 0; f < 4; f++) {
            __m512i above = f ? _mm512_sub_epi32(s[t][f], s[t][f - 1]) : s[t][0];
            sum[t][f] = (vi)_mm512_srai_epi32(above, 2 * f);
        }
    }
}

#include "groups.inc.h"

/* ---- needed by head.inc.h ---------------------------------------------------------------------------------------- */

/* A lane of int32 gains at most 2 * 128 * 8191 = 2096896 per step of 32 elements; 1024 steps are 2147221504 < 2^31. */
enum { HEAD_STEP = 32, HEAD_STEPS = 1024 };

typedef __m512i head_x;
typedef __m512i head_sums;

INLINE head_x head_load(const int16_t *x) { return load512(x); }

INLINE head_sums head_dot(head_sums sums, const int8_t *w, head_x x)
{
    return _mm512_dpwssd_epi32(sums, _mm512_cvtepi8_epi16(load256(w)), x);
}

INLINE int64_t head_total(head_sums sums)
{
    return _mm512_reduce_add_epi64(_mm512_add_epi64(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(sums)),
                                                    _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(sums, 1))));
}

INLINE void head_totals(const head_sums sums[4], int narrow, int64_t total[4])
{
    if (narrow) { /* half of the sums of 4096 elements fits an int32: see HEAD_NARROW in head.inc.h */
        __m256i halves = sum4_halves(sums), so_far = _mm256_loadu_si256((const __m256i *)total);
        __m256i low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(halves));
        __m256i high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(halves, 1));
        _mm256_storeu_si256((__m256i *)total, _mm256_add_epi64(so_far, _mm256_add_epi64(low, high)));
    } else
        for (int r = 0; r < 4; r++)
            total[r] += head_total(sums[r]);
}

#define HEAD_NARROW 4096
#define HEAD_VECTORS 4
#define HEAD_QUAD
INLINE void head_quad(const head_sums sums[4], int32_t total[4]) { _mm_storeu_si128((__m128i *)total, sum4(sums)); }

#include "head.inc.h"

/* ---- needed by byte_dots.inc.h ----------------------------------------------------------------------------------- */

#define BYTE_VECTORS 4
#define BYTE_LEAST_VECTORS 5
#define byte_quad head_quad

/* vpdpbusd wants unsigned bytes: w + 128, for which byte_base makes up. */
INLINE vbytes byte_row(vbytes w) { return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80)); }
INLINE vsums byte_dot(vsums sums, vbytes w, vbytes x)
{
    sums = _mm512_dpbusd_epi32(sums, w, x);
    __asm__("" : "+v"(sums)); /* else GCC copies sums to and fro and keeps two of them in memory */
    return sums;
}

INLINE int32_t byte_base(const int8_t *x, int64_t k) { return -128 * sum_i8(x, k); }

#include "byte_dots.inc.h"

/* ---- KV pages ---------------------------------------------------------------------------------------------------- */

/* k ^ 0x80 is k + 128 as unsigned; 128 times the sum of the query is taken off beforehand. */
INLINE void dot_keys_i8(const int8_t *k, const int8_t *next, int64_t head_dim, int n, const int8_t *q, vi (*s)[2])
{
    const __m512i flip = set_mask(0x80);
    __m512i a[4], b[4];
    for (int i = 0; i < n; i++)
        a[i] = b[i] = _mm512_set1_epi32(-128 * sum_i8(q + i * head_dim, head_dim));
    for (int64_t d = 0; d < head_dim; d += 4) {
        prefetch_l2(next + d * KV_PAGE);
        prefetch_l2(next + d * KV_PAGE + 64);
        __m512i k0 = _mm512_xor_si512(load512(k + d * KV_PAGE), flip);
        __m512i k1 = _mm512_xor_si512(load512(k + d * KV_PAGE + 64), flip);
        for (int i = 0; i < n; i++) {
            __m512i qv = broadcast4(q + i * head_dim + d);
            a[i] = _mm512_dpbusd_epi32(a[i], k0, qv);
            b[i] = _mm512_dpbusd_epi32(b[i], k1, qv);
        }
    }
    for (int i = 0; i < n; i++)
        s[i][0] = (vi)a[i], s[i][1] = (vi)b[i];
}

INLINE void dot_keys_i4(const uint8_t *k, const uint8_t *next, int64_t n_quad, int n, const int8_t *q, int64_t ld_q,
                        vi (*s)[2])
{
    __m512i a[4], b[4];
    for (int i = 0; i < n; i++)
        a[i] = b[i] = _mm512_set1_epi32(-8 * sum_i8(q + i * ld_q, 4 * n_quad));
    for (int64_t j = 0; j < n_quad; j++) {
        prefetch_l2(next + 64 * j);
        __m512i c = load512(k + 64 * j), k0 = low_nibbles(c), k1 = high_nibbles(c);
        for (int i = 0; i < n; i++) {
            __m512i qv = broadcast4(q + i * ld_q + 4 * j);
            a[i] = _mm512_dpbusd_epi32(a[i], k0, qv);
            b[i] = _mm512_dpbusd_epi32(b[i], k1, qv);
        }
    }
    for (int i = 0; i < n; i++)
        s[i][0] = (vi)a[i], s[i][1] = (vi)b[i];
}

#define VALUE_DIMS 16
#define WEIGHT_PARTS 1
INLINE void dot_values_i8(const int8_t *v, const int8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[1])
{
    __m512i a[4];
    for (int i = 0; i < n; i++)
        a[i] = _mm512_setzero_si512();
    ROLLED for (int t = 0; t < KV_PAGE; t += 4) {
        prefetch_l2(next + t * head_dim + d * 4);
        __m512i vv = load512(v + t * head_dim + d * 4);
        for (int i = 0; i < n; i++)
            a[i] = _mm512_dpbusd_epi32(a[i], broadcast4(u[i] + t), vv);
    }
    for (int i = 0; i < n; i++)
        sum[i][0] = (vi)a[i];
}

INLINE void dot_values_i4(const uint8_t *v, const uint8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[1])
{
    __m512i a[4], b[4];
    for (int i = 0; i < n; i++)
        a[i] = b[i] = _mm512_setzero_si512();
    ROLLED for (int t = 0; t < KV_PAGE / 2; t += 4) {
        prefetch_l2(next + t * head_dim + d * 4);
        __m512i c = load512(v + t * head_dim + d * 4), v0 = low_nibbles(c), v1 = high_nibbles(c);
        for (int i = 0; i < n; i++) {
            a[i] = _mm512_dpbusd_epi32(a[i], broadcast4(u[i] + t), v0);
            b[i] = _mm512_dpbusd_epi32(b[i], broadcast4(u[i] + KV_PAGE / 2 + t), v1);
        }
    }
    for (int i = 0; i < n; i++)
        sum[i][0] = (vi)_mm512_add_epi32(a[i], b[i]);
}

#include "attention_int4.inc.h"

const struct kernels kernels_avx512vnni = {
    .name = "avx512vnni",
    .own = {4, FETCH_L1, 4 << 10},
    .many_tokens = LOOKUP_LEAST_TOKENS,
    .byte_vectors = BYTE_LEAST_VECTORS,
    KERNEL_FUNCTIONS,
};

#else
typedef int not_compiled_for_avx512vnni; /* ISO C requires a declaration */
#endif
