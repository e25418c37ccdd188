/* avx2.h: the kernels of avx2.c and of avxvnni.c, in vectors of 32 bytes.  They differ in their dot products: vpmaddubsw
 * adds two neighbouring products into int16, vpdpbusd (VNNI) four into int32.
 *
 * The bounds below show that no int16 overflows, also for code 3, which a corrupt file can hold. */
#ifndef BITNET_EDGE_AVX2_H
#define BITNET_EDGE_AVX2_H

#include "x86.h"

/* ---- needed by lanes.inc.h and attention.inc.h ------------------------------------------------------------------- */

#define LANE_WIDTH 8
typedef float vf __attribute__((vector_size(4 * LANE_WIDTH)));

INLINE vf load_half(const uint16_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

INLINE void store_half(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

#define LARGER(a, b) _mm256_max_ps((__m256)(a), (__m256)(b))

INLINE __m256i round_pair(vf a, vf b)
{
    return _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)a), _mm256_cvtps_epi32((__m256)b));
}

INLINE void round_bytes(const vf x[4], uint8_t *u)
{
    __m256i packed = _mm256_packus_epi16(round_pair(x[0], x[1]), round_pair(x[2], x[3]));
    packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); /* packs work in halves */
    _mm256_storeu_si256((__m256i *)u, packed);
}

#define HALF_WIDTH LANE_WIDTH
#define HALF_VECTORS 2
#define load_half_h load_half
typedef vf vh;

#include "lanes.inc.h"

/* ---- needed by delta.inc.h: with VECTORS vectors each, as many sums as registers hold ---------------------------- */

#define DELTA_TILE 4
#include "delta.inc.h"

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

typedef __m256i vb;

INLINE vb load32(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vb bytes(int x) { return _mm256_set1_epi8((char)x); }
INLINE vb ints(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vb and32(vb a, vb b) { return _mm256_and_si256(a, b); }
INLINE vb shift16(vb a, int n) { return _mm256_srli_epi16(a, n); }
INLINE vb add32(vb a, vb b) { return _mm256_add_epi32(a, b); }

/* The same sums; else compilers add up the products of many steps in a tree, for which there are no registers. */
INLINE vb keep(vb a)
{
    __asm__("" : "+x"(a));
    return a;
}

/* Two int32 lanes added to one. */
INLINE __m128i fold(vb a) { return _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)); }

/* ---- dot products ------------------------------------------------------------------------------------------------
 *
 *   NARROW_STEPS(n)          how often a narrow sum may grow, if n times fit an int16
 *   dot16(sums, a, b)        int32 sums + products of int16, pairwise
 *   dot_narrow(sums, u, x)   narrow sums + products of unsigned and signed bytes: int16 lanes of neighbouring pairs,
 *                            where the bounds show that they fit; or int32 lanes of four
 *   widen_by(sums, f)        narrow sums times f (1, 4 or 16, a constant) as int32 lanes of four bytes each
 *   dot_abs(sums, a, b)      int32 sums + products of signed bytes of +-127 */

#ifdef VNNI

#define NARROW_STEPS(n) ((n) << 10)

#if defined(__AVXVNNI__)
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_dpbusd_avx_epi32(sums, u, x); }
INLINE vb dot16(vb sums, vb a, vb b) { return _mm256_dpwssd_avx_epi32(sums, a, b); }
#else /* the same instructions as AVX-512 encodes them: to test the target on processors that have only those */
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_dpbusd_epi32(sums, u, x); }
INLINE vb dot16(vb sums, vb a, vb b) { return _mm256_dpwssd_epi32(sums, a, b); }
#endif
INLINE vb widen_by(vb sums, int factor) { return factor == 4 ? _mm256_slli_epi32(sums, 2) : sums; }
INLINE vb dot_abs(vb sums, vb a, vb b) { return dot_narrow(sums, _mm256_abs_epi8(a), _mm256_sign_epi8(b, a)); }

#else

#define NARROW_STEPS(n) (n)

INLINE vb dot16(vb sums, vb a, vb b) { return add32(sums, _mm256_madd_epi16(a, b)); }
INLINE vb dot_narrow(vb sums, vb u, vb x) { return _mm256_add_epi16(sums, _mm256_maddubs_epi16(u, x)); }
INLINE vb widen_by(vb sums, int factor) { return _mm256_madd_epi16(sums, _mm256_set1_epi16((short)factor)); }

/* |a| as unsigned times b with the sign of a: pairs are at most 2 * 127 * 127 = 32258, no saturation.  (a ^ 0x80 as
 * unsigned would reach 2 * 255 * 127 = 64770.) */
INLINE vb dot_abs(vb sums, vb a, vb b)
{
    return add32(sums, widen_by(_mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a)), 1));
}

#endif

INLINE __m128i sum4(vb a, vb b, vb c, vb d)
{
    return _mm_hadd_epi32(_mm_hadd_epi32(fold(a), fold(b)), _mm_hadd_epi32(fold(c), fold(d)));
}

INLINE int32_t sum1(vb a)
{
    __m128i s = fold(a);
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* ---- ternary matrices -------------------------------------------------------------------------------------------- */

/* n rows side by side.  One shift instead of three: bits 1-0 and 5-4 are used at weight 1, bits 3-2 and 7-6 stay
 * in place at weight 4 and collect in their own sums.
 *
 * Bounds of the int16 lanes, |x| <= 127: weight 1 gets 2 products-of-pairs a block, 2 * 2*3*127 = 1524; weight 4 gets
 * 4 * 1524 = 6096.  Five blocks: 7620 and 30480 <= 32767. */
enum { ROW_BLOCKS = NARROW_STEPS(5) };

INLINE void matvec_rows(const uint8_t *codes, int n, int64_t n_block, const int8_t *x, int32_t *acc)
{
    const vb low = bytes(0x03), high = bytes(0x0c);
    const int64_t stride = n_block * TERNARY_BLOCK_BYTES;
    const uint8_t *next = codes + n * stride;
    vb total[4];
    for (int r = 0; r < n; r++)
        total[r] = ints(0);
    for (int64_t b = 0; b < n_block; b += ROW_BLOCKS) {
        int64_t nb = n_block - b < ROW_BLOCKS ? n_block - b : ROW_BLOCKS;
        vb sum1x[4], sum4x[4];
        for (int r = 0; r < n; r++)
            sum1x[r] = sum4x[r] = ints(0);
        for (int64_t i = 0; i < nb; i++, x += TERNARY_BLOCK, codes += TERNARY_BLOCK_BYTES) {
            vb x0 = load32(x), x1 = load32(x + 32), x2 = load32(x + 64), x3 = load32(x + 96);
            fetch_rows(codes, stride, n, next, TERNARY_BLOCK_BYTES);
            next += n * TERNARY_BLOCK_BYTES;
            for (int r = 0; r < n; r++) {
                vb c = load32(codes + r * stride), s = shift16(c, 4);
                sum1x[r] = dot_narrow(sum1x[r], and32(c, low), x3);
                sum4x[r] = dot_narrow(sum4x[r], and32(c, high), x2);
                sum1x[r] = dot_narrow(sum1x[r], and32(s, low), x1);
                sum4x[r] = dot_narrow(sum4x[r], and32(s, high), x0);
            }
        }
        /* the weight-4 sums are 4 times the true ones: keep the factor in both and divide at the end */
        for (int r = 0; r < n; r++)
            total[r] = add32(total[r], add32(widen_by(sum1x[r], 4), widen_by(sum4x[r], 1)));
    }
    if (n == 4)
        _mm_storeu_si128((__m128i *)acc, _mm_srai_epi32(sum4(total[0], total[1], total[2], total[3]), 2));
    else
        for (int r = 0; r < n; r++)
            acc[r] = sum1(total[r]) >> 2;
}

static void ternary_matvec(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int32_t *acc)
{
    const int64_t row_bytes = n_block * TERNARY_BLOCK_BYTES;
    const int side = rows_at_once(row_bytes);
#define PART(n) matvec_rows(codes + r * row_bytes, n, n_block, x, acc + r)
    BY_ROWS(side, n_row, PART)
#undef PART
}

/* The four codes of every byte. */
INLINE void unpack(const uint8_t *codes, vb c[4])
{
    const vb low = bytes(0x03);
    vb v = load32(codes);
    c[0] = and32(shift16(v, 6), low), c[1] = and32(shift16(v, 4), low);
    c[2] = and32(shift16(v, 2), low), c[3] = and32(v, low);
}

/* Narrow sums + those of one block, at most 8 * 3 * 127 = 3048 in an int16. */
INLINE vb dot_block(vb sums, const vb c[4], const int8_t *x)
{
    for (int i = 0; i < 4; i++)
        sums = dot_narrow(sums, c[i], load32(x + 32 * i));
    return sums;
}

/* One row against up to eight tokens: the block is unpacked once, each token has one narrow sum.
 * Ten blocks: 10 * 3048 = 30480 <= 32767. */
#define TILE_TOKENS 8
#define TILE_WHOLE (28 << 10)
enum { TILE_ROWS = 1, TILE_BLOCKS = NARROW_STEPS(10) };

INLINE void tile(const uint8_t *codes, int64_t row_bytes, int64_t n_block, const int8_t *x, int64_t x_stride, int n_row,
                 int n_token, int stream, int32_t *sum)
{
    vb total[8];
    (void)n_row;
    for (int t = 0; t < n_token; t++)
        total[t] = ints(0);
    for (int64_t b = 0; b < n_block; b += TILE_BLOCKS) {
        int64_t nb = n_block - b < TILE_BLOCKS ? n_block - b : TILE_BLOCKS;
        vb s[8];
        for (int t = 0; t < n_token; t++)
            s[t] = ints(0);
        for (int64_t i = b; i < b + nb; i++) {
            vb c[4];
            if (stream)
                fetch_plain(codes + row_bytes + i * TERNARY_BLOCK_BYTES, TERNARY_BLOCK_BYTES);
            unpack(codes + i * TERNARY_BLOCK_BYTES, c);
            for (int t = 0; t < n_token; t++)
                s[t] = keep(dot_block(s[t], c, x + t * x_stride + i * TERNARY_BLOCK));
        }
        for (int t = 0; t < n_token; t++)
            total[t] = add32(total[t], widen_by(s[t], 1));
    }
    int t = 0;
    for (; t + 4 <= n_token; t += 4)
        _mm_storeu_si128((__m128i *)(sum + t), sum4(total[t], total[t + 1], total[t + 2], total[t + 3]));
    for (; t < n_token; t++)
        sum[t] = sum1(total[t]);
}

#include "tiles.inc.h"
#include "lookup.inc.h"

/* ---- needed by groups.inc.h: 32 bytes are 8 rows by 4 elements --------------------------------------------------- */

#define GROUP_SOME 4
#define PANEL_TOKENS 4
#define PANEL_OWN 0
#define GROUP_MANY 8

INLINE vb broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return ints(v);
}

/* 16 bytes of each of 8 rows -> v[j]: bytes 4j .. 4j+3 of all rows. */
INLINE void group_turn(const uint8_t *row, int64_t stride, vb v[4])
{
    vb a[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(row + i * stride))),
            _mm_loadu_si128((const __m128i *)(row + (i + 4) * stride)), 1);
    vb b0 = _mm256_unpacklo_epi32(a[0], a[1]), b1 = _mm256_unpackhi_epi32(a[0], a[1]);
    vb b2 = _mm256_unpacklo_epi32(a[2], a[3]), b3 = _mm256_unpackhi_epi32(a[2], a[3]);
    v[0] = _mm256_unpacklo_epi64(b0, b2), v[1] = _mm256_unpackhi_epi64(b0, b2);
    v[2] = _mm256_unpacklo_epi64(b1, b3), v[3] = _mm256_unpackhi_epi64(b1, b3);
}

/* Narrow sums gain 32 products of pairs of at most 2 * 3 * 127: 24384 <= 32767. */
INLINE void group_vector(const uint8_t *rows, int64_t stride, int64_t n_group, int group_bytes, const uint8_t *ahead,
                         int n_token, const int8_t *q, const float *d, const int32_t *sum, float (*y)[16])
{
    for (int part = 0; part < GROUP_ROWS; part += 8) {
        const uint8_t *row = rows + part * stride;
        const vb low = bytes(0x03);
        const int8_t *x = q;
        vf total[4] = {{0}};
        for (int64_t g = 0; g < n_group; g++, row += group_bytes, x += GROUP) {
            vb s[4];
            for (int t = 0; t < n_token; t++)
                s[t] = ints(0);
            for (int half = 0; half < 2; half++) {
                vb v[4];
                group_turn(row + (half ? group_bytes - 16 : 2), stride, v);
                for (int j = 0; j < 4; j++)
                    for (int f = 0; f < 4; f++) {
                        vb c = and32(shift16(v[j], 2 * f), low);
                        const int8_t *at_step = x + 32 * f + 16 * half + 4 * j;
                        for (int t = 0; t < n_token; t++)
                            s[t] = dot_narrow(s[t], c, broadcast4(at_step + t * n_group * GROUP));
                    }
            }
            uint16_t h[8];
            if (part == 0)
                group_fetch(ahead, g, group_bytes);
            for (int i = 0; i < 8; i++)
                memcpy(h + i, row + i * stride, 2);
            _mm_storeu_si128((__m128i *)h, _mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3],
                                                          (short)h[4], (short)h[5], (short)h[6], (short)h[7]));
            vf scale = load_half(h);
            for (int t = 0; t < n_token; t++) {
                vi dots = (vi)widen_by(s[t], 1) - sum[t * n_group + g];
                total[t] += __builtin_convertvector(dots, vf) * (scale * d[t * n_group + g]);
            }
        }
        for (int t = 0; t < n_token; t++)
            store_float(y[t] + part, total[t]);
    }
}

/* Half of the lanes at a time, and rows of one pair of fields, bits 1-0 and 3-2 or 5-4 and 7-6, or of both.  As in
 * matvec_rows, one shift instead of three, and sums at weight 1 and at weight 4.
 * Bounds of the int16 lanes: weight 1 gets products of pairs of at most 2 * 3 * 127 = 762 a step, 24384 in 32; weight 4
 * gets 3048, 24384 in 8. */
INLINE void panel_part(const uint8_t *codes, const uint8_t *ahead, int n_step, int lane, int pair, int n_pair,
                       int n_token, const int8_t *q, int64_t ld, vi (*sum)[PANEL_VECTORS])
{
    const int n_part = NARROW_STEPS(8) < n_step ? NARROW_STEPS(8) : n_step;
    const vb low = bytes(0x03), high = bytes(0x0c);
    vb sum1x[PANEL_TOKENS][2], total4x[PANEL_TOKENS][2];
    for (int t = 0; t < n_token; t++)
        for (int p = 0; p < n_pair; p++)
            sum1x[t][p] = total4x[t][p] = ints(0);
    for (int part = 0; part < n_step; part += n_part) {
        vb sum4x[PANEL_TOKENS][2];
        for (int t = 0; t < n_token; t++)
            for (int p = 0; p < n_pair; p++)
                sum4x[t][p] = ints(0);
#pragma GCC unroll 8 /* the end of so short a loop would be guessed wrongly */
        for (int i = part; i < part + n_part; i++) {
            __asm__ volatile("" ::: "memory"); /* step by step: lines that are asked for all at once are dropped */
            vb c = load32(codes + 64 * i + 4 * lane);
            if (lane == 0 && pair == 0)
                panel_fetch(ahead + 64 * i, 64, n_token);
            for (int t = 0; t < n_token; t++) {
                vb x = broadcast4(q + t * ld + 4 * i);
                for (int p = 0; p < n_pair; p++) {
                    vb f = pair + p ? shift16(c, 4) : c;
                    sum1x[t][p] = keep(dot_narrow(sum1x[t][p], and32(f, low), x));
                    sum4x[t][p] = keep(dot_narrow(sum4x[t][p], and32(f, high), x));
                }
            }
        }
        for (int t = 0; t < n_token; t++)
            for (int p = 0; p < n_pair; p++)
                total4x[t][p] = add32(total4x[t][p], widen_by(sum4x[t][p], 1));
    }
    for (int t = 0; t < n_token; t++)
        for (int p = 0; p < n_pair; p++) {
            vi *at = sum[t] + (32 * (pair + p) + lane) / LANE_WIDTH;
            at[0] = (vi)widen_by(sum1x[t][p], 1);
            at[2] = (vi)_mm256_srai_epi32(total4x[t][p], 2);
        }
}

INLINE void panel_sums(const uint8_t *codes, const uint8_t *ahead, int n_step, int n_token, const int8_t *q, int64_t ld,
                       vi (*sum)[PANEL_VECTORS])
{
    if (n_token == 4) {
        panel_part(codes, ahead, n_step, 0, 0, 1, 4, q, ld, sum);
        panel_part(codes, ahead, n_step, 8, 0, 1, 4, q, ld, sum);
        panel_part(codes, ahead, n_step, 0, 1, 1, 4, q, ld, sum);
        panel_part(codes, ahead, n_step, 8, 1, 1, 4, q, ld, sum);
    } else { /* the sums of both pairs stay in registers */
        panel_part(codes, ahead, n_step, 0, 0, 2, n_token, q, ld, sum);
        panel_part(codes, ahead, n_step, 8, 0, 2, n_token, q, ld, sum);
    }
}

#include "groups.inc.h"

/* ---- needed by head.inc.h ---------------------------------------------------------------------------------------- */

/* A lane of int32 gains at most 2 * 128 * 8191 = 2096896 per step of 16 elements; 1024 steps are 2147221504 < 2^31. */
enum { HEAD_STEP = 16, HEAD_STEPS = 1024 };

typedef vb head_x;
typedef vb head_sums;

INLINE head_x head_load(const int16_t *x) { return load32(x); }
INLINE head_sums head_dot(head_sums sums, const int8_t *w, head_x x)
{
    return keep(dot16(sums, _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)w)), x));
}

INLINE int64_t head_total(head_sums sums)
{
    int64_t lane[4];
    vb wide = _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(sums)),
                               _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sums, 1)));
    memcpy(lane, &wide, sizeof lane);
    return lane[0] + lane[1] + lane[2] + lane[3];
}

INLINE void head_totals(const head_sums sums[4], int narrow, int64_t total[4])
{
    int32_t four[4];
    if (narrow)
        _mm_storeu_si128((__m128i *)four, sum4(sums[0], sums[1], sums[2], sums[3]));
    for (int r = 0; r < 4; r++)
        total[r] += narrow ? four[r] : head_total(sums[r]);
}

#define HEAD_VECTORS 2
#define HEAD_QUAD
INLINE void head_quad(const head_sums sums[4], int32_t total[4])
{
    _mm_storeu_si128((__m128i *)total, sum4(sums[0], sums[1], sums[2], sums[3]));
}

#include "head.inc.h"

/* ---- needed by bit_dots.inc.h ---------------------------------------------------------------------------------- */

#define BIT_WIDTH 32
typedef vb vbytes;
typedef vb vsums;

INLINE vbytes load_codes(const void *p) { return load32(p); }
INLINE vbytes low_nibbles(vbytes c) { return and32(c, bytes(0x0f)); }
INLINE vbytes high_nibbles(vbytes c) { return low_nibbles(shift16(c, 4)); }
INLINE vbytes single_bits(vbytes c, int b) { return and32(shift16(c, b), bytes(1)); }

/* int16 lanes: 8 * 2 * 15 * 128 = 30720 <= 32767. */
INLINE vsums dot_codes(vsums sums, const vbytes u[8], const int8_t *x)
{
    vb s = ints(0);
    for (int m = 0; m < 8; m++)
        s = dot_narrow(s, u[m], load32(x + 64 * m));
    return add32(sums, widen_by(s, 1));
}

INLINE int32_t sum_lanes(vsums sums) { return sum1(sums); }

#include "bit_dots.inc.h"

/* ---- needed by byte_dots.inc.h ----------------------------------------------------------------------------------- */

#define BYTE_VECTORS 2
#define byte_quad head_quad

#ifdef VNNI /* w + 128, as vpdpbusd wants unsigned bytes; byte_base makes up for it */
#define BYTE_LEAST_VECTORS 5
INLINE vbytes byte_row(vbytes w) { return _mm256_xor_si256(w, bytes(0x80)); }
INLINE vsums byte_dot(vsums sums, vbytes w, vbytes x) { return dot_narrow(sums, w, x); }
INLINE int32_t byte_base(const int8_t *x, int64_t k) { return -128 * sum_i8(x, k); }
#else
#define BYTE_LEAST_VECTORS 0
INLINE vbytes byte_row(vbytes w) { return w; }
INLINE vsums byte_dot(vsums sums, vbytes w, vbytes x) { return keep(dot_abs(sums, w, x)); }
INLINE int32_t byte_base(const int8_t *x, int64_t k) { return (void)x, (void)k, 0; }
#endif

#include "byte_dots.inc.h"

/* ---- needed by attention.inc.h and attention_int4.inc.h ---------------------------------------------------------- */

/* Lines of the next block are fetched in order, each twice, spread over the loop. */
INLINE void dot_keys_i8(const int8_t *k, const int8_t *next, int64_t head_dim, int n, const int8_t *q,
                        vi (*s)[KV_PAGE / LANE_WIDTH])
{
    for (int t = 0; t < KV_PAGE; t += 8) { /* the sums of more tokens for four queries do not fit the registers */
        vb a[4];
        for (int i = 0; i < n; i++)
            a[i] = ints(0);
        ROLLED for (int64_t d = 0; d < head_dim; d += 4) {
            prefetch_l2(next + t * head_dim + 8 * d);
            vb kv = load32(k + d * KV_PAGE + t * 4);
            for (int i = 0; i < n; i++)
                a[i] = dot_abs(a[i], kv, broadcast4(q + i * head_dim + d));
        }
        for (int i = 0; i < n; i++)
            s[i][t / LANE_WIDTH] = (vi)a[i];
    }
}

/* Pairs of products are at most 2 * 15 * 127 = 3810; eight of them, 30480, stay in int16. */
INLINE void dot_keys_i4(const uint8_t *k, const uint8_t *next, int64_t n_quad, int n, const int8_t *q, int64_t ld_q,
                        vi (*s)[KV_PAGE / LANE_WIDTH])
{
    int32_t start[4];
    for (int i = 0; i < n; i++)
        start[i] = -8 * sum_i8(q + i * ld_q, 4 * n_quad);
    for (int half = 0; half < 2; half++) {
        vb total[2][4];
        for (int i = 0; i < n; i++)
            total[0][i] = total[1][i] = ints(start[i]);
        for (int64_t j = 0; j < n_quad; j += NARROW_STEPS(8)) {
            int64_t end = n_quad - j < NARROW_STEPS(8) ? n_quad : j + NARROW_STEPS(8);
            vb a[4], b[4];
            for (int i = 0; i < n; i++)
                a[i] = b[i] = ints(0);
            ROLLED for (int64_t h = j; h < end; h++) {
                prefetch_l2(next + 32 * (half * n_quad + h));
                vb c = load32(k + 64 * h + 32 * half), k0 = low_nibbles(c), k1 = high_nibbles(c);
                for (int i = 0; i < n; i++) {
                    vb qv = broadcast4(q + i * ld_q + 4 * h);
                    a[i] = keep(dot_narrow(a[i], k0, qv));
                    b[i] = keep(dot_narrow(b[i], k1, qv));
                }
            }
            for (int i = 0; i < n; i++) {
                total[0][i] = add32(total[0][i], widen_by(a[i], 1));
                total[1][i] = add32(total[1][i], widen_by(b[i], 1));
            }
        }
        for (int i = 0; i < n; i++) {
            s[i][half] = (vi)total[0][i];
            s[i][2 + half] = (vi)total[1][i];
        }
    }
}

#define VALUE_DIMS 16
#define WEIGHT_PARTS (NARROW_STEPS(1) == 1 ? 2 : 1)
enum { ABREAST = 4 / WEIGHT_PARTS }; /* queries whose sums fit the registers */

/* Narrow sums of both vectors of a tile. */
INLINE void dot_tile(vb a[2], const vb v[2], const uint8_t *u)
{
    vb w = broadcast4(u);
    a[0] = dot_narrow(a[0], w, v[0]);
    a[1] = dot_narrow(a[1], w, v[1]);
}

/* In int16 a weight is two nibbles: pairs are at most 2 * 15 * 127 = 3810, and the page's eight, 30480, fit. */
INLINE void dot_values_i8_some(const int8_t *v, const int8_t *next, int64_t head_dim, int64_t d, int n,
                               const uint8_t (*u)[KV_PAGE], vi (*sum)[VALUE_DIMS / LANE_WIDTH])
{
    vb a[ABREAST][2][WEIGHT_PARTS];
    for (int i = 0; i < n; i++)
        for (int part = 0; part < WEIGHT_PARTS; part++)
            a[i][0][part] = a[i][1][part] = ints(0);
    ROLLED for (int t = 0; t < KV_PAGE; t += 4) {
        const int8_t *at = v + t * head_dim + d * 4;
        const vb vv[2] = {load32(at), load32(at + 32)};
        prefetch_l2(next + (at - v));
        for (int i = 0; i < n; i++)
            for (int part = 0; part < WEIGHT_PARTS; part++) {
                vb w = broadcast4(u[part * 4 + i] + t);
                a[i][0][part] = dot_narrow(a[i][0][part], w, vv[0]);
                a[i][1][part] = dot_narrow(a[i][1][part], w, vv[1]);
            }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 2; j++) {
            vb total = widen_by(a[i][j][0], 1);
            if (WEIGHT_PARTS == 2)
                total = add32(total, widen_by(a[i][j][WEIGHT_PARTS - 1], 16));
            sum[i][j] = (vi)total;
        }
}

INLINE void dot_values_i8(const int8_t *v, const int8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[VALUE_DIMS / LANE_WIDTH])
{
    int i = 0;
    for (; i + ABREAST <= n; i += ABREAST)
        dot_values_i8_some(v, next, head_dim, d, ABREAST, u + i, sum + i);
    if (n % ABREAST)
        dot_values_i8_some(v, next, head_dim, d, n % ABREAST, u + i, sum + i);
}

/* Pairs of products are at most 2 * 255 * 15 = 7650; the page's eight, 61200, fit an int16 that begins at -32768. */
INLINE void dot_values_i4(const uint8_t *v, const uint8_t *next, int64_t head_dim, int64_t d, int n,
                          const uint8_t (*u)[KV_PAGE], vi (*sum)[VALUE_DIMS / LANE_WIDTH])
{
    const int signed16 = NARROW_STEPS(1) == 1;
    vb a[4][2];
    for (int i = 0; i < n; i++)
        a[i][0] = a[i][1] = ints(signed16 ? (int32_t)0x80008000 : 0);
    ROLLED for (int t = 0; t < KV_PAGE / 2; t += 4) {
        const uint8_t *at = v + t * head_dim + d * 4;
        vb c0 = load32(at), c1 = load32(at + 32);
        const vb low[2] = {low_nibbles(c0), low_nibbles(c1)}, high[2] = {high_nibbles(c0), high_nibbles(c1)};
        prefetch_l2(next + (at - v));
        for (int i = 0; i < n; i++)
            dot_tile(a[i], low, u[i] + t);
        for (int i = 0; i < n; i++)
            dot_tile(a[i], high, u[i] + KV_PAGE / 2 + t);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] = (vi)add32(widen_by(a[i][j], 1), ints(signed16 ? 65536 : 0));
}

#include "attention_int4.inc.h"

/* Measured on a Zen 4 core; on a Zen 3 one, rows that are fetched apart had 0.6 of the rate of one stream. */
#define AVX2_KERNELS                                                                                                   \
    .own = {2, FETCH_ONCE, 3 << 10}, .many_tokens = LOOKUP_LEAST_TOKENS, .byte_vectors = BYTE_LEAST_VECTORS,           \
    KERNEL_FUNCTIONS

#endif
