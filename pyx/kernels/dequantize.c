/* dequantize.c: one stored row (of the embedding or the output matrix) as floats.  Formats and byte orders are those
 * of ggml; the order of the float products is the one of the reference decoders, so the bits agree with them. */
#include "kernels.h"
#include "numbers.h"

#include <string.h>

static const struct {
    int elements, bytes;
} block_of[] = {
    [STORED_F32] = {1, 4},     [STORED_F16] = {1, 2},      [STORED_BF16] = {1, 2},     [STORED_Q8_0] = {32, 34},
    [STORED_Q6_K] = {256, 210}, [STORED_Q4_0] = {32, 18}, [STORED_Q4_K] = {256, 144},
    [STORED_Q2_0] = {64, 18}, [STORED_PQ2_0] = {128, 34}, [STORED_PQ2_0_R64] = {GROUP, GROUP_WHOLE},
    [STORED_Q4_1] = {32, 20}, [STORED_Q5_0] = {32, 22}, [STORED_Q5_1] = {32, 24}, [STORED_Q5_K] = {256, 176},
    [STORED_Q1_0] = {128, 18}, [STORED_Q1_0_G32] = {32, 6},
};

int64_t stored_row_bytes(int type, int64_t k)
{
    if (type < STORED_F32 || type > STORED_Q1_0_G32 || k < 0 || k % block_of[type].elements)
        return -1;
    return k / block_of[type].elements * block_of[type].bytes;
}

int64_t stored_rows_together(int type) { return type == STORED_PQ2_0_R64 ? PANEL_ROWS : 1; }

static uint16_t load_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static void q8_0(const uint8_t *b, float *out)
{
    float d = half_float(load_u16(b));
    for (int j = 0; j < 32; j++)
        out[j] = (float)(int8_t)b[2 + j] * d;
}

static void q4_0(const uint8_t *b, float *out)
{
    float d = half_float(load_u16(b));
    for (int j = 0; j < 16; j++) {
        out[j] = (float)((b[2 + j] & 15) - 8) * d;
        out[j + 16] = (float)((b[2 + j] >> 4) - 8) * d;
    }
}

/* Q4_1 and Q5_1 have a minimum behind their scale; Q5_0 and Q5_1 four bytes with the fifth bit of each code. */
static void q4_1(const uint8_t *b, float *out)
{
    float d = half_float(load_u16(b)), min = half_float(load_u16(b + 2));
    for (int j = 0; j < 16; j++) {
        out[j] = (float)(b[4 + j] & 15) * d + min;
        out[j + 16] = (float)(b[4 + j] >> 4) * d + min;
    }
}

static uint32_t load_u32(const uint8_t *p) { return load_u16(p) | (uint32_t)load_u16(p + 2) << 16; }

static void q5_0(const uint8_t *b, float *out)
{
    float d = half_float(load_u16(b));
    uint32_t fifth = load_u32(b + 2);
    for (int j = 0; j < 16; j++) {
        out[j] = (float)((int)((b[6 + j] & 15) | (fifth >> j & 1) << 4) - 16) * d;
        out[j + 16] = (float)((int)(b[6 + j] >> 4 | (fifth >> (j + 16) & 1) << 4) - 16) * d;
    }
}

static void q5_1(const uint8_t *b, float *out)
{
    float d = half_float(load_u16(b)), min = half_float(load_u16(b + 2));
    uint32_t fifth = load_u32(b + 4);
    for (int j = 0; j < 16; j++) {
        out[j] = (float)((b[8 + j] & 15) | (fifth >> j & 1) << 4) * d + min;
        out[j + 16] = (float)(b[8 + j] >> 4 | (fifth >> (j + 16) & 1) << 4) * d + min;
    }
}

static void q6_k(const uint8_t *b, float *out)
{
    const uint8_t *ql = b, *qh = b + 128;
    const int8_t *scale = (const int8_t *)b + 192;
    float d = half_float(load_u16(b + 208));
    for (int h = 0; h < 2; h++, ql += 64, qh += 32, scale += 8, out += 128)
        for (int l = 0; l < 32; l++) {
            int q0 = (ql[l] & 15) | (qh[l] & 3) << 4;
            int q1 = (ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4;
            int q2 = ql[l] >> 4 | (qh[l] >> 4 & 3) << 4;
            int q3 = ql[l + 32] >> 4 | (qh[l] >> 6) << 4;
            out[l] = (d * (float)scale[l / 16]) * (float)(q0 - 32);
            out[l + 32] = (d * (float)scale[2 + l / 16]) * (float)(q1 - 32);
            out[l + 64] = (d * (float)scale[4 + l / 16]) * (float)(q2 - 32);
            out[l + 96] = (d * (float)scale[6 + l / 16]) * (float)(q3 - 32);
        }
}

/* Q4_K: F16 d, F16 dmin, 12 bytes with eight 6-bit scales and minima, 128 bytes of nibbles; sub-block i of 32
 * elements is the low (even i) or high (odd i) nibbles of bytes 32*(i/2)...; value d*scale*q - dmin*min.  Q5_K has 32
 * bytes before the nibbles: bit i of byte j is the fifth bit of element j of sub-block i. */
static void q45_k(const uint8_t *b, int five, float *out)
{
    float d = half_float(load_u16(b)), d_min = half_float(load_u16(b + 2));
    const uint8_t *s = b + 4, *fifth = b + 16, *q = b + (five ? 48 : 16);
    for (int i = 0; i < 8; i++) {
        int scale = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
        int min = i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | (s[i] >> 6) << 4;
        float ds = d * (float)scale, dm = d_min * (float)min;
        for (int j = 0; j < 32; j++) {
            int code = (q[i / 2 * 32 + j] >> (i % 2 * 4) & 15) | (five ? (fifth[j] >> i & 1) << 4 : 0);
            out[i * 32 + j] = ds * (float)code - dm;
        }
    }
}

/* n codes of two bits behind their scale: d * (code - 1). */
static void q2(const uint8_t *b, int n, float *out)
{
    float d = half_float(load_u16(b));
    for (int j = 0; j < n; j++)
        out[j] = (float)((b[2 + j / 4] >> j % 4 * 2 & 3) - 1) * d;
}

/* 128 signs behind their scale: 1 is +d, 0 is -d. */
static void q1(const uint8_t *b, int n, float *out)
{
    float d = half_float(load_u16(b));
    for (int j = 0; j < n; j++)
        out[j] = b[2 + j / 8] >> j % 8 & 1 ? d : -d;
}

/* A group of one row of a panel (panel_matmul in kernels.h). */
static void panel(const uint8_t *b, int64_t row, float *out)
{
    float d = half_float(load_u16(b + 2 * row));
    const uint8_t *codes = b + 2 * PANEL_ROWS + row % 16 * 4;
    for (int j = 0; j < GROUP; j++) {
        int at = place_in_group(GROUP, j);
        out[j] = (float)((codes[at / 4 * 64 + at % 4] >> row / 16 * 2 & 3) - 1) * d;
    }
}

void dequantize_row(int type, const uint8_t *rows, int64_t row, int64_t k, float *out)
{
    switch (type) {
    case STORED_F32:
        memcpy(out, rows, (size_t)k * 4);
        break;
    case STORED_F16:
        for (int64_t i = 0; i < k; i++)
            out[i] = half_float(load_u16(rows + 2 * i));
        break;
    case STORED_BF16:
        for (int64_t i = 0; i < k; i++)
            out[i] = bits_float((uint32_t)load_u16(rows + 2 * i) << 16);
        break;
    case STORED_Q8_0:
        for (int64_t i = 0; i < k / 32; i++)
            q8_0(rows + i * 34, out + i * 32);
        break;
    case STORED_Q4_0:
        for (int64_t i = 0; i < k / 32; i++)
            q4_0(rows + i * 18, out + i * 32);
        break;
    case STORED_Q4_1:
        for (int64_t i = 0; i < k / 32; i++)
            q4_1(rows + i * 20, out + i * 32);
        break;
    case STORED_Q5_0:
        for (int64_t i = 0; i < k / 32; i++)
            q5_0(rows + i * 22, out + i * 32);
        break;
    case STORED_Q5_1:
        for (int64_t i = 0; i < k / 32; i++)
            q5_1(rows + i * 24, out + i * 32);
        break;
    case STORED_Q6_K:
        for (int64_t i = 0; i < k / 256; i++)
            q6_k(rows + i * 210, out + i * 256);
        break;
    case STORED_Q4_K:
        for (int64_t i = 0; i < k / 256; i++)
            q45_k(rows + i * 144, 0, out + i * 256);
        break;
    case STORED_Q5_K:
        for (int64_t i = 0; i < k / 256; i++)
            q45_k(rows + i * 176, 1, out + i * 256);
        break;
    case STORED_Q2_0:
        for (int64_t i = 0; i < k / 64; i++)
            q2(rows + i * 18, 64, out + i * 64);
        break;
    case STORED_PQ2_0:
        for (int64_t i = 0; i < k / 128; i++)
            q2(rows + i * 34, 128, out + i * 128);
        break;
    case STORED_PQ2_0_R64:
        for (int64_t i = 0; i < k / GROUP; i++)
            panel(rows + i * PANEL_BYTES(GROUP), row, out + i * GROUP);
        break;
    case STORED_Q1_0:
        for (int64_t i = 0; i < k / 128; i++)
            q1(rows + i * 18, 128, out + i * 128);
        break;
    case STORED_Q1_0_G32:
        for (int64_t i = 0; i < k / 32; i++)
            q1(rows + i * 6, 32, out + i * 32);
        break;
    }
}
