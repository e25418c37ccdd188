/* repack.c: every other packing of ternary codes -> our rows of 128-code blocks, and back.
 *
 * Each function fills one block of 128 codes on the stack and packs it, so nothing is allocated and every source
 * byte is read inside the bounds that its format defines.  Baseline flags; this runs once, at load. */
#include "kernels.h"
#include "numbers.h"

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

void repack_i2s_64(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes)
{
    repack_stream(src, n_row, k, 16, codes);
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

void repack_tq2_0(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d)
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

void repack_tq1_0(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d)
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
