/* repack.c: every other packing of ternary codes -> our rows of 128-code blocks, and back.
 *
 * Each function fills one block of 128 codes on the stack and packs it, so nothing is allocated and every source
 * byte is read inside the bounds that its format defines.  Baseline flags; this runs once, at load. */
#include "kernels.h"
#include "numbers.h"
#include "panels.h"

#include <string.h>

enum { BLOCK = TERNARY_BLOCK, QUARTER = TERNARY_BLOCK_BYTES };

static void pack_block(const uint8_t code[BLOCK], uint8_t *out)
{
    for (int p = 0; p < QUARTER; p++)
        out[p] = (uint8_t)(code[p] << 6 | code[p + 32] << 4 | code[p + 64] << 2 | code[p + 96]);
}

static void unpack_block(const uint8_t *in, uint8_t code[BLOCK])
{
    for (int p = 0; p < QUARTER; p++) {
        code[p] = in[p] >> 6;
        code[p + 32] = in[p] >> 4 & 3;
        code[p + 64] = in[p] >> 2 & 3;
        code[p + 96] = in[p] & 3;
    }
}

static int64_t blocks(int64_t k) { return (k + BLOCK - 1) / BLOCK; }

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Codes [first, first + n) of an I2_S element stream of `total` codes in blocks of 4*quarter.  The stream holds
 * total/4 bytes: where a last partial block was cut short, the lost codes read as 1 (weight 0). */
static void stream_codes(const uint8_t *src, int64_t total, int quarter, int64_t first, int n, uint8_t *code)
{
    for (int i = 0; i < n; i++) {
        int64_t e = first + i, block = e / (4 * quarter);
        int j = (int)(e % (4 * quarter));
        int64_t byte = block * quarter + j % quarter;
        code[i] = byte < total / 4 ? src[byte] >> (6 - 2 * (j / quarter)) & 3 : 1;
    }
}

static void repack_stream(const uint8_t *src, int64_t n_row, int64_t k, int quarter, uint8_t *codes)
{
    int64_t n_block = blocks(k);
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t b = 0; b < n_block; b++, codes += QUARTER) {
            uint8_t code[BLOCK];
            int n = (int)min64(BLOCK, k - b * BLOCK);
            memset(code, 1, sizeof code);
            stream_codes(src, n_row * k, quarter, r * k + b * BLOCK, n, code);
            pack_block(code, codes);
        }
}

void repack_i2s_128(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes)
{
    if (k % BLOCK == 0)
        memcpy(codes, src, (size_t)(n_row * k / 4));
    else
        repack_stream(src, n_row, k, 32, codes);
}

#define EACH UINT64_C(0x0101010101010101)

void repack_i2s_64(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes)
{
    if (k % BLOCK) {
        repack_stream(src, n_row, k, 16, codes);
        return;
    }
    for (int64_t b = 0; b < n_row * (k / BLOCK); b++, src += QUARTER, codes += QUARTER)
        for (int p = 0; p < 16; p += 8) { /* eight bytes at once; weights p + 0, 16, 32, 48, and the same 64 on */
            uint64_t low, high, first, second;
            memcpy(&low, src + p, 8);
            memcpy(&high, src + 16 + p, 8);
            first = (low & EACH * 0xc0) | (low & EACH * 0x0c) << 2;
            first |= (high & EACH * 0xc0) >> 4 | (high & EACH * 0x0c) >> 2;
            second = (low & EACH * 0x30) << 2 | (low & EACH * 0x03) << 4;
            second |= (high & EACH * 0x30) >> 2 | (high & EACH * 0x03);
            memcpy(codes + p, &first, 8);
            memcpy(codes + 16 + p, &second, 8);
        }
}

/* One byte per column of four rows, `apart` rows from each other; `shift` of row i is first + step*i. */
static void repack_quads(const uint8_t *src, int64_t n_quad, int64_t k, int64_t quad_step, int64_t row_step,
                         int shift_first, int shift_step, uint8_t *codes)
{
    int64_t n_block = blocks(k), row_bytes = n_block * QUARTER;
    for (int64_t g = 0; g < n_quad; g++)
        for (int i = 0; i < 4; i++) {
            uint8_t *out = codes + (g * quad_step + i * row_step) * row_bytes;
            int shift = shift_first + shift_step * i;
            for (int64_t b = 0; b < n_block; b++) {
                uint8_t code[BLOCK];
                int n = (int)min64(BLOCK, k - b * BLOCK);
                memset(code, 1, sizeof code);
                for (int j = 0; j < n; j++)
                    code[j] = src[g * k + b * BLOCK + j] >> shift & 3;
                pack_block(code, out + b * QUARTER);
            }
        }
}

void repack_i2s_1x4(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes)
{
    repack_quads(src, n_row / 4, k, 4, 1, 6, -2, codes);
}

void repack_hf(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes)
{
    repack_quads(src, n_row / 4, k, 1, n_row / 4, 0, 2, codes);
}

static uint16_t load_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static void tq2_0(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d)
{
    for (int64_t b = 0; b < n_row * (k / 256); b++, src += 66, codes += 2 * QUARTER) {
        for (int run = 0; run < 2; run++)
            for (int p = 0; p < QUARTER; p++) { /* the same columns, in the opposite bit order */
                uint8_t q = src[run * 32 + p];
                codes[run * QUARTER + p] = (uint8_t)((q & 3) << 6 | (q >> 2 & 3) << 4 | (q >> 4 & 3) << 2 | q >> 6);
            }
        d[b] = half_float(load_u16(src + 64));
    }
}

/* Base-3 digit n (0 = most significant) of a TQ1_0 byte. */
static uint8_t trit(uint8_t byte, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint8_t q = (uint8_t)(byte * power[n]);
    return (uint8_t)(q * 3 >> 8);
}

static void tq1_0(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d)
{
    for (int64_t b = 0; b < n_row * (k / 256); b++, src += 54, codes += 2 * QUARTER) {
        uint8_t code[256];
        for (int n = 0; n < 5; n++)
            for (int m = 0; m < 32; m++)
                code[m + 32 * n] = trit(src[m], n);
        for (int n = 0; n < 5; n++)
            for (int m = 0; m < 16; m++)
                code[160 + m + 16 * n] = trit(src[32 + m], n);
        for (int n = 0; n < 4; n++)
            for (int m = 0; m < 4; m++)
                code[240 + m + 4 * n] = trit(src[48 + m], n);
        pack_block(code, codes);
        pack_block(code + BLOCK, codes + QUARTER);
        d[b] = half_float(load_u16(src + 52));
    }
}

void repack_i8(const int8_t *src, int64_t n_row, int64_t k, uint8_t *codes)
{
    int64_t n_block = blocks(k);
    for (int64_t r = 0; r < n_row; r++, src += k)
        for (int64_t b = 0; b < n_block; b++, codes += QUARTER) {
            uint8_t code[BLOCK];
            int n = (int)min64(BLOCK, k - b * BLOCK);
            memset(code, 1, sizeof code);
            for (int j = 0; j < n; j++)
                code[j] = (uint8_t)(src[b * BLOCK + j] + 1) & 3;
            pack_block(code, codes);
        }
}

void unpack_i8(const uint8_t *codes, int64_t n_row, int64_t k, int8_t *dst)
{
    int64_t n_block = blocks(k);
    for (int64_t r = 0; r < n_row; r++, dst += k)
        for (int64_t b = 0; b < n_block; b++, codes += QUARTER) {
            uint8_t code[BLOCK];
            int n = (int)min64(BLOCK, k - b * BLOCK);
            unpack_block(codes, code);
            for (int j = 0; j < n; j++)
                dst[b * BLOCK + j] = (int8_t)(code[j] - 1);
        }
}

int group_faults(const uint8_t *rows, int group_bytes, int64_t n)
{
    int differ = 0, infinite = 0;
    for (int64_t i = 0; i < n; i++, rows += group_bytes) {
        uint16_t d = load_u16(rows);
        differ |= group_bytes == GROUP_PAIR ? d ^ load_u16(rows + GROUP_PAIR / 2) : 0;
        infinite |= (d & 0x7c00) == 0x7c00;
    }
    return infinite ? 2 : differ ? 1 : 0;
}

int panel_faults(const uint8_t *panels, int group, int64_t n)
{
    int infinite = 0;
    for (int64_t i = 0; i < n; i++, panels += PANEL_BYTES(group))
        for (int r = 0; r < PANEL_ROWS; r++)
            infinite |= (load_u16(panels + 2 * r) & 0x7c00) == 0x7c00;
    return infinite ? 2 : 0;
}

void repack_q2_0(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *groups)
{
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t i = 0; i < k; i += GROUP, groups += GROUP_WHOLE) {
            memcpy(groups, src, 18);
            src += 18;
            if (i + GROUP / 2 < k) {
                memcpy(groups + 18, src + 2, 16);
                src += 18;
            } else
                memset(groups + 18, 0x55, 16);
        }
}

int repack_q1_0(const uint8_t *src, int block, int64_t n, uint8_t *groups)
{
    int differ = 0;
    for (int64_t i = 0; i < n; i++, groups += GROUP_WHOLE) {
        memcpy(groups, src, 2);
        for (int p = 0; p < GROUP / 8; p++) { /* each bit becomes the upper one of a code */
            if (p % (block / 8) == 0) {
                differ |= memcmp(groups, src, 2) != 0;
                src += 2;
            }
            uint32_t bits = *src++;
            bits = (bits | bits << 4) & 0x0f0f;
            bits = (bits | bits << 2) & 0x3333;
            bits = (bits | bits << 1) & 0x5555;
            groups[2 + 2 * p] = (uint8_t)(bits << 1);
            groups[3 + 2 * p] = (uint8_t)(bits >> 7);
        }
    }
    return differ;
}

void repack_groups(const uint8_t *codes, int64_t n_row, int64_t n_block, const float *scale, int64_t scale_step,
                   int64_t share, uint8_t *groups)
{
    for (int64_t r = 0; r < n_row; r++, scale += scale_step)
        for (int64_t b = 0; b < n_block; b++, codes += QUARTER, groups += GROUP_WHOLE) {
            uint8_t code[BLOCK];
            uint16_t d = float_half(scale[b / share]);
            unpack_block(codes, code);
            groups[0] = (uint8_t)d, groups[1] = (uint8_t)(d >> 8);
            for (int p = 0; p < QUARTER; p++)
                groups[2 + p] =
                    (uint8_t)(code[4 * p] | code[4 * p + 1] << 2 | code[4 * p + 2] << 4 | code[4 * p + 3] << 6);
        }
}

void pack_panels(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, uint8_t *panels)
{
    const int64_t row_bytes = n_group * group_bytes;
    for (int64_t r = 0; r < n_row; r += PANEL_ROWS, rows += PANEL_ROWS * row_bytes)
        for (int64_t g = 0; g < n_group; g++, panels += PANEL_BYTES(GROUP))
            pack_panel(rows + g * group_bytes, row_bytes, group_bytes, n_row - r, panels);
}

void pack_plane_panels(const int8_t *weights, const float *d, int n_plane, int64_t n_row, int64_t k, int group,
                       uint8_t *panels)
{
    const int64_t n_group = k / group;
    memset(panels, 0, (size_t)((n_row + PANEL_ROWS - 1) / PANEL_ROWS * n_group * n_plane) * PANEL_BYTES(group));
    for (int64_t p = 0; p < n_plane; p++)
        for (int64_t r = 0; r < n_row; r++)
            for (int64_t g = 0; g < n_group; g++, d++, weights += group) {
                uint8_t *panel = panels + ((r / PANEL_ROWS * n_group + g) * n_plane + p) * PANEL_BYTES(group);
                uint8_t *codes = panel + 2 * PANEL_ROWS + r % 16 * 4;
                const uint16_t half = float_half(*d);
                panel[r % PANEL_ROWS * 2] = (uint8_t)half, panel[r % PANEL_ROWS * 2 + 1] = (uint8_t)(half >> 8);
                for (int e = 0; e < group; e++) {
                    const int at = place_in_group(group, e);
                    codes[at / 4 * 64 + at % 4] |= (uint8_t)((weights[e] + 1) << r % PANEL_ROWS / 16 * 2);
                }
            }
}

void unpack_plane_panels(const uint8_t *panels, int n_plane, int64_t n_row, int64_t k, int group, int8_t *weights,
                         float *d)
{
    const int64_t n_group = (k + group - 1) / group;
    for (int64_t p = 0; p < n_plane; p++)
        for (int64_t r = 0; r < n_row; r++)
            for (int64_t g = 0; g < n_group; g++) {
                const uint8_t *panel = panels + ((r / PANEL_ROWS * n_group + g) * n_plane + p) * PANEL_BYTES(group);
                const uint8_t *codes = panel + 2 * PANEL_ROWS + r % 16 * 4;
                *d++ = half_float(load_u16(panel + r % PANEL_ROWS * 2));
                for (int e = 0; e < min64(group, k - g * group); e++) {
                    const int at = place_in_group(group, e);
                    *weights++ = (int8_t)((codes[at / 4 * 64 + at % 4] >> r % PANEL_ROWS / 16 * 2 & 3) - 1);
                }
            }
}

void unpack_groups(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t k, int8_t *dst, float *d)
{
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t i = 0; i < k; i += GROUP, rows += group_bytes) {
            *d++ = half_float(load_u16(rows));
            for (int64_t e = 0; e < min64(GROUP, k - i); e++) {
                int64_t p = e / 4;
                *dst++ = (int8_t)((rows[p < 16 ? 2 + p : p - 32 + group_bytes] >> e % 4 * 2 & 3) - 1);
            }
        }
}

float absmean(const float *w, int64_t n_row, int64_t k, uint8_t *codes)
{
    int64_t n = n_row * k, n_block = blocks(k), i = 0;
    double lane[FLOAT_LANES] = {0}, sum = 0.0; /* lanes only so that the additions overlap */
    for (; i + FLOAT_LANES <= n; i += FLOAT_LANES)
        for (int j = 0; j < FLOAT_LANES; j++)
            lane[j] += (double)absf(w[i + j]);
    for (int j = 0; j < FLOAT_LANES; j++)
        sum += lane[j];
    for (; i < n; i++)
        sum += (double)absf(w[i]);
    float a = n > 0 ? (float)(sum / (double)n) : 0.0f;
    a = a > 1e-5f ? a : 1e-5f;
    float inverse = 1.0f / a;
    for (int64_t r = 0; r < n_row; r++, w += k)
        for (int64_t b = 0; b < n_block; b++, codes += QUARTER) {
            uint8_t code[BLOCK];
            int m = (int)min64(BLOCK, k - b * BLOCK);
            memset(code, 1, sizeof code);
            for (int j = 0; j < m; j++)
                code[j] = (uint8_t)(round_clamped(w[b * BLOCK + j] * inverse, 1.0f) + 1);
            pack_block(code, codes);
        }
    return a;
}

/* ---- packings of forks ------------------------------------------------------------------------------------------- */

static float load_f32(const uint8_t *p)
{
    float value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* STQ1_0: 64 groups of four weights, of which exactly one is 0; then the scale as half.  Group g holds weights
 * 64 (g / 16) + g % 16 + 16 p.  Bits 3-2 of its nibble give the index of the 0.  Of the other three, the first is +;
 * bit 0 is set if the second is -, bit 1 if the third is -.  A separate sign bit inverts all three. */
static void stq1_0(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d)
{
    for (int64_t b = 0; b < n_row * (k / 256); b++, src += 42, codes += 2 * QUARTER) {
        uint8_t code[256];
        for (int g = 0; g < 64; g++) {
            int slot = src[g / 2] >> g % 2 * 4 & 15, zero = slot >> 2, nth = 0;
            int turned = src[32 + g / 8] >> g % 8 & 1;
            for (int p = 0; p < 4; p++) {
                int minus = nth ? slot >> (nth - 1) & 1 : 0;
                code[g / 16 * 64 + g % 16 + 16 * p] = p == zero ? 1 : minus ^ turned ? 0 : 2;
                nth += p != zero;
            }
        }
        pack_block(code, codes);
        pack_block(code + BLOCK, codes + QUARTER);
        d[b] = half_float(load_u16(src + 40));
    }
}

static void ptq1_0(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d)
{
    for (int64_t b = 0; b < n_row * (k / BLOCK); b++, src += 28, codes += QUARTER) {
        uint8_t code[BLOCK];
        for (int n = 0; n < 5; n++) {
            for (int m = 0; m < 16; m++)
                code[m + 16 * n] = trit(src[m], n);
            for (int m = 0; m < 8; m++)
                code[80 + m + 8 * n] = trit(src[16 + m], n);
        }
        for (int n = 0; n < 4; n++)
            for (int m = 0; m < 2; m++)
                code[120 + m + 2 * n] = trit(src[24 + m], n);
        pack_block(code, codes);
        d[b] = half_float(load_u16(src + 26));
    }
}

/* 64 codes of a block of IQ1_BN (13 bytes): base-3 digits, the first the least significant. */
static void iq1_bn(const uint8_t *b, uint8_t code[64])
{
    static const uint8_t power[5] = {81, 27, 9, 3, 1};
    for (int i = 0; i < 64; i++) {
        int g = i / 16, e = i % 16;
        uint8_t byte = e < 15 ? b[3 * g + e / 5] : b[12], q = (uint8_t)(byte * power[e < 15 ? e % 5 : g]);
        code[i] = (uint8_t)((q + (q >> 1)) >> 7);
    }
}

static void iq2_bn(const uint8_t *b, uint8_t code[64])
{
    for (int i = 0; i < 64; i++)
        code[i] = b[i % 16] >> i / 16 * 2 & 3;
}

/* Row r of the group of four that begins at src, 64 columns of it. */
static void iq2_bn_r4(const uint8_t *b, int r, uint8_t code[64])
{
    for (int i = 0; i < 64; i++)
        code[i] = b[4 * r + i % 4 + i / 16 * 16] >> i / 4 % 4 * 2 & 3;
}

enum { BN_1, BN_2, BN_R4 };

INLINE void bn(int kind, const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d)
{
    int64_t n64 = k / 64, row_bytes = kind == BN_1 ? 2 + 13 * n64 : 4 + 16 * n64;
    for (int64_t r = 0; r < n_row; r++) {
        const uint8_t *row = kind == BN_R4 ? src + r / 4 * 4 * row_bytes : src + r * row_bytes;
        d[r] = kind == BN_1 ? half_float(load_u16(row)) : load_f32(row + (kind == BN_R4 ? r % 4 * 4 : 0));
        row += kind == BN_1 ? 2 : kind == BN_2 ? 4 : 16;
        for (int64_t b = 0; b < blocks(k); b++, codes += QUARTER) {
            uint8_t code[BLOCK];
            memset(code, 1, sizeof code);
            for (int64_t i = 2 * b; i < 2 * b + 2 && i < n64; i++) {
                uint8_t *to = code + i % 2 * 64;
                if (kind == BN_1)
                    iq1_bn(row + 13 * i, to);
                else if (kind == BN_2)
                    iq2_bn(row + 16 * i, to);
                else
                    iq2_bn_r4(row + 64 * i, (int)(r % 4), to);
            }
            pack_block(code, codes);
        }
    }
}

#define BN(name, kind)                                                                                                 \
    static void name(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d)                           \
    {                                                                                                                  \
        bn(kind, src, n_row, k, codes, d);                                                                             \
    }
BN(rows_iq1_bn, BN_1)
BN(rows_iq2_bn, BN_2)
BN(rows_iq2_bn_r4, BN_R4)

/* The table: name, values and bytes of a block, bytes before the blocks of a row (its scale; 0: each block has one),
 * rows side by side.  Those of edge/registry/encodings.py. */
const struct ternary_type ternary_types[] = {
    {"TQ1_0", 256, 54, 0, 1, tq1_0},        {"TQ2_0", 256, 66, 0, 1, tq2_0},
    {"STQ1_0", 256, 42, 0, 1, stq1_0},      {"PTQ1_0", 128, 28, 0, 1, ptq1_0},
    {"IQ1_BN", 64, 13, 2, 1, rows_iq1_bn},  {"IQ2_BN", 64, 16, 4, 1, rows_iq2_bn},
    {"IQ2_BN_R4", 64, 16, 4, 4, rows_iq2_bn_r4}, {0},
};
