/* dequantize.c: one stored row (of the embedding or the output matrix) as floats.  Formats and byte orders are those
 * of ggml; the order of the float products is the one of the reference decoders, so the bits agree with them. */
#include "kernels.h"
#include "numbers.h"
#include "template.h"

#include <string.h>

static uint16_t load_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static void f32(const uint8_t *b, float *out) { memcpy(out, b, 4); }
static void f16(const uint8_t *b, float *out) { *out = half_float(load_u16(b)); }
static void bf16(const uint8_t *b, float *out) { *out = bits_float((uint32_t)load_u16(b) << 16); }

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

/* Codes are places in a table of 16 values, which lie closer together around zero. */
static void iq4_nl(const uint8_t *b, float *out)
{
    static const int8_t value[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    float d = half_float(load_u16(b));
    for (int j = 0; j < 16; j++) {
        out[j] = (float)value[b[2 + j] & 15] * d;
        out[j + 16] = (float)value[b[2 + j] >> 4] * d;
    }
}

/* Q4_1 and Q5_1 have a minimum after their scale; Q5_0 and Q5_1 four bytes with the fifth bit of each code. */
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
INLINE void q45_k(const uint8_t *b, int five, float *out)
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

static void q4_k(const uint8_t *b, float *out) { q45_k(b, 0, out); }
static void q5_k(const uint8_t *b, float *out) { q45_k(b, 1, out); }

/* n codes of two bits after their scale: d * (code - 1). */
INLINE void codes(const uint8_t *b, int n, float *out)
{
    float d = half_float(load_u16(b));
    for (int j = 0; j < n; j++)
        out[j] = (float)((b[2 + j / 4] >> j % 4 * 2 & 3) - 1) * d;
}

static void q2_0(const uint8_t *b, float *out) { codes(b, 64, out); }
static void pq2_0(const uint8_t *b, float *out) { codes(b, 128, out); }

/* n signs after their scale: 1 is +d, 0 is -d. */
INLINE void signs(const uint8_t *b, int n, float *out)
{
    float d = half_float(load_u16(b));
    for (int j = 0; j < n; j++)
        out[j] = b[2 + j / 8] >> j % 8 & 1 ? d : -d;
}

static void q1_0(const uint8_t *b, float *out) { signs(b, 128, out); }
static void q1_0_g32(const uint8_t *b, float *out) { signs(b, 32, out); }

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

static void panels(const uint8_t *rows, int64_t row, int64_t k, float *out)
{
    for (int64_t i = 0; i < k / GROUP; i++)
        panel(rows + i * PANEL_BYTES(GROUP), row, out + i * GROUP);
}

/* The table: name, what decodes a block, its values and bytes, levels.  Those of edge/registry/encodings.py. */
#define BLOCKS(T)                                                                                                      \
    T(F32, f32, 1, 4, 0)                                                                                               \
    T(F16, f16, 1, 2, 0)                                                                                               \
    T(BF16, bf16, 1, 2, 0)                                                                                             \
    T(Q8_0, q8_0, 32, 34, 0)                                                                                           \
    T(Q6_K, q6_k, 256, 210, 0)                                                                                         \
    T(Q5_K, q5_k, 256, 176, 0)                                                                                         \
    T(Q4_K, q4_k, 256, 144, 0)                                                                                         \
    T(Q5_0, q5_0, 32, 22, 0)                                                                                           \
    T(Q5_1, q5_1, 32, 24, 0)                                                                                           \
    T(Q4_0, q4_0, 32, 18, 0)                                                                                           \
    T(Q4_1, q4_1, 32, 20, 0)                                                                                           \
    T(IQ4_NL, iq4_nl, 32, 18, 0)                                                                                       \
    T(Q1_0, q1_0, 128, 18, 2)                                                                                          \
    T(Q1_0_G32, q1_0_g32, 32, 6, 2)                                                                                    \
    T(Q2_0, q2_0, 64, 18, 4)                                                                                           \
    T(PQ2_0, pq2_0, 128, 34, 4)

#define ROW_OF_BLOCKS(name, block, span, bytes, levels)                                                                \
    static void row_of_##block(const uint8_t *rows, int64_t row, int64_t k, float *out)                                \
    {                                                                                                                  \
        (void)row;                                                                                                     \
        for (int64_t i = 0; i < k / span; i++)                                                                         \
            block(rows + i * bytes, out + i * span);                                                                   \
    }
BLOCKS(ROW_OF_BLOCKS)

#define ENTRY(name, block, span, bytes, levels) {#name, span, bytes, levels, 1, row_of_##block},
const struct row_type row_types[] = {
    BLOCKS(ENTRY){"PQ2_0_R64", GROUP, GROUP_WHOLE, 4, PANEL_ROWS, panels}, {0},
};
